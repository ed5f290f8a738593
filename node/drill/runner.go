// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/internal/clock"
)

// Proposal is what the subject's node asks the counterparty's to agree to.
type Proposal struct {
	Drill        string `json:"drill"`
	Terms        Terms  `json:"terms"`
	GraceSeconds int    `json:"graceSeconds"`
	Identity     string `json:"identity"` // DID whose keys rotate
	Contract     string `json:"contract"` // under which the buyer asks; "" for none
}

// Step tells the counterparty that a phase has begun and what there is to see.
type Step struct {
	Drill    string `json:"drill"`
	Phase    Phase  `json:"phase"`
	Identity string `json:"identity"` // DID in use now
	Previous string `json:"previous"` // DID before the rotation; the same when it did not move
	Document string `json:"document"` // hash of Identity's document, as digests are written
	OldKey   string `json:"oldKey"`   // id of the key-agreement key before the rotation
	NewKey   string `json:"newKey"`   // and after it; the same when that was not rotated
}

// Rotating is the identity whose keys rotate.
type Rotating interface {
	Document() *did.Document // as published now
	KeyAgreement() string    // id of the key that peers seal to now
	Rotate(ctx context.Context) error
	// Call makes a request of the counterparty, signed with the key from before the rotation or the one in use. nil: it was
	// accepted; a [*Refused]: it was not; else nobody decided.
	Call(ctx context.Context, old bool) error
	// EndGrace makes it the end of the grace for messages of the drill, and returns when it is.
	EndGrace(ctx context.Context) error
}

// Refused is the counterparty's no to a request.
type Refused struct{ Code string }

func (r *Refused) Error() string { return "refused: " + r.Code }

// Peer is the counterparty's node.
type Peer interface {
	Propose(ctx context.Context, p Proposal) error
	Observe(ctx context.Context, s Step) (*Observations, error)
	// Countersign returns the report with the counterparty's proof and document.
	Countersign(ctx context.Context, r *Report) (*Report, error)
}

// Buyer asks under the contract between the two.
type Buyer interface {
	Granted(ctx context.Context) error    // nil: the right answer; ErrAgain: nobody decided
	OutOfScope(ctx context.Context) error // nil: refused with SCOPE_DENIED
}

// Runner goes through a drill on the subject's side.
type Runner struct {
	Proposal Proposal
	Grace    time.Duration
	Rotating Rotating
	Peer     Peer
	Buyer    Buyer // nil when the subject is not the buyer
	Now      func() time.Time
	// Step is told of each check as it is made; nil: nobody is.
	Step func(ctx context.Context, c Check)
	// Dwell is how long a phase lasts at least, so that there is something to measure.
	Dwell time.Duration
}

// Run proposes the drill and goes through it. An error means that it could not be gone through; what was seen until then is lost.
// The report is not signed yet.
func (r *Runner) Run(ctx context.Context) (*Report, error) {
	t := r.Proposal.Terms
	if err := t.Check(); err != nil {
		return nil, err
	}
	if err := r.Peer.Propose(ctx, r.Proposal); err != nil {
		return nil, err
	}
	rep := &Report{
		Type: ReportType, Version: 1, ID: r.Proposal.Drill, Terms: t, GraceSeconds: r.Proposal.GraceSeconds, Proves: Proves(t), Identity: r.Proposal.Identity,
		Contract: r.Proposal.Contract, Timeline: []Moment{}, Checks: []Check{}, Documents: []string{},
	}
	seen := map[Phase]map[string]Check{Before: {}, Grace: {}, After: {}, Whole: {}}
	mark := func(what string) {
		if len(rep.Timeline) < MaxTimeline {
			rep.Timeline = append(rep.Timeline, Moment{At: Stamp(r.Now()), Side: Subject, What: what})
		}
	}
	mark("the counterparty has agreed")
	var load *Load
	if t.Load > 0 && r.Buyer != nil {
		load = NewLoad(t.Load, 0, r.Buyer.Granted)
		load.Start(ctx)
		defer load.stop()
		mark(fmt.Sprintf("load of %d queries a second began", t.Load))
	}
	plan := Plan(t)
	step := Step{Drill: r.Proposal.Drill}
	phase := func(p Phase) error {
		began := r.Now()
		if load != nil {
			load.Enter(p)
		}
		doc := r.Rotating.Document()
		step.Phase, step.Identity, step.Document, step.NewKey = p, doc.ID().String(), doc.Hash().String(), r.Rotating.KeyAgreement()
		if p == Before {
			step.Previous, step.OldKey = step.Identity, step.NewKey
		}
		o, err := r.Peer.Observe(ctx, step)
		if err != nil {
			return fmt.Errorf("%s: the counterparty's observations: %w", p, err)
		}
		for _, c := range o.Checks {
			if c.Phase != p || c.Side != Counterparty {
				continue // it speaks for itself, and about this phase
			}
			seen[p][c.Name] = c
			r.tell(ctx, c)
		}
		if o.Load != nil && t.Load > 0 && t.Buyer == Counterparty {
			rep.Load = o.Load
		}
		for _, pr := range Of(plan, p, Subject) {
			c := r.look(ctx, pr)
			seen[p][pr.Name] = c
			r.tell(ctx, c)
		}
		mark("phase " + string(p) + " seen from both sides")
		return clock.Sleep(ctx, r.Dwell-r.Now().Sub(began))
	}
	if err := phase(Before); err != nil {
		return nil, err
	}
	mark("rotation began")
	if load != nil {
		load.Enter(Grace)
	}
	if err := r.Rotating.Rotate(ctx); err != nil {
		return nil, fmt.Errorf("rotation: %w", err)
	}
	rotated := r.Now()
	if id := r.Rotating.Document().ID().String(); id != rep.Identity {
		rep.Successor = id
		mark("rotated: the identity goes on as " + id)
	} else {
		mark("rotated: document " + r.Rotating.Document().Hash().String())
	}
	if err := phase(Grace); err != nil {
		return nil, err
	}
	if t.Kind != Compromise {
		if err := clock.Sleep(ctx, r.Grace-r.Now().Sub(rotated)); err != nil {
			return nil, err
		}
	}
	if err := r.Rotating.EndGrace(ctx); err != nil {
		return nil, fmt.Errorf("end of the grace: %w", err)
	}
	mark("grace of the drill's messages over")
	if err := phase(After); err != nil {
		return nil, err
	}
	if load != nil {
		result := load.Stop()
		rep.Load = &result
		mark("load ended")
	}
	if rep.Load != nil {
		c := Check{Phase: Whole, Name: NothingLost, Side: t.Buyer, Result: Held, At: Stamp(r.Now()), Observed: fmt.Sprintf("%d queries, %d repeated, %d lost", rep.Load.Requests, rep.Load.Repeated, rep.Load.Lost)}
		if rep.Load.Lost > 0 || rep.Load.Requests == 0 {
			c.Result, c.Observed = Broken, Clip(c.Observed+"; first: "+rep.Load.FirstLoss)
		}
		seen[Whole][NothingLost] = c
		r.tell(ctx, c)
	}
	for _, p := range plan {
		c, ok := seen[p.Phase][p.Name]
		switch {
		case p.NotHere != "":
			c = Check{Phase: p.Phase, Name: p.Name, Side: p.Side, Result: NotChecked, Observed: p.NotHere}
		case !ok || c.Side != p.Side:
			c = Check{Phase: p.Phase, Name: p.Name, Side: p.Side, Result: Broken, Observed: "nobody has seen it", At: Stamp(r.Now())}
		}
		rep.count(c)
	}
	mark("all checks made")
	return rep, nil
}

