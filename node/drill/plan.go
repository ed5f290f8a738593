// SPDX-License-Identifier: Apache-2.0

package drill

import "time"

// Kind says which keys a drill rotates.
type Kind string

// Kinds.
const (
	KeyAgreement Kind = "key-agreement"
	Signing      Kind = "signing"
	Binding      Kind = "binding"
	Compromise   Kind = "compromise" // of the binding key: no grace
	Recovery     Kind = "recovery"   // of the binding key, by a recovery key: the binding key is lost
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{KeyAgreement, Signing, Binding, Compromise, Recovery} }

// Moves says whether the identity goes on under another DID.
func (k Kind) Moves() bool { return k == Binding || k == Compromise || k == Recovery }

// Mode says whose keys they are.
type Mode string

// Modes.
const (
	Live      Mode = "live"      // those of the node itself
	Rehearsal Mode = "rehearsal" // those of an identity that is made for the drill and ends with it
)

// Phase of a drill.
type Phase string

// Phases. Whole is for what is seen only at the end.
const (
	Before Phase = "before"
	Grace  Phase = "during-grace"
	After  Phase = "after-grace"
	Whole  Phase = "whole"
)

// Side of a drill.
type Side string

// Sides.
const (
	Subject      Side = "subject"      // whose keys rotate
	Counterparty Side = "counterparty" //
)

// Names of promises.
const (
	DocumentSeen      = "document-seen"
	MessageOpened     = "message-opened"
	InFlightOpened    = "in-flight-opened"
	InFlightRefused   = "in-flight-refused"
	OldKeyOpened      = "old-key-opened"
	OldKeyRefused     = "old-key-refused"
	NewKeyOpened      = "new-key-opened"
	SignatureAccepted = "signature-accepted"
	OldSignature      = "old-signature-accepted"
	OldSignatureGone  = "old-signature-refused"
	NewSignature      = "new-signature-accepted"
	Followed          = "succession-followed"
	CacheEvicted      = "cache-evicted"
	GrantedQuery      = "granted-query-answered"
	OutOfScope        = "out-of-scope-refused"
	NothingLost       = "nothing-lost"
)

// texts say what each promise is.
var texts = map[string]string{
	DocumentSeen:      "the counterparty sees the document that the subject publishes",
	MessageOpened:     "a message sealed to the subject's key is opened",
	InFlightOpened:    "a message that was sealed to the old key before the rotation, and arrives after it, is opened",
	InFlightRefused:   "a message that was sealed to the old key before the rotation is refused with KEY_RETIRED: somebody else may open it too",
	OldKeyOpened:      "a message sealed to the old key, by who has not seen the new document yet, is opened",
	OldKeyRefused:     "a message sealed to the old key is refused with KEY_RETIRED",
	NewKeyOpened:      "a message sealed to the new key is opened",
	SignatureAccepted: "a request signed with the key in use is accepted",
	OldSignature:      "a request signed with the old key is accepted",
	OldSignatureGone:  "a request signed with the old key is refused",
	NewSignature:      "a request signed with the new key is accepted",
	Followed:          "the counterparty follows the succession, hop by hop, to the new DID",
	CacheEvicted:      "the counterparty has dropped the old document from its cache without being asked",
	GrantedQuery:      "a query that the contract grants is answered",
	OutOfScope:        "a query that the contract does not grant is refused with SCOPE_DENIED",
	NothingLost:       "no request was lost: each got its right answer, after the protocol's own repetitions",
}

// Text says what the promise of that name is, "" for a name that is none.
func Text(name string) string { return texts[name] }

// Terms are what both nodes have agreed to.
type Terms struct {
	Kind  Kind          `json:"kind"`
	Mode  Mode          `json:"mode"`
	Grace time.Duration `json:"-"` // of the drill's own messages
	// Buyer is who asks under the contract between the two; "" without one.
	Buyer Side `json:"buyer"`
	// Load is the number of queries a second that the buyer puts under the whole drill; 0: none.
	Load int `json:"load"`
}

