// SPDX-License-Identifier: Apache-2.0

package negotiation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation/message"
	"github.com/treaty-node/treaty/node/store"
)

// check makes every check that comes before a change of state (invariant 1), opens the message and reads it strictly.
// stored says that the conversation exists.
func (s *Service) check(ctx context.Context, in *inbound, stored bool, ses Session, now time.Time) error {
	env := in.env
	if err := s.follow(ctx, in, ses); err != nil {
		return err
	}
	if err := s.oldWords(ctx, in); err != nil {
		return err
	}
	if stored && (env.Seq <= ses.PeerSeq || ses.Phase.Terminal()) {
		if err := s.equivocation(ctx, in, ses, now); err != nil {
			return err
		}
	}
	if ses.Phase.Terminal() {
		return s.checkSettlement(ctx, in, ses, now)
	}
	x := s.expect(env, ses, now)
	in.inOrder = env.Seq == x.Seq && env.Prev.Equal(x.Prev)
	err := env.Check(x)
	if err == nil && ses.peerSpokeLast() {
		in.inOrder = false
		err = refuse(envelope.CodeOutOfTurn, "it is the %s's turn", ses.Role)
	}
	onlyWithdraw := false
	switch {
	case err == nil:
	case envelope.CodeOf(err) == envelope.CodeExpired && ses.settling(env.Type):
		// The proof, and the answer to it, are never too old to conclude by: see [ending] and [Session.active].
		x.Now = env.Created()
		if err := env.Check(x); err != nil {
			return err
		}
		if ses.Role == message.Vendor {
			in.ending = &ending{string(envelope.CodeLateActivation), "the proof came after " + env.ExpiresAt + "; nothing is in force"}
		}
	case s.outOfTurn(ctx, err, in, ses, now):
		onlyWithdraw = true
	default:
		return err
	}
	if a := ses.Agreement(); a != nil && len(in.raw) > a.Candidate.Limits.MaxMessageBytes {
		return refuse(envelope.CodeTooLarge, "a message of %d bytes, agreed are %d", len(in.raw), a.Candidate.Limits.MaxMessageBytes)
	}
	if err := s.open(ctx, in, ses); err != nil {
		return err
	}
	if err := s.read(in, ses, onlyWithdraw, now); err != nil {
		return err
	}
	if in.ending != nil && in.step == nil {
		return refuse(envelope.CodeExpired, "expired at %s", env.ExpiresAt)
	}
	return s.stands(in, ses, now)
}

// settling: a message of this type can settle whether there is a contract. The vendor waits for the buyer's proof, or the
// buyer, whose proof is out, for the vendor's word.
func (s *Session) settling(t envelope.Type) bool {
	switch s.Role { // what a moved message carries is seen when it is open
	case message.Vendor:
		return s.Phase == PhaseAccepted && (t == envelope.TypeContract || t == envelope.TypeMoved)
	case message.Buyer:
		return s.Phase == PhaseActivating && (t == envelope.TypeContract || t == envelope.TypeNegotiation || t == envelope.TypeMoved)
	}
	return false
}

func (s *Service) expect(env *envelope.Envelope, ses Session, now time.Time) envelope.Expect {
	x := envelope.Expect{
		Self: env.To, Caller: env.From, Seq: ses.Seq + 1, Prev: ses.Head, Agreement: ses.AgreementDigest(), Now: now, Skew: s.cfg.Skew,
	}
	if env.Type != envelope.TypeMetaproto {
		x.KeyID = ses.signs(env.From)
	}
	return x
}

// outOfTurn: only a withdrawal may come out of turn. It names an envelope of this conversation as prev and a seq that its
// sender has not used; everything else is checked as always. Whether it is a withdrawal shows when it is opened.
func (s *Service) outOfTurn(ctx context.Context, err error, in *inbound, ses Session, now time.Time) bool {
	switch envelope.CodeOf(err) {
	case envelope.CodeOutOfOrder, envelope.CodeReplayed, envelope.CodeOutOfTurn:
	default:
		return false
	}
	if in.env.Type != envelope.TypeNegotiation && in.env.Type != envelope.TypeMoved || in.env.Seq <= ses.PeerSeq {
		return false
	}
	if _, err := s.ofConversation(ctx, ses, in.env.Prev); err != nil {
		return false
	}
	x := s.expect(in.env, ses, now)
	x.Seq, x.Prev = in.env.Seq, in.env.Prev
	return in.env.Check(x) == nil
}

