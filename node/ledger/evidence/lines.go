// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/ledger"
)

// A party that moved to another DID, before the contract, in the midst of it or afterwards, is in a bundle with the documents of
// each of its DIDs: the last one in force and the deactivated one that names the successor.

// Compromise is what the owner of a DID said: somebody else may have had its key since then.
type Compromise struct {
	DID   string `json:"did"`
	Since string `json:"since"` // RFC 3339
}

// line puts the documents of a party in order, from the first of its DIDs that is here to the last, and verifies the steps. A party
// that never moved has a line of one, in which every version of its document counts: see [verifier.with].
func (v *verifier) line(id did.DID) (*did.Line, error) {
	start, seen := id, map[did.DID]bool{id: true}
	for before, ok := v.predecessor(start); ok; before, ok = v.predecessor(start) {
		if seen[before] || len(seen) > did.MaxLine {
			return nil, errors.New("the steps lead in a circle, or too far")
		}
		start, seen[before] = before, true
	}
	var stations []did.Station
	var newest time.Time
	for at := start; ; {
		active, gone := v.versions(at)
		if active == nil && gone == nil || len(stations) >= did.MaxLine {
			return nil, fmt.Errorf("no valid document of %s is here", at)
		}
		for _, d := range []*did.Document{active, gone} {
			if d != nil && d.ProofCreated().After(newest) {
				newest = d.ProofCreated()
			}
		}
		if gone == nil {
			stations = append(stations, did.Station{Document: active})
			break
		}
		stations = append(stations, did.Station{Document: active, Gone: gone})
		at = gone.SuccessorDID()
	}
	if newest.Before(v.at) {
		newest = v.at
	}
	line, err := did.VerifyLine(stations, newest)
	if err == nil && !line.Moves() {
		err = fmt.Errorf("%w: %s is not enough", did.ErrSuccession, line.Assurance())
	}
	return line, err
}

// predecessor is the DID whose deactivated document names id.
func (v *verifier) predecessor(id did.DID) (did.DID, bool) {
	for before, docs := range v.documents {
		for _, d := range docs {
			if d.Deactivated() && d.SuccessorDID() == id {
				return before, true
			}
		}
	}
	return did.DID{}, false
}

// versions are the newest document of a DID that was in force, and the deactivated one that names a successor.
func (v *verifier) versions(id did.DID) (active, gone *did.Document) {
	for _, d := range v.documents[id] {
		switch {
		case d.Deactivated() && !d.SuccessorDID().IsZero():
			gone = d
		case !d.Deactivated() && (active == nil || d.ProofCreated().After(active.ProofCreated())):
			active = d
		}
	}
	return active, gone
}

// lines finds both parties' lines; a check for each that has moved.
func (v *verifier) lines() {
	for _, side := range []struct {
		name string
		id   did.DID
		line **did.Line
	}{{"buyer", v.buyer, &v.buyers}, {"vendor", v.vendor, &v.vendors}} {
		if v.c == nil || len(v.documents[side.id]) == 0 {
			continue // said by another check
		}
		line, err := v.line(side.id)
		if *side.line = line; err == nil && len(line.Stations()) == 1 {
			continue
		}
		var steps []string
		for _, s := range line.Stations() {
			steps = append(steps, s.ID().String())
		}
		v.add(side.name+"'s successions", err, "%s (%s)", strings.Join(steps, " → "), line.Assurance())
	}
}

// is says whether an id is a party's: its DID in the contract, or another one of its line.
func is(line *did.Line, party, id did.DID) bool {
	if id == party {
		return true
	}
	_, ok := line.Of(id)
	return ok
}

func (v *verifier) isBuyer(id did.DID) bool  { return is(v.buyers, v.buyer, id) }
func (v *verifier) isVendor(id did.DID) bool { return is(v.vendors, v.vendor, id) }

// inUse refuses what a DID has signed after it had a successor.
func (v *verifier) inUse(id did.DID, at time.Time) error {
	for _, line := range []*did.Line{v.buyers, v.vendors} {
		if s, ok := line.Of(id); ok && !s.Signs(at) {
			return fmt.Errorf("signed by %s at %s, which had a successor since %s", id, at.Format(time.RFC3339), s.Ended().Format(time.RFC3339))
		}
	}
	return nil
}

