// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
)

// Moving the identity with the recovery key, when the binding key is lost or somebody else has it. The recovery key is used in
// the command's own process; neither it nor its passphrase ever reaches the node.

// RecoveryKey is a sealed recovery key.
type RecoveryKey struct {
	File       string // out of the node's folder
	Passphrase string
	// After is the date of the newest proof that somebody else may have made for the identity's document, zero when none is
	// known: peers take nothing that is not newer.
	After time.Time
}

// SignMove deactivates the last document of a DID in favour of its prepared successor, as [Node.Rotate] with Prepare has
// returned them, with the recovery key in dir's stead.
func SignMove(ctx context.Context, dir string, prepared httpapi.Rotation, k RecoveryKey) ([]byte, error) {
	return signMove(ctx, dir, prepared, k, clock.System{}.Now())
}

func signMove(ctx context.Context, dir string, prepared httpapi.Rotation, k RecoveryKey, now time.Time) ([]byte, error) {
	usage := func(format string, args ...any) error {
		return &httpapi.Error{Kind: httpapi.KindUsage, Message: "--recovery-key: " + fmt.Sprintf(format, args...) + "; nothing was changed"}
	}
	if err := outOfReach(dir, k.File); err != nil {
		return nil, usage("%v", err)
	}
	unseal, err := keystore.PassphraseIdentity(k.Passphrase)
	if err != nil {
		return nil, usage("%v", err)
	}
	key, err := keystore.Load(k.File, unseal)
	if err != nil {
		return nil, usage("%v", err)
	}
	if key.Role != keystore.Recovery {
		return nil, usage("%s holds a key of role %s", k.File, key.Role)
	}
	doc, err := did.ParseDocument(prepared.Active)
	if err != nil {
		return nil, err
	}
	next, err := did.Parse(prepared.DID)
	if err != nil {
		return nil, err
	}
	kid := ""
	for _, m := range doc.Keys(did.Recovery) {
		if m.Key.Equal(key.Private.Public()) && (m.Expires.IsZero() || now.Before(m.Expires)) {
			kid = m.ID
		}
	}
	if kid == "" {
		return nil, usage("the document of %s does not list this key for recovery", doc.ID())
	}
	signer, err := did.NewSigner(kid, key.Private)
	if err != nil {
		return nil, err
	}
	created := now
	for _, last := range []time.Time{doc.ProofCreated(), k.After} {
		if earliest := last.Truncate(time.Second).Add(time.Second); !last.IsZero() && created.Before(earliest) {
			created = earliest
		}
	}
	return did.Deactivate(ctx, prepared.Active, next, signer, created, did.Dialect(prepared.Dialect))
}

// outOfReach refuses a file in the node's folder.
func outOfReach(dir, file string) error {
	folder, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	if strings.HasPrefix(path, folder+string(filepath.Separator)) {
		return fmt.Errorf("%s lies in the node's folder; the node must not hold that key", file)
	}
	return nil
}

// Recover moves the identity of a folder on which no node runs, and from which the binding key may be gone. The folder's other
// keys must open: the new ones are sealed as they are.
func Recover(ctx context.Context, dir string, o Options, req httpapi.RotateRequest, k RecoveryKey) (_ httpapi.Rotation, err error) {
	none := httpapi.Rotation{}
	cfg, err := LoadConfig(dir)
	if err != nil {
		return none, usageError(err)
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	n := &Node{dir: dir, cfg: cfg, log: slog.New(slog.DiscardHandler), recovering: true}
	f, err := n.openFolder(ctx, o)
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, n.db.Close()) }()
	if n.clock, err = clock.NewSecure(ctx, o.Clock, store.ClockFloor(n.db)); err != nil {
		return none, err
	}
	if cfg.Datasets != "" { // the agent card says what is on offer
		if n.offer, err = loadCatalogue(dir, cfg); err != nil {
			return none, usageError(err)
		}
	}
	id, err := n.reconcile(ctx, f, n.clock.Now())
	if err != nil {
		return none, usageError(err)
	}
	n.live.Store(id)
	n.notices = notice.New(notice.Config{Store: n.db, Now: n.clock.Now}) // the node sends them when it starts
	if published := PublishedProof(ctx, dir, id.agent.ID()); published.After(k.After) {
		k.After = published
	}
	prepare := req
	prepare.Prepare, prepare.Document = true, id.agent.Hash().String()
	prepared, err := n.Rotate(ctx, prepare)
	if err != nil {
		return none, err
	}
	if req.Deactivated, err = signMove(ctx, dir, prepared, k, n.clock.Now()); err != nil {
		return none, errors.Join(err, n.unprepare(ctx, id, prepared.DID))
	}
	req.Successor, req.Document = prepared.DID, prepare.Document
	return n.Rotate(ctx, req)
}