// ofConversation returns an envelope of this conversation.
func (s *Service) ofConversation(ctx context.Context, ses Session, digest canon.Digest) (rec store.EnvelopeRecord, err error) {
	err = s.cfg.Store.View(ctx, func(tx store.Tx) error {
		rec, err = tx.GetEnvelope(ses.Self.String(), digest)
		if err == nil && (rec.Peer != ses.Peer.String() || rec.ContextID != ses.ContextID) {
			return store.ErrNotFound
		}
		return err
	})
	return rec, err
}

func (s *Service) open(ctx context.Context, in *inbound, ses Session) error {
	if in.env.Body != nil {
		ses.Meta.Agreement = nil // a round travels in the clear, whether it comes by itself or with a move
	}
	opener, with, err := s.opening(ctx, in.env, ses)
	if err != nil {
		return err
	}
	in.opened, err = envelope.Open(ctx, in.env, opener, with)
	return err
}

// read decodes the body strictly and checks that it speaks for its sender alone (invariant 2, C3).
func (s *Service) read(in *inbound, ses Session, onlyWithdraw bool, now time.Time) error {
	if err := s.moves(in, ses, now); err != nil {
		return err
	}
	peerRole := message.Vendor
	if ses.Role == message.Vendor {
		peerRole = message.Buyer
	}
	var err error
	var from string
	switch in.kind {
	case envelope.TypeMetaproto:
		if onlyWithdraw {
			return refuse(envelope.CodeOutOfTurn, "only a withdrawal may come out of turn")
		}
		return nil
	case envelope.TypeNegotiation:
		if in.body, err = message.Parse(in.content, peerRole); err == nil {
			from = in.body.From
		}
	case envelope.TypeContract:
		if in.step, err = message.ParseStep(in.content, peerRole); err == nil {
			from = in.step.From
		}
	case envelope.TypeNotice, envelope.TypeMoved:
		return refuse(envelope.CodeUnexpectedType, "%s messages are not part of a negotiation", in.kind)
	}
	if err != nil {
		return refuse(envelope.CodeMalformed, "%w", err)
	}
	if in.body != nil {
		if err := ses.checkVersion(in.body); err != nil {
			return err
		}
	}
	if from != in.env.From.String() {
		return refuse(envelope.CodeWrongSender, "the body speaks for %s", contract.Echo(from))
	}
	if onlyWithdraw && (in.body == nil || in.body.Intent != message.Withdraw) {
		return refuse(envelope.CodeOutOfTurn, "only a withdrawal may come out of turn")
	}
	return nil
}

// stands checks what may have changed since the conversation began: its deadline, the agreement's end and our floor, and
// whether the peer may still contract. None of it keeps anybody from ending the conversation, nor a buyer whose proof is
// out from learning what became of it. A proof that no longer counts gets a signed rejection.
func (s *Service) stands(in *inbound, ses Session, now time.Time) error {
	if ses.Role == message.Buyer && ses.Phase == PhaseActivating ||
		in.body != nil && (in.body.Intent == message.Withdraw || in.body.Intent == message.Reject) {
		return nil
	}
	err := s.usable(ses, now)
	if err == nil && in.kind != envelope.TypeMetaproto {
		err = s.mayContract(in.replyTo())
	}
	var r *envelope.Refusal
	if errors.As(err, &r) && in.step != nil && ses.Role == message.Vendor && ses.Phase == PhaseAccepted {
		if in.ending == nil {
			in.ending = &ending{string(r.Code), r.Reason + "; nothing is in force"}
		}
		return nil
	}
	return err
}

// usable says whether the conversation can still go on.
func (s *Service) usable(ses Session, now time.Time) error {
	if !now.Before(ses.Deadline) {
		return refuse(envelope.CodeConversationEnded, "there was no conclusion by %s", ses.Deadline.Format(time.RFC3339))
	}
	if a := ses.Agreement(); a != nil {
		if err := a.Usable(s.cfg.Meta().Floor, now); err != nil {
			return refuse(envelope.CodeNoAgreement, "the agreement no longer holds: %w", err)
		}
	}
	return nil
}

