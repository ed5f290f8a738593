// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/gateway/a2a"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/notice"
)

// liveIdentity is the node's own identity in a drill. It is rotated by the code that rotates it in earnest.
type liveIdentity struct {
	n    *Node
	kind drill.Kind
	call func(ctx context.Context, s did.Signer) error

	mu            sync.Mutex
	before, using did.Signer
}

func (n *Node) newLiveIdentity(kind drill.Kind) *liveIdentity {
	s := n.requestSigner()
	if kind.Moves() {
		s = n.id().binding
	}
	return &liveIdentity{n: n, kind: kind, before: s, using: s}
}

// Document implements [drill.Rotating].
func (l *liveIdentity) Document() *did.Document { return l.n.id().agent }

// KeyAgreement implements [drill.Rotating].
func (l *liveIdentity) KeyAgreement() string {
	kid, _, _ := hpke.SelectKey(l.Document(), notice.Suite, l.n.clock.Now())
	return kid
}

// Rotate implements [drill.Rotating].
func (l *liveIdentity) Rotate(ctx context.Context) error {
	r, err := l.n.Rotate(ctx, rotationOf(l.kind))
	if err != nil {
		return err
	}
	id := l.n.id()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.kind.Moves():
		l.using = id.binding
	case l.kind == drill.Signing:
		for _, f := range id.own.files[keystore.Signing] {
			if f.KID == r.KID {
				l.using, err = did.NewSigner(f.KID, f.Private)
			}
		}
	}
	return err
}

// rotationOf is what an operator would ask for.
func rotationOf(kind drill.Kind) httpapi.RotateRequest {
	switch kind {
	case drill.KeyAgreement:
		return httpapi.RotateRequest{Kind: httpapi.RotateKeyAgreement}
	case drill.Signing:
		return httpapi.RotateRequest{Kind: httpapi.RotateSigning}
	case drill.Binding, drill.Compromise, drill.Recovery:
	}
	return httpapi.RotateRequest{Kind: httpapi.RotateBinding, Compromised: kind == drill.Compromise}
}

// Call implements [drill.Rotating].
func (l *liveIdentity) Call(ctx context.Context, old bool) error {
	l.mu.Lock()
	s := l.using
	if old {
		s = l.before
	}
	l.mu.Unlock()
	return l.call(ctx, s)
}

// EndGrace implements [drill.Rotating]: for messages of the drill, and for no others.
func (l *liveIdentity) EndGrace(context.Context) error {
	l.n.drills.endGrace()
	return nil
}

// callAs makes a request of the peer that changes nothing, signed by s.
func (n *Node) callAs(ctx context.Context, peer did.DID, s did.Signer) error {
	p, err := n.connect(ctx, peer)
	if err != nil {
		return err
	}
	client, err := a2a.NewClient(a2a.ClientConfig{Card: p.card, HTTP: signedBy(n.signed, s), Timeout: n.cfg.Limits.PeerTimeout})
	if err != nil {
		return err
	}
	err = client.Probe(ctx)
	var status *a2a.TransportError
	if errors.As(err, &status) {
		switch status.Status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict:
			if status.Code == "" {
				status.Code = "HTTP " + strconv.Itoa(status.Status)
			}
			return &drill.Refused{Code: status.Code}
		}
	}
	return err
}
