// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/store"
)

// A conversation keeps the two DIDs that it began with: they are its name, in the store, in the agreement and in the first prev.
// Who speaks in it is another thing. A side that has moved to a successor says so once, in a moved envelope that carries the
// message that was due; from then on it speaks, and is spoken to, under the new DID. The other side believes none of it, but
// verifies the succession in the documents. A side that learns of a succession by itself may address the successor before that.

// Lines verifies successions. [succession.Service] is one. Errors that are not refusals ([resolver.Error.Temporary]) mean that
// the documents cannot be had at the moment.
type Lines interface {
	Follow(ctx context.Context, from did.DID) (*did.Line, error)
	Stands(ctx context.Context, from, id did.DID) (*did.Line, error)
}

// Address is how a side of a conversation is reached, when that is not what the agreement says any more.
type Address struct {
	DID             did.DID `json:"did"`
	SigningKID      string  `json:"signingKid"`
	KeyAgreementKID string  `json:"keyAgreementKid"`
}

// speaker is the DID that this side speaks under, listener the one that the other side is spoken to.
func (s *Session) speaker() did.DID {
	if s.SelfNow != nil {
		return s.SelfNow.DID
	}
	return s.Self
}

func (s *Session) listener() did.DID {
	if s.PeerNow != nil {
		return s.PeerNow.DID
	}
	return s.Peer
}

// said is the DID of this side's last message, or of the beginning; heard that of the other's.
func (s *Session) said() did.DID {
	if s.SelfSaid.IsZero() {
		return s.Self
	}
	return s.SelfSaid
}

func (s *Session) heard() did.DID {
	if s.PeerSaid.IsZero() {
		return s.Peer
	}
	return s.PeerSaid
}

// present makes this side speak under the node's DID of the moment.
func (s Session) present(k Keys) Session {
	if k.Document == nil || k.Document.ID() == s.speaker() {
		return s
	}
	s.SelfNow = &Address{DID: k.Document.ID(), SigningKID: k.Binding.KeyID(), KeyAgreementKID: k.KeyAgreementKID}
	return s
}

// owns says whether a DID is this node's own, of today or of before.
func (k Keys) owns(id did.DID) bool {
	return k.Document.ID() == id || k.Owns != nil && k.Owns(id)
}

// former is the document of a DID of before, nil if there is none.
func (k Keys) former(id did.DID) *did.Document {
	if k.Former == nil {
		return nil
	}
	return k.Former(id)
}

// replyTo is the sender's document of today: what answers are sealed to.
func (in *inbound) replyTo() *did.Document {
	if in.successor != nil {
		return in.successor
	}
	return in.peer
}

// sender finds the document that a message is verified with. Most are sent by the DID that wrote them. One that the sender wrote
// before it moved, and sends again or late, comes by its successor, whose HTTP signature vouches for it: it was dated before the
// deactivation, and is taken unless somebody else may have had the old key. caller is zero for an answer on a connection of ours.
func (s *Service) sender(ctx context.Context, in *inbound, caller did.DID) error {
	from := in.env.From
	if caller.IsZero() || caller == from {
		doc, err := s.cfg.Resolver.Resolve(ctx, from)
		if err == nil {
			in.peer = doc
			return nil
		}
		if !errors.Is(err, resolver.CodeDeactivated) || !caller.IsZero() || s.cfg.Lines == nil {
			return unresolved(err)
		}
		line, err := s.cfg.Lines.Follow(ctx, from)
		if err != nil {
			return unfollowed(err)
		}
		return in.late(line)
	}
	if s.cfg.Lines == nil || !did.SameSubject(from, caller) {
		return refuse(envelope.CodeWrongSender, "sent by %s, signed by %s, called by %s", from, in.env.Signer(), caller)
	}
	line, err := s.cfg.Lines.Stands(ctx, from, caller)
	if err != nil {
		return unfollowed(err)
	}
	return in.late(line)
}