func (r *Report) count(c Check) {
	r.Checks = append(r.Checks, c)
	switch c.Result {
	case Held:
		r.Held++
	case Broken:
		r.Broken++
	case NotChecked:
		r.NotChecked++
	}
}

func (r *Runner) tell(ctx context.Context, c Check) {
	if r.Step != nil {
		r.Step(ctx, c)
	}
}

// look makes one check of the subject's own.
func (r *Runner) look(ctx context.Context, p Promise) Check {
	var err error
	want := "accepted"
	switch p.Name {
	case SignatureAccepted, NewSignature:
		err = r.Rotating.Call(ctx, false)
	case OldSignature:
		err = r.Rotating.Call(ctx, true)
	case OldSignatureGone:
		return Expect(p, r.Now(), r.Rotating.Call(ctx, true), "refused")
	case GrantedQuery:
		err, want = again(ctx, r.Buyer.Granted), "answered"
	case OutOfScope:
		err, want = again(ctx, r.Buyer.OutOfScope), "refused with SCOPE_DENIED"
	default:
		err = fmt.Errorf("the subject does not look at %s", p.Name)
	}
	return Expect(p, r.Now(), err, want)
}

// again repeats what nobody has decided about, as a client does.
func again(ctx context.Context, f func(context.Context) error) (err error) {
	for i := range attempts {
		if err = f(ctx); !errors.Is(err, ErrAgain) {
			return err
		}
		if clock.Sleep(ctx, time.Duration(i+1)*pause) != nil {
			return err
		}
	}
	return err
}

// Look is a check of the counterparty's own that asks the data plane.
func Look(ctx context.Context, p Promise, b Buyer, now func() time.Time) Check {
	if p.Name == OutOfScope {
		return Expect(p, now(), again(ctx, b.OutOfScope), "refused with SCOPE_DENIED")
	}
	return Expect(p, now(), again(ctx, b.Granted), "answered")
}

// Expect makes the check of a promise from how an attempt ended. Where want begins with "refused", only a [*Refused] is right,
// and with a code after "refused " only that code; anywhere else, only success is.
func Expect(p Promise, at time.Time, err error, want string) Check {
	c := Check{Phase: p.Phase, Name: p.Name, Side: p.Side, Result: Broken, At: Stamp(at)}
	var no *Refused
	code, mustRefuse := strings.CutPrefix(want, "refused")
	code = strings.TrimSpace(code)
	switch {
	case p.Name == OutOfScope || !mustRefuse:
		if err == nil {
			c.Result, c.Observed = Held, want
		} else {
			c.Observed = err.Error()
		}
	case errors.As(err, &no):
		c.Observed = no.Error()
		if code == "" || code == no.Code {
			c.Result = Held
		}
	case err == nil:
		c.Observed = "accepted"
	default:
		c.Observed = err.Error()
	}
	c.Observed = Clip(c.Observed)
	return c
}