// Promise is one thing that has to be seen.
type Promise struct {
	Phase Phase
	Name  string
	Side  Side
	// NotHere says why it is not looked at in a drill of this kind and mode; "" when it is.
	NotHere string
}

// Why something is not looked at.
const (
	realGrace  = "the grace of real keys is not shortened; a rehearsal checks this"
	realNotice = "the notice of a compromise is sent for the node's own identity only; a live drill checks this"
)

// Plan lists the promises in the order in which they are checked.
func Plan(t Terms) []Promise {
	var list []Promise
	add := func(phase Phase, side Side, names ...string) {
		for _, name := range names {
			list = append(list, Promise{Phase: phase, Name: name, Side: side})
		}
	}
	queries := func(phase Phase) {
		if t.Buyer != "" {
			add(phase, t.Buyer, GrantedQuery, OutOfScope)
		}
	}
	add(Before, Counterparty, DocumentSeen, MessageOpened)
	add(Before, Subject, SignatureAccepted)
	queries(Before)

	switch t.Kind {
	case Compromise:
		// First, because looking for the successor would drop the old document anyway.
		add(Grace, Counterparty, CacheEvicted, Followed, DocumentSeen, InFlightRefused, NewKeyOpened)
	case Binding, Recovery:
		add(Grace, Counterparty, Followed, DocumentSeen, InFlightOpened, NewKeyOpened)
	case KeyAgreement:
		add(Grace, Counterparty, DocumentSeen, InFlightOpened, OldKeyOpened, NewKeyOpened)
	case Signing:
		add(Grace, Counterparty, DocumentSeen, NewKeyOpened)
	}
	switch {
	case t.Kind.Moves():
		add(Grace, Subject, OldSignatureGone, NewSignature)
	case t.Kind == Signing:
		add(Grace, Subject, OldSignature, NewSignature)
	default:
		add(Grace, Subject, SignatureAccepted)
	}
	queries(Grace)

	add(After, Counterparty, DocumentSeen)
	if t.Kind != Signing {
		add(After, Counterparty, OldKeyRefused)
	}
	add(After, Counterparty, NewKeyOpened)
	if t.Kind == Signing || t.Kind.Moves() {
		add(After, Subject, OldSignatureGone, NewSignature)
	} else {
		add(After, Subject, SignatureAccepted)
	}
	queries(After)
	if t.Load > 0 && t.Buyer != "" {
		add(Whole, t.Buyer, NothingLost)
	}
	for i := range list {
		switch p := &list[i]; {
		case t.Kind == Signing && t.Mode == Live && p.Phase == After && p.Name == OldSignatureGone:
			p.NotHere = realGrace
		case t.Mode == Rehearsal && p.Name == CacheEvicted:
			p.NotHere = realNotice
		}
	}
	return list
}

// Of returns the promises of one phase that one side looks at.
func Of(plan []Promise, phase Phase, side Side) (out []Promise) {
	for _, p := range plan {
		if p.Phase == phase && p.Side == side && p.NotHere == "" {
			out = append(out, p)
		}
	}
	return out
}

// Proves says in words what a drill with these terms shows and what it does not.
func Proves(t Terms) string {
	if t.Mode == Live {
		s := "The node's own keys were rotated by the code that rotates them in earnest, and the counterparty's node and, where there is a contract, its data plane met the result over the real wire."
		if t.Kind == KeyAgreement || t.Kind == Binding {
			s += " The grace of real traffic is the node's rotation.grace; the shorter one was for this drill's own messages, which are told by their contextId."
		}
		return s
	}
	return "An identity made for the drill, with keys, DID documents and a path of its own under the node's domain, was rotated. The counterparty resolved, verified, pinned and followed it over the real wire as it does any other. " +
		"The code by which the node stores and publishes its own keys was not used, and no contract was made under that identity: queries ran under the node's own, which the drill did not touch."
}