// late takes what a DID of the line wrote before it had a successor.
func (in *inbound) late(line *did.Line) error {
	station, ok := line.Of(in.env.From)
	if !ok || !line.Moves() {
		return refuse(envelope.CodeNotTrusted, "the succession from %s", in.env.From)
	}
	if !station.Signs(in.env.Created()) {
		return refuse(envelope.CodeNotTrusted, "written by %s at %s, when it had a successor", in.env.From, in.env.CreatedAt)
	}
	in.peer, in.line, in.successor = station.Keys(), line, line.Current()
	return nil
}

// unfollowed is what a peer is told when its succession is not followed.
func unfollowed(err error) error {
	var e *resolver.Error
	if errors.As(err, &e) {
		return unresolved(err)
	}
	return refuse(envelope.CodeNotTrusted, "the sender's succession: %w", err)
}

// follow says whether the sender may speak in the conversation: under the DID that it began with, or as its verified successor.
func (s *Service) follow(ctx context.Context, in *inbound, ses Session) error {
	from := in.env.From
	switch {
	case from == ses.Peer && in.line == nil:
		in.line = did.Alone(in.peer)
		return nil
	case in.line != nil && in.line.Start() == ses.Peer:
		return nil
	case s.cfg.Lines == nil || !did.SameSubject(ses.Peer, from):
		return refuse(envelope.CodeWrongSender, "the conversation is with %s", ses.Peer)
	}
	line, err := s.cfg.Lines.Stands(ctx, ses.Peer, in.replyTo().ID())
	if err != nil {
		return unfollowed(err)
	}
	if _, ok := line.Of(from); !ok {
		return refuse(envelope.CodeWrongSender, "the conversation is with %s", ses.Peer)
	}
	in.line = line
	return nil
}

// oldWords refuses what an old key has signed and is seen for the first time, when somebody else may have had that key.
func (s *Service) oldWords(ctx context.Context, in *inbound) error {
	if in.successor == nil {
		return nil
	}
	return s.cfg.Store.View(ctx, func(tx store.Tx) error {
		step, err := tx.GetSuccession(in.env.From.String())
		if errors.Is(err, store.ErrNotFound) || err == nil && step.CompromisedSince.IsZero() {
			return nil
		}
		if err != nil {
			return err
		}
		return refuse(envelope.CodeNotTrusted, "somebody else may have had the key of %s; say it under the DID of today", in.env.From)
	})
}

// moves reads what a message says of its sender's move, and what the message itself then is. It was opened before.
func (s *Service) moves(in *inbound, ses Session, now time.Time) error {
	in.kind, in.content = in.env.Type, in.opened.Body
	if in.env.From != ses.Peer {
		if kid, err := in.peer.BindingKeyID(); err != nil || kid != in.env.KeyID() {
			return refuse(envelope.CodeBadSignature, "a successor signs with its binding key")
		}
	}
	if in.place(in.env.From.String()) < in.place(ses.heard().String()) && !ses.Phase.Terminal() {
		return refuse(envelope.CodeWrongSender, "%s has spoken here already, which followed %s", ses.heard(), in.env.From)
	}
	switch {
	case in.env.Type != envelope.TypeMoved && in.env.From != ses.heard() && !ses.Phase.Terminal():
		return refuse(envelope.CodeUnexpectedType, "a side that goes on under another DID says so with a moved message")
	case in.env.Type != envelope.TypeMoved:
		return nil
	}
	m, err := message.ParseMoved(in.opened.Body, in.env.From)
	if err != nil {
		return refuse(envelope.CodeMalformed, "%w", err)
	}
	in.kind, in.content, in.moved = envelope.Type(m.Carries), m.Body, m
	if (in.env.Sealed == nil) != (in.kind == envelope.TypeMetaproto) {
		return refuse(envelope.CodeMalformed, "a moved message is sealed as what it carries")
	}
	if old := in.place(m.Old); old < 0 || old >= in.place(in.env.From.String()) {
		return refuse(envelope.CodeWrongSender, "%s was never %s", in.env.From, contract.Echo(m.Old))
	}
	_, err = hpke.NamedKey(in.peer, m.KeyAgreementKID, ses.suite(), now)
	if err != nil { // the one that everybody has; for another suite sealedTo finds the key
		_, err = hpke.NamedKey(in.peer, m.KeyAgreementKID, hpke.SuiteX25519, now)
	}
	if err != nil {
		return refuse(envelope.CodeSuiteMismatch, "the key-agreement key that the move names: %w", err)
	}
	return nil
}