// unprepare takes away the keys of a move that will not be.
func (n *Node) unprepare(ctx context.Context, id *identity, next string) error {
	s, err := n.preparedSuccessor(ctx, id, next)
	if err != nil {
		return err
	}
	return s.discard()
}

const publishedTimeout = 3 * time.Second

// PublishedProof is the date of the proof of whatever document the DID's domain serves now, zero when none can be had. It says
// nothing about whose document that is.
func PublishedProof(ctx context.Context, dir string, id did.DID) time.Time {
	cfg, err := LoadConfig(dir)
	if err != nil {
		return time.Time{}
	}
	doc, err := publishedDocument(ctx, cfg, dir, id)
	if err != nil {
		return time.Time{}
	}
	return doc.ProofCreated()
}

// checkPublished refuses to run on an identity that the own domain has a later word of: this folder is from before, and peers
// have seen the later one, or somebody else has spoken. Mostly nobody serves the domain before the node does; then there is
// nothing to compare with. What is not proved by a key of this identity's keeps nobody from starting.
func (n *Node) checkPublished(ctx context.Context) error {
	doc, err := publishedDocument(ctx, n.cfg, n.dir, n.self())
	if err != nil {
		return nil //nolint:nilerr // nobody serves it
	}
	if err := n.refresh(ctx); err != nil { // another process of this node may be what serves it
		return err
	}
	own, now := n.id().agent, n.clock.Now()
	if doc.ID() != own.ID() || doc.Hash() == own.Hash() || !doc.ProofCreated().After(own.ProofCreated()) {
		return nil
	}
	if at := doc.ProofCreated(); at.After(now) {
		now = at
	}
	if _, err := doc.Verify(now); err != nil {
		if _, err := doc.VerifyRecovery(own, now); err != nil {
			n.log.Warn("the own domain serves a document that no key of this identity has proved", "did", own.ID(), "err", err)
			return nil
		}
	}
	what := "a later version of this node's document, of " + stamp(doc.ProofCreated())
	if doc.Deactivated() {
		what = "this node's document as deactivated, in favour of " + doc.SuccessorDID().String()
	}
	return &httpapi.Error{
		Kind: httpapi.KindUsage, Code: codeOutdated, Message: own.ID().DocumentURL() + " serves " + what,
		Hint: "this folder is from before: restore did/, keys/ and the store from a later backup. If it was somebody else: `treaty rotate binding --recovery-key FILE --compromised`",
	}
}

// publishedDocument fetches what the domain serves as the DID's document, and checks nothing of it but its form.
func publishedDocument(ctx context.Context, cfg *Config, dir string, id did.DID) (*did.Document, error) {
	guard, err := cfg.FetchConfig(dir)
	if err != nil {
		return nil, err
	}
	guard.Timeout, guard.MaxRedirects = publishedTimeout, maxRedirects
	raw, _, err := fetch.Get(ctx, fetch.NewClient(guard), id.DocumentURL(), did.MaxDocumentBytes)
	if err != nil {
		return nil, err
	}
	doc, err := did.ParseDocument(raw)
	if err == nil && doc.ID() != id {
		err = fmt.Errorf("it is of %s", doc.ID())
	}
	return doc, err
}
