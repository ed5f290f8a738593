// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/negotiation/policy"
	"github.com/treaty-node/treaty/node/store"
)

// apply is the step itself, after the sender's move if it has moved.
func (s *Service) apply(ctx context.Context, tx store.Tx, ses Session, in *inbound, outcome policy.Outcome, now time.Time) (Session, Effects, error) {
	at, moved := in.relocated(ses, now)
	next, fx, err := s.step(ctx, tx, at, in, outcome, now)
	fx.Events = append(moved, fx.Events...)
	return next, fx, err
}

// step is a pure function of session, message and time, but for the vendor's signatures.
func (s *Service) step(ctx context.Context, tx store.Tx, ses Session, in *inbound, outcome policy.Outcome, now time.Time) (Session, Effects, error) {
	next := ses.received(in.env.Seq, in.env.Digest())
	if in.kind == envelope.TypeMetaproto {
		next, fx, err := next.Round(in.content, in.roundKey(ses), in.read, s.cfg.Meta(), now)
		if err == nil && ses.Seq == 0 {
			fx.Events = append(s.introduction(in, now), fx.Events...)
		}
		if err == nil && next.Agreement() != nil {
			err = s.peerKey(next, in.replyTo(), now)
		}
		return next, fx, err
	}
	next, err := next.cited(in.env.Agreement, s.cfg.Meta(), now)
	if err != nil {
		return ses, Effects{}, err
	}
	switch {
	case in.ending != nil:
		return next.Rejected(in.ending.code, in.ending.reason, Effects{})
	case in.step != nil && next.Role == message.Vendor:
		why, err := s.irreplaceable(tx, &next)
		if err != nil {
			return ses, Effects{}, err
		}
		if why != "" {
			return next.Rejected(policy.CodeNotReplaceable, why+"; nothing new is in force", Effects{})
		}
		head, err := tx.Head()
		if err != nil {
			return ses, Effects{}, err
		}
		next, fx, err := next.proven(ctx, in.step, in.line, s.cfg.Keys().Binding, now, head.Hash)
		if err == nil {
			crashpoint.Hit(crashpoint.ContractActivate)
		}
		return next, fx, err
	case in.step != nil && in.step.Step == message.Draft:
		next, fx, err := next.draft(ctx, in.step, s.cfg.Keys().Binding, now)
		if err == nil {
			crashpoint.Hit(crashpoint.ContractProof)
		}
		return next, fx, err
	case in.step != nil:
		crashpoint.Hit(crashpoint.ContractReceived)
		return next.active(in.step, in.line, now)
	case next.Role == message.Buyer:
		return next.buyerBody(in.body, now)
	}
	next, fx, err := next.vendorBody(in.body, in.env, now)
	if err != nil || in.body.Scope == nil || next.Phase.Terminal() {
		return next, fx, err
	}
	if outcome.Rejected() {
		return next.Rejected(outcome.Code, outcome.Reason, fx)
	}
	if s.cfg.Drafter != nil {
		next, fx = next.Deciding(fx)
		return next, fx, nil
	}
	return next.Offered(outcome.Offer, "", fx)
}

// peerKey refuses an agreement whose key-agreement key is not in the peer's document.
func (s *Service) peerKey(ses Session, doc *did.Document, now time.Time) error {
	a := ses.Agreement()
	_, peer, ok := a.Sides(ses.Self)
	if !ok {
		return refuse(envelope.CodeAgreementMismatch, "the agreement is not ours")
	}
	if _, ok := a.Session(peer); ok {
		return nil // nothing is sealed to its document's key
	}
	if _, _, err := ses.sealedTo(doc, peer.KeyAgreementKID, now); err != nil {
		return refuse(envelope.CodeSuiteMismatch, "the peer's key-agreement key: %w", err)
	}
	return nil
}

// introduction logs who a new counterparty is.
func (s *Service) introduction(in *inbound, now time.Time) []ledger.Entry {
	v, err := in.peer.Verify(now)
	if err != nil {
		return nil // the resolver returned it verified; a proof that expired since shows at the next look-up
	}
	return Introduce(in.peer, v, in.env.ContextID)
}

// Introduce is how a verified counterparty enters the log.
func Introduce(doc *did.Document, v did.Verification, contextID string) []ledger.Entry {
	id := doc.ID().String()
	return []ledger.Entry{
		{Type: ledger.DIDResolved, Context: contextID, Peer: id, Data: ledger.Resolved{DID: id, URL: doc.ID().DocumentURL(), Hash: doc.Hash()}},
		{Type: ledger.DIDVerified, Context: contextID, Peer: id, Data: ledger.Verified{DID: id, Profile: string(v.Profile), Dialect: string(v.Dialect), KeyID: v.ProofKeyID}},
	}
}