// place is where in its sender's line a DID stands, -1 for nowhere.
func (in *inbound) place(id string) int {
	return slices.IndexFunc(in.line.Stations(), func(s did.Station) bool { return s.ID().String() == id })
}

// suite is the agreed one, or the one that everybody has.
func (s *Session) suite() hpke.Suite {
	if a := s.Agreement(); a != nil {
		return a.Candidate.HPKESuite
	}
	return hpke.SuiteX25519
}

// signs is the key that the sender of a message signs with, by the agreement or by its own move.
func (s *Session) signs(from did.DID) string {
	if s.PeerNow != nil && s.PeerNow.DID == from {
		return s.PeerNow.SigningKID
	}
	if a := s.Agreement(); a != nil && from == s.Peer {
		if _, peer, ok := a.Sides(s.Self); ok {
			return peer.SigningKID
		}
	}
	return "" // a move, which is by the binding key: see moves
}

// roundKey is the key id under which the state of the rounds knows the sender: they began under its first DID.
func (in *inbound) roundKey(ses Session) string {
	if in.env.From == ses.Peer {
		return in.env.KeyID()
	}
	if kid := ses.Meta.Peer.SigningKID; kid != "" {
		return kid
	}
	if first, ok := in.line.Of(ses.Peer); ok {
		if kid, err := first.Keys().BindingKeyID(); err == nil {
			return kid
		}
	}
	return in.env.KeyID()
}

// relocated notes where the sender of a message is from now on, and what the log is told of it.
func (in *inbound) relocated(ses Session, now time.Time) (Session, []ledger.Entry) {
	before := ses.listener()
	switch {
	case in.successor != nil:
		a, err := addressOf(in.successor, ses.suite(), now)
		if err != nil {
			break // it has no key for the suite; the answer goes where the agreement says
		}
		ses.PeerNow = a
	case in.moved != nil:
		ses.PeerNow = &Address{DID: in.env.From, SigningKID: in.env.KeyID(), KeyAgreementKID: in.moved.KeyAgreementKID}
	}
	if in.env.From != ses.heard() {
		ses.PeerSaid = in.env.From
	}
	if in.moved == nil && ses.listener() == before {
		return ses, nil
	}
	side := message.Vendor
	if ses.Role == message.Vendor {
		side = message.Buyer
	}
	old := before.String()
	if in.moved != nil {
		old = in.moved.Old
	}
	return ses, []ledger.Entry{{Type: ledger.ConversationMoved, Context: ses.ContextID, Peer: ses.Peer.String(), Data: ledger.ConversationMove{
		Side: string(side), Old: old, New: ses.listener().String(), Seq: in.env.Seq,
	}}}
}

// addressOf is how a DID is reached that has not said it itself in the conversation.
func addressOf(doc *did.Document, suite hpke.Suite, now time.Time) (*Address, error) {
	binding, err := doc.BindingKeyID()
	if err != nil {
		return nil, err
	}
	kex, _, err := hpke.SelectKey(doc, suite, now)
	if err != nil {
		kex, _, err = hpke.SelectKey(doc, hpke.SuiteX25519, now)
	}
	if err != nil {
		return nil, err
	}
	return &Address{DID: doc.ID(), SigningKID: binding, KeyAgreementKID: kex}, nil
}

// reach resolves the other side as it is now: its document, and the session that addresses it. A DID that has a successor is
// followed, whether or not the other side has said so.
func (s *Service) reach(ctx context.Context, ses Session) (Session, *did.Document, error) {
	doc, err := s.cfg.Resolver.Resolve(ctx, ses.listener())
	if err == nil || s.cfg.Lines == nil || !errors.Is(err, resolver.CodeDeactivated) {
		return ses, doc, err
	}
	line, err := s.cfg.Lines.Follow(ctx, ses.Peer)
	if err != nil {
		return ses, nil, err
	}
	a, err := addressOf(line.Current(), ses.suite(), s.cfg.Now())
	if err != nil {
		return ses, nil, err
	}
	ses.PeerNow = a
	return ses, line.Current(), nil
}

