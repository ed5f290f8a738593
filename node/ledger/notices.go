// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/treaty-node/treaty/did/canon"

// Event types of notices and drills.
const (
	NoticeSent     = "notice.sent"     // decided, and in the outbox → [Notice]
	NoticeReceived = "notice.received" // verified, and answered → [NoticeReply]
	NoticeAnswered = "notice.answered" // the peer's signed answer is here → [NoticeReply]
	NoticeFailed   = "notice.failed"   // refused for good, or nobody answered in time → [NoticeReply]

	DrillStarted  = "drill.started"  // → [Drill]
	DrillStep     = "drill.step"     // → [DrillCheck]
	DrillFinished = "drill.finished" // → [DrillResult]
)

// Notice is the data of [NoticeSent]. ID is the sender's own.
type Notice struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

// NoticeReply is the data of [NoticeReceived], [NoticeAnswered] and [NoticeFailed]. ID is the sender's own, "" at the receiver.
type NoticeReply struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	OK   bool   `json:"ok"`
	Code string `json:"code"` // "" when ok
	Text string `json:"text"`
}

// Drill is the data of [DrillStarted]. Both nodes log it; By is the DID of the node whose keys it rotates.
type Drill struct {
	Drill string `json:"drill"` // id, the same at both nodes
	Kind  string `json:"kind"`
	Mode  string `json:"mode"` // live or rehearsal
	By    string `json:"by"`
}

// DrillCheck is the data of [DrillStep]: one promise, checked.
type DrillCheck struct {
	Drill    string `json:"drill"`
	Phase    string `json:"phase"`
	Check    string `json:"check"`
	OK       bool   `json:"ok"`
	Observed string `json:"observed"`
}

// DrillResult is the data of [DrillFinished]. Report is the digest of the report without its proofs; zero where none came
// to be.
type DrillResult struct {
	Drill  string       `json:"drill"`
	Kind   string       `json:"kind"`
	Passed int          `json:"passed"`
	Failed int          `json:"failed"`
	Report canon.Digest `json:"report"`
	Reason string       `json:"reason"` // why it ended early, "" otherwise
}

func (d *Notice) line(b *line, e *Event) {
	b.put("notice ", text(d.Kind), " to ", party(e.Peer))
}

func (d *NoticeReply) line(b *line, e *Event) {
	switch e.Type {
	case NoticeReceived:
		b.put("notice ", text(d.Kind), " from ", party(e.Peer))
	case NoticeAnswered:
		b.put("notice ", text(d.Kind), " answered by ", party(e.Peer))
	default:
		b.put("notice ", text(d.Kind), " to ", party(e.Peer), " was not answered")
	}
	if d.OK {
		b.put(": ok")
	} else {
		b.put(": ", text(d.Code))
	}
	b.when(d.Text != "", ", ", sentence(d.Text))
}

func (d *Drill) line(b *line, _ *Event) {
	b.put("drill started: ", text(d.Kind), ", ", text(d.Mode), ", keys of ", party(d.By), ", ", text(d.Drill))
}

func (d *DrillCheck) line(b *line, _ *Event) {
	result := "HELD"
	if !d.OK {
		result = "BROKEN"
	}
	b.put("drill, ", text(d.Phase), ": ", text(d.Check), ": ", result)
	b.when(d.Observed != "", ", observed ", sentence(d.Observed))
}

func (d *DrillResult) line(b *line, _ *Event) {
	b.put("drill finished: ", text(d.Kind), ", ", plural(int64(d.Passed), "promise", "promises"), " held, ", num(int64(d.Failed)), " broken")
	b.when(!d.Report.IsZero(), ", report ", short(d.Report))
	b.when(d.Reason != "", ", ended early: ", sentence(d.Reason))
}
