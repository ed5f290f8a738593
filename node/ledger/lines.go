// SPDX-License-Identifier: Apache-2.0

package ledger

import "fmt"

func (d *Started) line(b *line, e *Event) {
	b.put(text(e.Process), " started, build ", text(d.Build))
}

func (d *Resolved) line(b *line, _ *Event) {
	b.put("DID resolved: ", text(d.DID), " from ", text(d.URL))
}

func (d *Verified) line(b *line, _ *Event) {
	b.put("DID verified: ", party(d.DID), " (profile ", text(d.Profile), ", document proof by ", fragment(d.KeyID))
	b.when(d.Dialect != "", ", dialect ", text(d.Dialect))
	b.put(")")
}

func (d *DIDRefusal) line(b *line, _ *Event) {
	b.put("DID refused: ", text(d.DID), ": ", text(d.Reason))
}

func (d *Succession) line(b *line, _ *Event) {
	b.put("DID succeeded: ", text(d.Old), " is now ", text(d.New), " (", text(d.Assurance), ")")
	b.when(d.Overruled != "", ", which overrules ", text(d.Overruled))
}

func (d *SuccessionRefusal) line(b *line, _ *Event) {
	b.put("succession refused: from ", text(d.From), " at ", text(d.At), ": ", text(d.Code), ": ", text(d.Reason))
}

func (d *Compromise) line(b *line, _ *Event) {
	b.put("key compromised: of ", text(d.DID), ", since ", text(d.Since), " by its owner's word")
}

func (d *ConversationMove) line(b *line, _ *Event) {
	b.put("negotiation moved: the ", text(d.Side), " ", text(d.Old), " is now ", text(d.New), ", from message ", num(d.Seq), " on")
}

func (d *Card) line(b *line, _ *Event) {
	b.put("agent card verified: ", quoted(d.Name), " at ", text(d.URL), ", signed by ", fragment(d.KID))
}

func (d *Round) line(b *line, e *Event) {
	b.put("meta-protocol round ", num(int64(d.Round)), way(e, MetaprotoSent), ": ", text(d.Status))
	b.when(len(d.Candidates) > 0, ", ", plural(int64(len(d.Candidates)), "candidate", "candidates"), " (", list(d.Candidates, "; ", text), ")")
	b.when(d.Summary != "", ", says ", quoted(d.Summary))
}

func (d *Agreement) line(b *line, _ *Event) {
	b.put("meta-protocol agreed after ", plural(int64(d.Rounds), "round", "rounds"), ": contract schema ", text(d.ContractSchema),
		", sealing ", text(d.Suite))
	b.when(d.SessionKeys != "", ", session keys ", text(d.SessionKeys))
	b.put(", transport ", text(d.Transport), ", data plane ", text(d.DataPlane), ", agreement ", short(d.Digest))
}

func (d *Proposal) line(b *line, e *Event) {
	b.put("proposal", way(e, ProposalSent), ": columns ", list(d.Columns, ", ", text), "; operations ", list(d.Operations, ", ", text),
		"; purpose ", text(d.Purpose), "; retention ", days(d.RetentionDays))
	b.when(d.Rationale != "", "; says ", quoted(d.Rationale))
}

// line tells first what became of the columns, then the terms, each with what was asked where that was more.
func (d *Offer) line(b *line, e *Event) {
	verb := " made: "
	if e.Type == OfferReceived {
		verb = " received: "
	}
	var gone, changed []string
	for i := range d.Removed {
		r := &d.Removed[i]
		if column := r.column(); column != "" {
			gone = append(gone, text(column)+": "+r.reason())
			continue
		}
		changed = append(changed, r.change()+": "+r.reason())
	}
	b.put("offer", verb)
	if len(gone) > 0 {
		fmt.Fprintf(b, "%d of %s (removed %s)", len(d.Columns), plural(int64(len(d.Columns)+len(gone)), "column", "columns"), list(gone, "; ", asIs))
	} else {
		b.put(plural(int64(len(d.Columns)), "column", "columns"), " as asked")
	}
	b.put(": ", list(d.Columns, ", ", text), "; operations ", list(d.Operations, ", ", text), "; retention ", days(d.RetentionDays))
	b.when(d.MinGroupSize > 1, "; groups of at least ", num(int64(d.MinGroupSize)))
	b.put("; at most ", plural(d.CallBudget, "call", "calls"))
	b.when(len(changed) > 0, "; narrowed ", list(changed, "; ", asIs))
	b.put("; stands until ", text(d.ExpiresAt), "; offer ", short(d.Digest))
}