// said is what a message is, or carries when it is a move, as far as its content is known.
func (v *verifier) said(e *envelope.Envelope) (envelope.Type, []byte, bool) {
	body, known := v.bodies[e.Digest()]
	if e.Type != envelope.TypeMoved {
		return e.Type, body, known
	}
	if !known {
		return e.Type, nil, false
	}
	// The members that matter here; the rest is the business of the negotiation.
	var m struct {
		Carries string          `json:"carries"`
		Body    json.RawMessage `json:"body"`
	}
	if err := canon.UnmarshalOpen(body, &m, canon.Limits{MaxBytes: envelope.MaxBytes, MaxDepth: maxDepth}); err != nil {
		return e.Type, nil, false
	}
	return envelope.Type(m.Carries), m.Body, true
}

// versionsOf runs f with the lines of a party: the one that has moved, or each version of the document of one that has not.
func (v *verifier) versionsOf(line *did.Line, party did.DID, f func(*did.Line) error) error {
	if len(line.Stations()) > 1 {
		return f(line)
	}
	return v.with(party, func(doc *did.Document) error { return f(did.Alone(doc)) })
}

// suspect holds what was first logged here against the times from which a party's key may have been somebody else's. What it finds
// is not wrong by itself: an auditor has to judge it.
func (v *verifier) suspect() {
	const name = "signed while nobody else had the key"
	if len(v.b.Compromised) == 0 {
		return
	}
	var found []string
	for _, c := range v.b.Compromised {
		since, err := time.Parse(time.RFC3339, c.Since)
		id, idErr := did.Parse(c.DID)
		if err != nil || idErr != nil || !v.isBuyer(id) && !v.isVendor(id) {
			v.add(name, fmt.Errorf("a statement about %.200q at %.40q", c.DID, c.Since), "")
			return
		}
		for _, e := range v.chain {
			if e.From == id && !v.firstLogged(e.Created()).Before(since) {
				found = append(found, fmt.Sprintf("message %d of %s", e.Seq, e.CreatedAt))
			}
		}
		if v.c == nil || v.activation == nil {
			continue
		}
		for _, p := range append(v.c.Proofs[:len(v.c.Proofs):len(v.c.Proofs)], v.activation.Proof) {
			if signer, _, err := did.SplitKeyID(p.VerificationMethod); err == nil && signer == id && !v.firstLogged(v.at).Before(since) {
				found = append(found, "the contract, first logged at "+v.firstLogged(v.at).Format(time.RFC3339))
				break
			}
		}
	}
	if len(found) > 0 {
		v.report.Checks = append(v.report.Checks, Check{Name: name, Status: Suspect, Detail: strings.Join(found, "; ")})
		return
	}
	v.add(name, nil, "%d keys were lost later", len(v.b.Compromised))
}

// firstLogged is when the log here first tells of the contract, or the time given where it does not: the signer's own word.
func (v *verifier) firstLogged(at time.Time) time.Time {
	if !at.Equal(v.at) || v.c == nil {
		return at
	}
	for _, l := range v.b.Events {
		if l.Event != nil && l.Event.Type == ledger.ContractActivated && l.Event.Contract == v.c.ID {
			if t, err := time.Parse(time.RFC3339, l.Event.Time); err == nil {
				return t
			}
		}
	}
	return at
}

// recovered verifies a deactivated document that a recovery key has signed, with the versions of it that are here.
func (v *verifier) recovered(doc *did.Document, at time.Time) error {
	err := errors.New("no version that lists the recovery key is here")
	for _, text := range v.b.Documents {
		earlier, parseErr := did.ParseDocument([]byte(text))
		if parseErr != nil || earlier.ID() != doc.ID() || earlier.Deactivated() {
			continue
		}
		if _, err = earlier.Verify(at); err == nil {
			if _, err = doc.VerifyRecovery(earlier, at); err == nil {
				return nil
			}
		}
	}
	return err
}
