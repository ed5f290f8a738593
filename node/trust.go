// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/trust"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// trustSetting is where the operator's changes to the trust policy are kept. The configuration stays the operator's own
// text: what `treaty trust` changes stands in the store, with its event, and goes on top.
const trustSetting = "trust.changes"

// maxTrustChanges bounds the list, which is read for every change and at every start.
const maxTrustChanges = 10_000

// trustChange is one stored change; a pattern has at most one.
type trustChange struct {
	Effect  string `json:"effect"` // allow or deny
	Pattern string `json:"pattern"`
	At      string `json:"at"` // RFC 3339
}

// trustChanges reads the stored changes. Anything that cannot be read stops the node: a forgotten denial would be a yes.
func trustChanges(tx store.Settings) ([]trustChange, error) {
	text, err := tx.GetSetting(trustSetting)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []trustChange
	if err := canon.Unmarshal([]byte(text), &list, canon.Limits{MaxBytes: 4 << 20}); err != nil {
		return nil, fmt.Errorf("%w: setting %s: %w", store.ErrCorrupt, trustSetting, err)
	}
	return list, nil
}

// withChanges is the configuration's policy as the operator changed it.
func withChanges(p trust.Policy, changes []trustChange) (trust.Policy, error) {
	for _, c := range changes {
		pattern, err := trust.ParsePattern(c.Pattern)
		if err != nil {
			return trust.Policy{}, fmt.Errorf("%w: setting %s: %w", store.ErrCorrupt, trustSetting, err)
		}
		switch c.Effect {
		case httpapi.TrustAllow:
			p = p.Allowing(pattern)
		case httpapi.TrustDeny:
			p = p.Denying(pattern)
		default:
			return trust.Policy{}, fmt.Errorf("%w: setting %s: effect %q", store.ErrCorrupt, trustSetting, c.Effect)
		}
	}
	return p, nil
}

// loadTrust puts the policy with the stored changes into force.
func (n *Node) loadTrust(ctx context.Context) error {
	var changes []trustChange
	if err := n.db.View(ctx, func(tx store.Tx) (err error) {
		changes, err = trustChanges(tx)
		return err
	}); err != nil {
		return err
	}
	p, err := withChanges(n.cfg.Trust, changes)
	if err != nil {
		return err
	}
	n.trust.Store(p)
	return nil
}

// Trust implements [httpapi.IdentityAdmin].
func (n *Node) Trust(ctx context.Context) (v httpapi.Trust, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		changes, err := trustChanges(tx)
		v = trustView(n.cfg.Trust, changes)
		return err
	})
	return v, err
}

// ChangeTrust implements [httpapi.IdentityAdmin]. When it returns, the change is on disk with its event and in force for
// every question asked from then on.
func (n *Node) ChangeTrust(ctx context.Context, req httpapi.TrustRequest) (httpapi.Trust, error) {
	pattern, err := trust.ParsePattern(req.Pattern)
	if err != nil {
		return httpapi.Trust{}, usageError(err)
	}
	switch req.Action {
	case httpapi.TrustAllow, httpapi.TrustDeny, httpapi.TrustForget:
	default:
		return httpapi.Trust{}, usageError(fmt.Errorf("trust: %q is none of allow, deny, forget", req.Action))
	}
	// Two changes must not come into force in another order than the store has them.
	n.trustMu.Lock()
	defer n.trustMu.Unlock()
	var changes []trustChange
	var policy trust.Policy
	err = n.db.Update(ctx, func(tx store.Tx) (err error) {
		if changes, err = trustChanges(tx); err != nil {
			return err
		}
		before := len(changes)
		changes = slices.DeleteFunc(changes, func(c trustChange) bool { return c.Pattern == pattern.String() })
		if req.Action == httpapi.TrustForget {
			if len(changes) == before {
				return &httpapi.Error{Kind: httpapi.KindNotFound, Message: fmt.Sprintf("%q was not changed here", pattern), Hint: "treaty trust list shows where each rule comes from; rules of " + ConfigFile + " are changed there, or overruled with allow and deny"}
			}
		} else {
			if len(changes) >= maxTrustChanges {
				return usageError(fmt.Errorf("trust: more than %d changes; move them into %s", maxTrustChanges, ConfigFile))
			}
			changes = append(changes, trustChange{Effect: req.Action, Pattern: pattern.String(), At: n.clock.Now().UTC().Format(time.RFC3339)})
		}
		if policy, err = withChanges(n.cfg.Trust, changes); err != nil {
			return err
		}
		text, err := canon.Marshal(changes)
		if err != nil {
			return err
		}
		if err := tx.PutSetting(trustSetting, string(text)); err != nil {
			return err
		}
		_, err = tx.Append(ledger.Entry{Type: ledger.TrustChanged, Data: ledger.TrustChange{Action: req.Action, Pattern: pattern.String()}})
		return err
	})
	if err != nil {
		return httpapi.Trust{}, err
	}
	n.trust.Store(policy)
	v := trustView(n.cfg.Trust, changes)
	if req.Action == httpapi.TrustAllow {
		v.Note = stillDenied(policy, req.Pattern)
	}
	return v, nil
}