// moving wraps a draft in this side's move, when its last message was under another DID; and again when it is said out of turn, as
// the other side may not have had that message.
func (s *Session) moving(d Draft, k Keys) (Draft, error) {
	old := s.said()
	if s.speaker() == old {
		if d.Prev.IsZero() || old == s.Self {
			return d, nil
		}
		old = s.Self
	}
	m := message.Moved{
		Type: message.MovedType, Old: old.String(), Document: k.Document.Hash(), KeyAgreementKID: s.SelfNow.KeyAgreementKID,
		Carries: string(d.Type), Body: d.Body,
	}
	body, err := m.Marshal(s.speaker())
	d.Type, d.Body, d.carries = envelope.TypeMoved, body, d.Type
	return d, err
}

// spoken notes that this side has spoken under its DID of today.
func (s Session) spoken() Session {
	if s.speaker() != s.said() {
		s.SelfSaid = s.speaker()
	}
	return s
}

// content is what a stored message says, or carries when it is a move.
func content(rec store.EnvelopeRecord) ([]byte, error) {
	env, err := envelope.Parse(rec.Bytes, 0)
	if err != nil || env.Type != envelope.TypeMoved {
		return rec.Plaintext, err
	}
	m, err := message.ParseMoved(rec.Plaintext, env.From)
	if err != nil {
		return nil, err
	}
	return m.Body, nil
}

// sealedTo is the peer's key that a message is sealed to: the agreed one, or that of the DID that it has moved to.
func (s *Session) sealedTo(peer *did.Document, agreed string, now time.Time) (string, did.PublicKey, error) {
	if s.PeerNow == nil {
		key, err := hpke.NamedKey(peer, agreed, s.suite(), now)
		return agreed, key, err
	}
	kid := s.PeerNow.KeyAgreementKID
	if key, err := hpke.NamedKey(peer, kid, s.suite(), now); err == nil {
		return kid, key, nil
	}
	return hpke.SelectKey(peer, s.suite(), now) // it was named before the suite was agreed, or has been rotated since
}

// recipient is the key that the peer may have sealed a message to: the agreed one for the DID of the beginning, and for one that
// this side has moved to since, the node's own of that name: only the node's own keys open anything.
func (s *Session) recipient(env *envelope.Envelope, agreed string) string {
	if env.To == s.Self || env.Sealed == nil {
		return agreed
	}
	if id, _, err := did.SplitKeyID(env.Sealed.RecipientKID); err == nil && id == env.To {
		return env.Sealed.RecipientKID
	}
	return agreed
}

// conversationOf finds the conversation of a message: under the DIDs in its header, or under those that these have followed. What
// is found so is a claim of the message; [Service.follow] verifies it.
func conversationOf(tx store.Tx, env *envelope.Envelope) (store.Conversation, error) {
	c, err := tx.GetConversation(env.To.String(), env.From.String(), env.ContextID)
	if !errors.Is(err, store.ErrNotFound) {
		return c, err
	}
	owns, err := tx.Lineage(env.To.String())
	if err != nil {
		return c, err
	}
	for _, own := range owns {
		c, err := tx.FindConversation(own, env.ContextID)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return c, err
		}
		peer, err := did.Parse(c.Peer)
		if err == nil && c.ContextID == env.ContextID && (peer == env.From || did.SameSubject(peer, env.From)) {
			return c, nil
		}
	}
	return c, store.ErrNotFound
}

// findOwn looks for one of this node's conversations, under each DID that it has had.
func findOwn(tx store.Tx, self did.DID, id string) (c store.Conversation, err error) {
	owns, err := tx.Lineage(self.String())
	if err != nil {
		return c, err
	}
	for i := len(owns) - 1; i >= 0; i-- {
		if c, err = tx.FindConversation(owns[i], id); !errors.Is(err, store.ErrNotFound) {
			return c, err
		}
	}
	return c, err
}