// column is the name of the column that r took away, "" when r is about something else.
func (r *Removal) column() string {
	if r.What == "column" && r.Offered == "" {
		return r.Asked
	}
	return ""
}

// change says what became of a term that is not a column.
func (r *Removal) change() string {
	what, known := terms[r.What]
	if !known {
		what = text(r.What)
	}
	switch {
	case r.Offered == "":
		return what + " " + call(r.Asked) + " removed"
	case r.Asked == "":
		return what + " set to " + call(r.Offered)
	default:
		return what + " from " + call(r.Asked) + " to " + call(r.Offered)
	}
}

// terms are the names of a scope's members in words.
var terms = map[string]string{
	"rowFilter": "row filter", "retentionDays": "retention days", "minGroupSize": "minimum group size", "callBudget": "call budget",
}

func (r *Removal) reason() string {
	if r.Why != "" {
		return text(r.Why)
	}
	return "rule " + text(r.Rule)
}

func (d *Accept) line(b *line, e *Event) {
	b.put("accept", way(e, AcceptSent), ": exactly offer ", short(d.OfferDigest))
}

func (d *Question) line(b *line, _ *Event) {
	b.put("model ", text(d.Model), " asked, prompt ", short(d.PromptDigest))
	b.when(d.Attempt > 1, ", attempt ", num(int64(d.Attempt)))
}

func (d *ModelAnswer) line(b *line, _ *Event) {
	b.put("model ", text(d.Model), " ")
	if d.Error == "" {
		b.put("answered, ", short(d.AnswerDigest))
	} else {
		b.put("gave no usable answer: ", text(d.Error))
	}
	b.put(", ", plural(d.PromptTokens+d.CompletionTokens, "token", "tokens"))
}

func (d *Narrowing) line(b *line, _ *Event) {
	lines := make([]string, 0, len(d.Removed))
	for i := range d.Removed {
		r := &d.Removed[i]
		lines = append(lines, r.change()+" ("+r.reason()+")")
	}
	b.put("model overruled: ", list(lines, "; ", asIs))
}

func (d *MessageRefusal) line(b *line, e *Event) {
	b.put("message refused: ", text(d.Code), ": ", text(d.Reason))
	b.when(d.Type != "", ", message type ", text(d.Type))
	b.when(d.Seq > 0, ", seq ", num(d.Seq))
	b.when(e.Peer != "", ", from ", party(e.Peer))
}

func (d *Ended) line(b *line, _ *Event) {
	b.put("negotiation ended: ", text(d.Outcome))
	b.when(d.Code != "", ", ", text(d.Code))
	b.when(d.Reason != "", ": ", text(d.Reason))
}

func (d *Withdrawn) line(b *line, _ *Event) {
	b.put("negotiation withdrawn by ", party(d.By))
	b.when(d.Reason != "", ": ", text(d.Reason))
}

func (d *Reopening) line(b *line, e *Event) {
	if e.Context == d.From {
		b.put("negotiation taken up again, in ", text(d.To))
	} else {
		b.put("negotiation takes up the need of ", text(d.From))
	}
	b.put(", time ", num(int64(d.Attempt)), ": ", text(d.Code))
	b.when(d.Reason != "", ": ", text(d.Reason))
}

func (d *Built) line(b *line, e *Event) {
	b.put("contract built from the transcript: ", text(e.Contract), ", ", short(d.Digest))
}

func (d *ProofAdded) line(b *line, e *Event) {
	b.put("contract proof by ", party(d.By))
	b.when(e.Peer != "" && e.Peer == d.By, " (the other party)")
	b.put(", key ", fragment(d.KeyID), ", over ", short(d.Digest))
}

func (d *Activated) line(b *line, e *Event) {
	b.put("contract activated: ", text(e.Contract), " at ", text(d.ActivatedAt), ", ", short(d.Digest))
}

func (d *InForce) line(b *line, e *Event) {
	b.put("contract in force: ", text(e.Contract), ", dataset ", text(d.Dataset), ", purpose ", text(d.Purpose),
		", until ", text(d.ValidUntil), ", both proofs hold")
}

func (d *Revocation) line(b *line, e *Event) {
	b.put("contract revoked: ", text(e.Contract), " by ", party(d.By), " at ", text(d.RevokedAt), ": ", text(d.Reason))
	b.when(d.Replaced != "", ", in force instead: ", text(d.Replaced))
	b.when(!d.Effective, " (it had ended before)")
}