// stillDenied says when another rule keeps an allowed DID or domain out.
func stillDenied(p trust.Policy, pattern string) string {
	var err error
	if id, parseErr := did.Parse(pattern); parseErr == nil {
		err = p.Admit(id)
	} else if pattern[0] != '*' {
		err = p.AdmitDomain(pattern)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func trustView(p trust.Policy, changes []trustChange) httpapi.Trust {
	v := httpapi.Trust{FirstContact: string(p.FirstContact), Methods: p.Methods, ContractProfiles: []string{}, Rules: []httpapi.TrustRule{}}
	if p.FirstContact == "" {
		v.FirstContact = string(trust.Closed)
	}
	if len(v.Methods) == 0 {
		v.Methods = []string{"wba", "web"}
	}
	for _, profile := range []did.Profile{did.ProfileE1, did.ProfileK1, did.ProfileBare, did.ProfileWeb} {
		if p.Contracts(profile) {
			v.ContractProfiles = append(v.ContractProfiles, string(profile))
		}
	}
	changed := map[string]bool{}
	for _, c := range changes {
		changed[c.Pattern] = true
	}
	add := func(effect string, list []trust.Pattern) {
		for _, pattern := range list {
			text := pattern.String()
			v.Rules = append(v.Rules, httpapi.TrustRule{Effect: effect, Pattern: text, Source: httpapi.TrustFromConfig, InForce: !changed[text]})
		}
	}
	add(httpapi.TrustAllow, p.Allow)
	add(httpapi.TrustDeny, p.Deny)
	for _, c := range changes {
		at, _ := time.Parse(time.RFC3339, c.At) // written by ChangeTrust; without it the rule shows no date
		v.Rules = append(v.Rules, httpapi.TrustRule{Effect: c.Effect, Pattern: c.Pattern, Source: httpapi.TrustFromOperator, InForce: true, Since: at})
	}
	return v
}

// History implements [httpapi.IdentityAdmin].
func (n *Node) History(ctx context.Context, target string) (httpapi.History, error) {
	id, err := did.Parse(target)
	if err != nil {
		return httpapi.History{}, usageError(fmt.Errorf("%w (a history is one DID's)", err))
	}
	accepted, held, err := n.resolver.History(ctx, id)
	if err != nil {
		return httpapi.History{}, resolveError(err)
	}
	h := httpapi.History{DID: id.String(), Versions: []httpapi.Version{}}
	if held != nil {
		accepted = append(accepted, *held)
	}
	for _, p := range accepted {
		v := httpapi.Version{Hash: p.Hash, State: string(p.State), ProofCreated: p.ProofCreated, FirstSeen: p.FirstSeen, Deactivated: p.Deactivated, Keys: []httpapi.KeyInfo{}}
		doc, err := did.ParseDocument(p.Raw)
		if err != nil {
			return httpapi.History{}, fmt.Errorf("%w: pinned document %s: %w", store.ErrCorrupt, p.Hash, err)
		}
		v.Keys = keyInfos(doc)
		h.Versions = append(h.Versions, v)
	}
	return h, nil
}

// Confirm implements [httpapi.IdentityAdmin].
func (n *Node) Confirm(ctx context.Context, req httpapi.ConfirmRequest) (httpapi.History, error) {
	id, err := did.Parse(req.DID)
	if err != nil {
		return httpapi.History{}, usageError(err)
	}
	hash, err := canon.ParseDigest(req.Hash)
	if err != nil {
		return httpapi.History{}, usageError(fmt.Errorf("--confirm: %w (treaty resolve --history shows the hash of the version that is held)", err))
	}
	err = n.resolver.Confirm(ctx, id, hash)
	if errors.Is(err, resolver.ErrNotHeld) {
		return httpapi.History{}, &httpapi.Error{Kind: httpapi.KindNotFound, Message: fmt.Sprintf("no version %s of %s waits for a confirmation", hash, id), Hint: "treaty resolve --history " + id.String()}
	}
	if err != nil {
		return httpapi.History{}, resolveError(err)
	}
	if err := n.record(ctx, ledger.Entry{Type: ledger.KeyConfirmed, Peer: id.String(), Data: ledger.KeyConfirmation{DID: id.String(), Hash: hash}}); err != nil {
		return httpapi.History{}, err
	}
	return n.History(ctx, id.String())
}

// keyInfos are a document's verification methods and what each may be used for.
func keyInfos(doc *did.Document) []httpapi.KeyInfo {
	keys := []httpapi.KeyInfo{}
	for _, m := range doc.Methods() {
		key := httpapi.KeyInfo{ID: m.ID, Type: m.Type, Relationships: []string{}}
		if !m.Key.IsZero() {
			key.Thumbprint = m.Key.Thumbprint()
		}
		for _, rel := range []did.Relationship{did.Authentication, did.AssertionMethod, did.KeyAgreement, did.HumanAuthorization, did.Recovery} {
			if doc.In(m.ID, rel) {
				key.Relationships = append(key.Relationships, string(rel))
			}
		}
		keys = append(keys, key)
	}
	return keys
}