// equivocation keeps the proof that the peer signed two different messages for one place, and ends the conversation; but
// for a buyer whose proof is out, which decides nothing by itself. It returns the refusal when there is such a proof.
func (s *Service) equivocation(ctx context.Context, in *inbound, ses Session, now time.Time) error {
	var first store.EnvelopeRecord
	err := s.cfg.Store.View(ctx, func(tx store.Tx) error {
		all, err := tx.ListEnvelopes(ses.Self.String(), ses.Peer.String(), ses.ContextID)
		for _, rec := range all {
			if rec.Direction == store.In && rec.Seq == in.env.Seq && !rec.Digest.Equal(in.env.Digest()) {
				first = rec
			}
		}
		return err
	})
	if err != nil || first.Bytes == nil {
		return err
	}
	err = s.cfg.Store.Update(ctx, func(tx store.Tx) error {
		kept, err := tx.ListEquivocations(first.Own, first.Peer)
		if err != nil {
			return err
		}
		// One proof for a place is enough, and a thousand for a peer: it could sign any number of them.
		if len(kept) < store.MaxList && !slices.ContainsFunc(kept, func(q store.Equivocation) bool { return q.ContextID == first.ContextID && q.Seq == first.Seq }) {
			if err := tx.PutEquivocation(store.Equivocation{
				Own: first.Own, Peer: first.Peer, ContextID: first.ContextID, Seq: first.Seq, First: first.Bytes, Second: in.raw, Created: now,
			}); err != nil {
				return err
			}
		}
		conv, err := tx.GetConversation(first.Own, first.Peer, first.ContextID)
		if err != nil {
			return err
		}
		cur, err := decodeSession(conv)
		if err != nil || cur.Phase.Terminal() || cur.Phase == PhaseActivating {
			return err
		}
		next, fx := cur.Fail(string(envelope.CodeEquivocation), fmt.Sprintf("two different messages with seq %d; both are kept", first.Seq))
		if err := s.put(tx, &conv, next, now); err != nil {
			return err
		}
		return appendAll(tx, fx.Events)
	})
	if err != nil {
		return err
	}
	return refuse(envelope.CodeEquivocation, "another message of yours has seq %d; both are kept as proof, and the conversation is over", first.Seq)
}

// checkSettlement lets one message into a conversation that has ended: the buyer's proof, when it follows the vendor's draft
// and no contract came of it. It is answered with a signed rejection, so that the buyer, whom nobody's unsigned word may
// tell, knows that there is no contract. The state stays as it is (invariant 13).
func (s *Service) checkSettlement(ctx context.Context, in *inbound, ses Session, now time.Time) error {
	env, over := in.env, refuse(envelope.CodeConversationEnded, "the conversation has ended: %s", ses.Phase)
	if ses.Role != message.Vendor || ses.Phase == PhaseInForce || ses.Contract == nil || env.Type != envelope.TypeContract && env.Type != envelope.TypeMoved {
		return over
	}
	draft, err := s.ofConversation(ctx, ses, env.Prev)
	if errors.Is(err, store.ErrNotFound) || err == nil && (draft.Direction != store.Out || !draft.ReplyTo.Equal(ses.Transcript)) {
		return over
	}
	if err != nil {
		return err
	}
	x := s.expect(env, ses, now)
	x.Seq, x.Prev = draft.Seq+1, draft.Digest
	if err := env.Check(x); envelope.CodeOf(err) == envelope.CodeExpired {
		x.Now = env.Created()
		if err := env.Check(x); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := s.open(ctx, in, ses); errors.Is(err, errDestroyed) {
		return nil // its place says what it is, and nothing in it could change the answer
	} else if err != nil {
		return err
	}
	if err := s.read(in, ses, false, now); err != nil || in.step != nil {
		return err
	}
	return over
}

// settle answers it. The two envelopes are all that is added.
func (s *Service) settle(ctx context.Context, tx store.Tx, ses Session, in *inbound, now time.Time) ([]byte, error) {
	if _, err := tx.GetEnvelope(ses.Self.String(), in.env.Digest()); err == nil {
		return nil, refuse(envelope.CodeReplayed, "the message was answered before")
	} else if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	reason := "the conversation has ended: " + string(ses.Phase) + "; nothing is in force"
	d, err := ses.body(message.Body{Intent: message.Reject, Code: string(envelope.CodeConversationEnded), Reason: reason})
	if err != nil {
		return nil, err
	}
	at, _ := in.relocated(ses.received(in.env.Seq, in.env.Digest()), now)
	if err := s.speaks(tx, at); err != nil {
		return nil, err
	}
	env, opened, err := s.build(ctx, at, *d, in.replyTo(), now)
	if err != nil {
		return nil, err
	}
	if err := tx.PutEnvelope(in.record(ses, now)); err != nil {
		return nil, err
	}
	if err := tx.PutEnvelope(outgoing(ses, env, opened, in, canon.Digest{}, now)); err != nil {
		return nil, err
	}
	return env.Raw(), appendAll(tx, []ledger.Entry{refusalEntry(ses.Peer, in.env, &envelope.Refusal{Code: envelope.CodeConversationEnded, Reason: reason})})
}