func (d *Replacement) line(b *line, e *Event) {
	b.put("contract replaced: ", text(e.Contract), ", in force instead: ", text(d.By), ", ", short(d.Digest))
}

func (d *Acknowledgement) line(b *line, e *Event) {
	b.put("acknowledged by ", party(d.By), ": ", short(d.Statement), " about ", text(e.Contract), ", ", text(d.Outcome), " at ", text(d.At))
}

func (d *Deletion) line(b *line, e *Event) {
	if e.Type == DataDeleted {
		b.put("data deleted: ")
	} else {
		b.put("deletion statement of ", party(d.By), ": ")
	}
	b.put(plural(int64(d.Results), "result", "results"), " of ", plural(int64(d.Receipts), "receipt", "receipts"),
		" under ", text(e.Contract), " at ", text(d.DeletedAt), ", ", text(d.Reason), ", ", short(d.Statement))
}

func (d *Query) line(b *line, _ *Event) {
	b.put("query sent: ", list(d.Aggregates, ", ", call), " over ", text(d.Dataset))
	b.when(len(d.GroupBy) > 0, " by ", list(d.GroupBy, ", ", text))
	b.when(len(d.Filters) > 0, " where ", list(d.Filters, ", ", text))
	b.put(", purpose ", text(d.Purpose))
}

func (d *Answer) line(b *line, _ *Event) {
	b.put("query answered: ", plural(d.Rows, "row", "rows"), " from ", used(d.UsedRows, d.TotalRows),
		", result ", short(d.ResultDigest), ", receipt ", text(d.Receipt))
}

func (d *QueryRefusal) line(b *line, _ *Event) {
	b.put("query refused: ", refusal(d.Code, d.Text))
}

func (d *QueryFailure) line(b *line, _ *Event) {
	b.put("query failed: ", text(d.Error))
}

func (d *Call) line(b *line, _ *Event) {
	b.put("call answered: ", plural(d.Rows, "row", "rows"), " from ", used(d.UsedRows, d.TotalRows), " to ", party(d.Caller),
		", query ", short(d.QueryDigest), ", result ", short(d.ResultDigest))
}

func (d *CallRefusal) line(b *line, _ *Event) {
	b.put("call refused: ", refusal(d.Code, d.Text), ", caller ", party(d.Caller))
}

func (d *Imported) line(b *line, _ *Event) {
	b.put("dataset imported: ", text(d.Dataset), ", ", plural(d.Rows, "row", "rows"), " of ", plural(int64(d.Columns), "column", "columns"))
}

func (d *TrustChange) line(b *line, _ *Event) {
	what, known := trustActions[d.Action]
	if !known {
		what = text(d.Action)
	}
	b.put("trust policy: operator ", what, " ", text(d.Pattern))
}

var trustActions = map[string]string{"allow": "allows", "deny": "denies", "forget": "dropped the change for"}

func (d *KeyConfirmation) line(b *line, _ *Event) {
	b.put("changed keys confirmed by the operator: ", text(d.DID), ", document ", short(d.Hash))
}

func (d *Rotation) line(b *line, _ *Event) {
	b.put("key rotated: ", text(d.Role), " key ", text(d.KeyID))
	b.when(len(d.Previous) > 0, " instead of ", list(d.Previous, ", ", text), ", which ends at ", text(d.Until))
	b.put(", document ", short(d.Hash))
}

func (d *Retirement) line(b *line, _ *Event) {
	b.put("key retired: ", text(d.Role), " key ", text(d.KeyID), ", document ", short(d.Hash))
}

func (d *Move) line(b *line, _ *Event) {
	b.put("identity moved: ", text(d.Old), " is now ", text(d.New), " (", text(d.Assurance), "), document ", short(d.NewHash))
	b.when(d.CompromisedSince != "", "; somebody else may have had the old key since ", text(d.CompromisedSince))
}

// way is " sent" or " received".
func way(e *Event, sent string) string {
	if e.Type == sent {
		return " sent"
	}
	return " received"
}

func used(n, of int64) string { return num(n) + " of " + plural(of, "row", "rows") }

// asIs is for items that are lines already.
func asIs(s string) string { return s }

func (d *Delegation) line(b *line, _ *Event) {
	b.put("question handed on")
	b.when(d.From != "", " for ", text(d.From))
	b.when(d.Skill != "", ", skill ", text(d.Skill))
	for i := range min(len(d.Agents), len(d.Outcomes)) {
		b.put(", ", party(d.Agents[i]), " ", text(d.Outcomes[i]))
	}
}