// commit writes everything a message led to: the message, the answer, the state, the contract and the events, in one
// transaction. After a crash before it, the conversation stands where it stood and the peer's retry is a new message;
// after it, the retry is answered from the record. Nothing is in between (invariants 8 and 15). peer is the document that
// the answer is sealed to; it was resolved before, since a transaction waits for nobody.
func (s *Service) commit(ctx context.Context, tx store.Tx, conv *store.Conversation, next Session, fx Effects, in *inbound, peer *did.Document, now time.Time) (Session, []byte, error) {
	if in != nil {
		if err := tx.PutEnvelope(in.record(next, now)); err != nil {
			return next, nil, err
		}
	}
	var reply []byte
	if fx.Reply != nil {
		if err := s.speaks(tx, next); err != nil {
			return next, nil, err
		}
		env, opened, err := s.build(ctx, next, *fx.Reply, peer, now)
		if err != nil {
			return next, nil, err
		}
		if !fx.Aside {
			next = next.Sent(env.Seq, env.Digest())
		}
		next = next.spoken()
		if next.Role == message.Buyer && next.Phase == PhaseAccepted && next.Contract == nil {
			if next, err = next.accepted(env); err != nil {
				return next, nil, err
			}
		}
		if err := tx.PutEnvelope(outgoing(next, env, opened, in, fx.Answers, now)); err != nil {
			return next, nil, err
		}
		reply = env.Raw()
	}
	if fx.Record != nil {
		if err := tx.PutContract(*fx.Record); err != nil {
			return next, nil, err
		}
		if err := s.replace(ctx, tx, next.Contract); err != nil {
			return next, nil, err
		}
	}
	if conv.Version == 0 && next.sealedKeys != nil && !next.Phase.Terminal() {
		if err := tx.PutSessionKeys(next.ContextID, next.sealedKeys); err != nil {
			return next, nil, err
		}
	}
	again, opened := s.again(&next, now)
	if err := s.put(tx, conv, next, now); err != nil {
		return next, nil, err
	}
	if err := appendAll(tx, fx.Events); err != nil {
		return next, nil, err
	}
	return next, reply, s.openAgain(ctx, tx, again, opened, now)
}

// record is how a message of the peer is kept.
func (in *inbound) record(ses Session, now time.Time) store.EnvelopeRecord {
	rec := store.EnvelopeRecord{
		Digest: in.env.Digest(), Own: ses.Self.String(), Peer: ses.Peer.String(), ContextID: ses.ContextID, Seq: in.env.Seq, Direction: store.In,
		Bytes: in.raw, Created: now,
	}
	if in.opened.Body != nil {
		rec.Plaintext, rec.Salt = in.opened.Body, in.opened.Salt[:]
	}
	return rec
}

// outgoing is how a message of ours is kept: a vendor's as the answer to in, or to an earlier message.
func outgoing(ses Session, env *envelope.Envelope, opened envelope.Opened, in *inbound, answers canon.Digest, now time.Time) store.EnvelopeRecord {
	rec := store.EnvelopeRecord{
		Digest: env.Digest(), Own: ses.Self.String(), Peer: ses.Peer.String(), ContextID: ses.ContextID, Seq: env.Seq, Direction: store.Out,
		Bytes: env.Raw(), Created: now, Plaintext: opened.Body, Salt: opened.Salt[:],
	}
	switch {
	case ses.Role != message.Vendor:
	case in != nil:
		rec.ReplyTo = in.env.Digest()
	default:
		rec.ReplyTo = answers
	}
	return rec
}

// put stores the state. The end of a conversation is the end of its session keys.
func (s *Service) put(tx store.Tx, conv *store.Conversation, next Session, now time.Time) error {
	if next.Phase.Terminal() {
		if err := tx.DeleteSessionKeys(next.ContextID); err != nil {
			return err
		}
	}
	state, err := json.Marshal(next)
	if err != nil {
		return err
	}
	expect := conv.Version
	conv.State, conv.Phase, conv.Updated = state, string(next.Phase), now.UTC()
	if conv.Created.IsZero() {
		conv.Created = now.UTC()
	}
	if err := tx.PutConversation(*conv, expect); err != nil {
		return err
	}
	conv.Version = expect + 1
	return nil
}

func appendAll(tx store.Tx, entries []ledger.Entry) error {
	for _, e := range entries {
		if _, err := tx.Append(e); err != nil {
			return err
		}
	}
	return nil
}

// speaks says whether this side may still sign as it is about to, as of this transaction: another process of the node may have
// rotated since. The error is a store.ErrConflict then, and the message is looked at again with the keys of now.
func (s *Service) speaks(tx store.Tx, ses Session) error {
	if s.cfg.Speaks == nil {
		return nil
	}
	return s.cfg.Speaks(tx, ses.speaker())
}

// build signs and seals our next message: to the peer, by the agreement.
func (s *Service) build(ctx context.Context, ses Session, d Draft, peer *did.Document, now time.Time) (*envelope.Envelope, envelope.Opened, error) {
	keys := s.cfg.Keys()
	if keys.Document.ID() != ses.speaker() {
		// The node has moved since the step began. What the body says in the name of the old DID is said again under the new one.
		return nil, envelope.Opened{}, fmt.Errorf("%w: this node is %s by now", store.ErrConflict, keys.Document.ID())
	}
	d, err := ses.moving(d, keys)
	if err != nil {
		return nil, envelope.Opened{}, err
	}
	draft := envelope.Draft{
		Type: d.Type, To: ses.listener(), ContextID: ses.ContextID, Seq: ses.Seq + 1, CreatedAt: now, Lifetime: s.cfg.Lifetime, Prev: ses.Head, Body: d.Body,
	}
	if !d.Prev.IsZero() {
		draft.Prev = d.Prev
	}
	if !d.Expires.IsZero() {
		draft.Lifetime = min(max(d.Expires.Sub(now).Truncate(time.Second), time.Second), envelope.MaxLifetime)
	}
	var seal *envelope.SealTo
	if d.Type != envelope.TypeMetaproto && d.carries != envelope.TypeMetaproto {
		if seal, err = s.sealing(ses, peer, now); err != nil {
			return nil, envelope.Opened{}, err
		}
		draft.Agreement = ses.AgreementDigest()
	}
	return envelope.Build(ctx, draft, keys.Binding, seal)
}
