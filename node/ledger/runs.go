// SPDX-License-Identifier: Apache-2.0

package ledger

// Phase is where a negotiation stands. The last five are final.
type Phase string

// Phases.
const (
	PhaseTalking    Phase = "talking"    // meta-protocol rounds
	PhaseAgreed     Phase = "agreed"     // meta-protocol agreement
	PhaseProposed   Phase = "proposed"   // the buyer's proposal stands
	PhaseOffered    Phase = "offered"    // the vendor's offer stands
	PhaseAccepted   Phase = "accepted"   // the offer was accepted
	PhaseConcluding Phase = "concluding" // contract built, proofs under way
	PhaseInForce    Phase = "in_force"
	PhaseRejected   Phase = "rejected"
	PhaseWithdrawn  Phase = "withdrawn"
	PhaseExpired    Phase = "expired"
	PhaseFailed     Phase = "failed"
)

// Final says whether nothing can follow.
func (p Phase) Final() bool {
	switch p {
	case PhaseInForce, PhaseRejected, PhaseWithdrawn, PhaseExpired, PhaseFailed:
		return true
	default:
		return false
	}
}

// Run is one negotiation as the log tells it.
type Run struct {
	Context  string   `json:"contextId"`
	Peer     string   `json:"peer"`
	Role     string   `json:"role,omitempty"` // "buyer" or "vendor", "" until an event shows it
	Phase    Phase    `json:"phase"`
	Contract string   `json:"contract,omitempty"`
	Reason   string   `json:"reason,omitempty"` // of an end without contract
	Started  string   `json:"started"`          // time of the first event
	Updated  string   `json:"updated"`          // time of the last event
	Last     uint64   `json:"lastEvent"`
	Events   []uint64 `json:"events"` // sequence numbers of every event this row was derived from
}

// Runs folds events, in order, into negotiations, in order of their first event. It is a pure function of the events: two
// who hold the same log see the same runs. A final phase is not left, whatever follows (invariant 13).
func Runs(events []Event) []Run {
	type key struct{ peer, context string }
	index := map[key]int{}
	runs := []Run{}
	for i := range events {
		e := &events[i]
		if e.Context == "" || e.Peer == "" {
			continue
		}
		k := key{e.Peer, e.Context}
		at, seen := index[k]
		if !seen {
			if !opens(e.Type) {
				continue // a refused message of a stranger starts no negotiation
			}
			at = len(runs)
			index[k] = at
			runs = append(runs, Run{Context: e.Context, Peer: e.Peer, Phase: PhaseTalking, Started: e.Time})
		}
		runs[at].apply(e)
	}
	return runs
}

// opens says whether an event of this type can be a negotiation's first.
func opens(typ string) bool {
	switch typ {
	case NegotiationReopened, MetaprotoSent, MetaprotoReceived, MetaprotoAgreed, ProposalSent, ProposalReceived:
		return true
	default:
		return false
	}
}

func (r *Run) apply(e *Event) {
	r.Events = append(r.Events, e.Seq)
	r.Last, r.Updated = e.Seq, e.Time
	if r.Role == "" {
		r.Role = roleOf(e.Type)
	}
	if r.Phase.Final() {
		return
	}
	if e.Contract != "" {
		r.Contract = e.Contract
	}
	switch e.Type {
	case MetaprotoAgreed:
		r.Phase = PhaseAgreed
	case ProposalSent, ProposalReceived:
		r.Phase = PhaseProposed
	case OfferMade, OfferReceived:
		r.Phase = PhaseOffered
	case AcceptSent, AcceptReceived:
		r.Phase = PhaseAccepted
	case ContractBuilt, ContractProof, ContractActivated:
		r.Phase = PhaseConcluding
	case ContractInForce:
		r.Phase = PhaseInForce
	case NegotiationWithdrawn:
		var d Withdrawn
		if e.Decode(&d) == nil {
			r.Reason = d.Reason
		}
		r.Phase = PhaseWithdrawn
	case NegotiationEnded:
		var d Ended
		if e.Decode(&d) == nil {
			r.Reason = d.Reason
		}
		r.Phase = endedAs(d.Outcome)
	}
}

// endedAs fails closed: an outcome that is not known, or "agreed" without a contract in force before it, is a failure.
func endedAs(outcome string) Phase {
	switch p := Phase(outcome); p {
	case PhaseRejected, PhaseWithdrawn, PhaseExpired:
		return p
	default:
		return PhaseFailed
	}
}

// roleOf tells the role from what only one side does.
func roleOf(typ string) string {
	switch typ {
	case ProposalSent, OfferReceived, AcceptSent, MetaprotoSent, NegotiationReopened:
		return "buyer" // the buyer speaks first
	case ProposalReceived, OfferMade, AcceptReceived, MetaprotoReceived:
		return "vendor"
	default:
		return ""
	}
}
