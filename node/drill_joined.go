// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
)

// joinedDrill is a drill that this node has agreed to as counterparty.
type joinedDrill struct {
	id       string
	from     did.DID // who proposed it
	identity did.DID // whose keys rotate, before the rotation
	terms    drill.Terms
	contract string // under which queries run; "" for none
	plan     []drill.Promise
	until    time.Time // then it is forgotten
	buyer    drill.Buyer
	load     *drill.Load
	stop     context.CancelFunc

	grace  int        // seconds, as agreed
	seeing sync.Mutex // phases are looked at one after the other, whenever their steps come

	started  map[drill.Phase]bool
	seen     map[drill.Phase][]drill.Check
	result   *drill.LoadResult
	old      *did.Document // of identity, before the rotation
	oldKey   string
	inFlight *notice.Probe
	current  did.DID // the subject's node, as verified
}

const cacheWait = 10 * time.Second // for the notice of a compromise to arrive

func refuseDrill(code, format string, args ...any) error {
	return &notice.Refused{Code: code, Text: fmt.Sprintf(format, args...)}
}

// proposed decides about a drill that a peer proposes.
func (d *drills) proposed(_ context.Context, tx store.Tx, from did.DID, data []byte) (any, error) {
	var p drill.Proposal
	if err := canon.Unmarshal(data, &p, canon.Limits{MaxBytes: 16 << 10}); err != nil || !drill.ValidID(p.Drill) || p.Terms.Check() != nil {
		return nil, refuseDrill(codeDrillRefused, "the proposal is not one that this node understands")
	}
	shared, _, err := d.n.sharedContract(tx, from)
	if err != nil {
		return nil, err
	}
	buyer, err := contractWith(tx, from, p.Contract)
	if err != nil {
		return nil, err
	}
	identity, err := did.Parse(p.Identity)
	grace, least := time.Duration(p.GraceSeconds)*time.Second, d.n.cfg.Drill.MinGrace
	switch {
	case err != nil || identity.Domain() != from.Domain() || identity.Fingerprint() == "" || (p.Terms.Mode == drill.Live) != (identity == from):
		return nil, refuseDrill(codeDrillRefused, "the identity to rotate is the caller's own, or for a rehearsal another one of its domain")
	case grace < least || p.GraceSeconds > int(maxDrillGrace/time.Second):
		return nil, refuseDrill(codeDrillRefused, "a grace of %d s is not between %s (drill.min_grace) and %s", p.GraceSeconds, least, maxDrillGrace)
	case p.Terms.Buyer != buyer:
		return nil, refuseDrill(codeDrillRefused, "there is no contract %.80q in force between us with that buyer", p.Contract)
	case buyer == drill.Counterparty && queriesOf(p) > d.n.cfg.Drill.MaxQueries:
		return nil, refuseDrill(codeDrillRefused, "the load would take %d queries, and this node makes at most %d at a peer's wish (drill.max_queries)", queriesOf(p), d.n.cfg.Drill.MaxQueries)
	}
	if err := d.n.mayDrill(from, shared != "", p.Terms.Mode); err != nil {
		return nil, refuseDrill(codeDrillRefused, "%v", err)
	}
	now := d.n.clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.joined; j != nil && now.Before(j.until) {
		if j.agreed(p, from) {
			return map[string]any{"agreed": p.Drill}, nil // what is under way goes on
		}
		return nil, refuseDrill(codeDrillBusy, "this node is in another drill until it ends, at most until %s", stamp(j.until))
	}
	j := &joinedDrill{
		id: p.Drill, from: from, identity: identity, terms: p.Terms, contract: p.Contract, grace: p.GraceSeconds, plan: drill.Plan(p.Terms), until: now.Add(grace + drillMargin), current: from,
		started: map[drill.Phase]bool{}, seen: map[drill.Phase][]drill.Check{}, stop: func() {},
	}
	d.joined = j
	if _, err := tx.Append(ledger.Entry{Type: ledger.DrillStarted, Peer: from.String(), Data: ledger.Drill{
		Drill: p.Drill, Kind: string(p.Terms.Kind), Mode: string(p.Terms.Mode), By: p.Identity,
	}}); err != nil {
		return nil, err
	}
	return map[string]any{"agreed": p.Drill}, nil
}

// queriesOf is how many queries the load of a drill comes to that goes as fast as it can.
func queriesOf(p drill.Proposal) int {
	seconds := 3 * int(loadDwell/time.Second)
	if p.Terms.Kind != drill.Compromise {
		seconds += p.GraceSeconds
	}
	return p.Terms.Load * seconds
}

// agreed says whether a proposal is the one that was agreed to.
func (j *joinedDrill) agreed(p drill.Proposal, from did.DID) bool {
	return j.id == p.Drill && j.from == from && j.identity.String() == p.Identity && j.terms == p.Terms && j.contract == p.Contract && j.grace == p.GraceSeconds
}

// contractWith says who of the two is the buyer in a contract in force with a peer, under whichever DID of its; "" when there is no
// such contract.
func contractWith(tx store.Tx, from did.DID, id string) (drill.Side, error) {
	if id == "" {
		return "", nil
	}
	c, err := tx.GetContract(id)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	line, err := tx.Lineage(from.String())
	if err != nil || c.State != store.InForce || !slices.Contains(line, c.Peer) {
		return "", err
	}
	return map[string]drill.Side{"vendor": drill.Subject, "buyer": drill.Counterparty}[c.Role], nil
}

// in returns the drill that a notice is about. The caller holds the lock.
func (d *drills) in(id string, from did.DID) (*joinedDrill, error) {
	j := d.joined
	if j == nil || j.id != id || !d.n.clock.Now().Before(j.until) || from != j.from && !did.SameSubject(from, j.from) {
		return nil, refuseDrill(codeNoDrill, "this node has agreed to no such drill")
	}
	return j, nil
}

// stepped begins to look at a phase. What there is to see takes longer than a transaction may: it goes back by a notice.
func (d *drills) stepped(_ context.Context, _ store.Tx, from did.DID, data []byte) (any, error) {
	var s drill.Step
	if err := canon.Unmarshal(data, &s, canon.Limits{MaxBytes: 16 << 10}); err != nil {
		return nil, refuseDrill(codeDrillRefused, "%v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	j, err := d.in(s.Drill, from)
	if err != nil {
		return nil, err
	}
	if id, err := did.Parse(s.Identity); err != nil || id != j.identity && !did.SameSubject(id, j.identity) {
		return nil, refuseDrill(codeDrillRefused, "the identity of a step is the one that was agreed, or claims to follow it") // nobody else is called
	}
	switch s.Phase {
	case drill.Before, drill.Grace, drill.After:
	case drill.Whole:
		return nil, refuseDrill(codeDrillRefused, "no phase %q", s.Phase)
	default:
		return nil, refuseDrill(codeDrillRefused, "no such phase")
	}
	if s.Phase != drill.Before && !j.started[drill.Before] {
		return nil, refuseDrill(codeDrillRefused, "the drill has not begun")
	}
	if j.started[s.Phase] {
		return nil, nil
	}
	j.started[s.Phase] = true
	d.n.driving.Go(func() { d.see(j, from, s) })
	return nil, nil
}

// see looks at a phase and tells the subject what was seen.
func (d *drills) see(j *joinedDrill, from did.DID, s drill.Step) {
	ctx, cancel := context.WithTimeout(d.n.life, drillPhase)
	defer cancel()
	j.seeing.Lock()
	defer j.seeing.Unlock()
	if s.Phase == drill.Before && j.terms.Load > 0 && j.terms.Buyer == drill.Counterparty {
		d.beginLoad(ctx, j)
	}
	if j.load != nil {
		j.load.Enter(s.Phase)
	}
	o := drill.Observations{Drill: j.id, Phase: s.Phase, Checks: []drill.Check{}}
	for _, p := range drill.Of(j.plan, s.Phase, drill.Counterparty) {
		c := d.look(ctx, j, s, p)
		o.Checks = append(o.Checks, c)
		d.step(j.id, from)(ctx, c)
	}
	if s.Phase == drill.After && j.load != nil {
		// The rest of this phase has to be seen too.
		_ = clock.Sleep(ctx, loadDwell) // or as much of it as there is time for
		result := j.load.Stop()
		o.Load = &result
		j.load = nil
	}
	d.mu.Lock()
	if j.seen[s.Phase] = o.Checks; o.Load != nil {
		j.result = o.Load
	}
	d.mu.Unlock()
	// The first attempt is made at once; the others, if there have to be any, are the outbox's.
	var id string
	err := d.n.db.Update(ctx, func(tx store.Tx) (err error) {
		id, err = d.n.notices.Post(ctx, tx, notice.Outgoing{Peer: from, Kind: drillObserve, Data: o, Within: drillPhase})
		return err
	})
	if err == nil {
		_, err = d.n.notices.Deliver(ctx, id)
	}
	if err != nil && ctx.Err() == nil {
		d.n.log.Error("observations of a drill not sent", "err", err)
	}
}

func (d *drills) beginLoad(ctx context.Context, j *joinedDrill) {
	b, err := d.asBuyer(ctx, j)
	if err != nil {
		d.n.log.Error("load of a drill", "err", err)
		return
	}
	d.mu.Lock()
	left := j.until.Sub(d.n.clock.Now())
	running, stop := context.WithTimeout(d.n.life, left)
	j.stop = stop
	d.mu.Unlock()
	if left <= 0 { // it has ended meanwhile
		stop()
		return
	}
	j.load = drill.NewLoad(j.terms.Load, d.n.cfg.Drill.MaxQueries, b.Granted)
	j.load.Start(running)
}

func (d *drills) asBuyer(ctx context.Context, j *joinedDrill) (drill.Buyer, error) {
	if j.buyer != nil {
		return j.buyer, nil
	}
	b, err := d.n.newContractBuyer(ctx, j.contract)
	if err == nil {
		j.buyer = b
	}
	return b, err
}

// look makes one check.
func (d *drills) look(ctx context.Context, j *joinedDrill, s drill.Step, p drill.Promise) drill.Check {
	err, want := errors.New("this node does not look at that"), "opened"
	switch p.Name {
	case drill.GrantedQuery, drill.OutOfScope:
		var b drill.Buyer
		if b, err = d.asBuyer(ctx, j); err == nil {
			return drill.Look(ctx, p, b, d.n.clock.Now)
		}
	case drill.CacheEvicted:
		err, want = d.evicted(ctx, j), "the old document is not used any more"
	case drill.Followed:
		err, want = d.followed(ctx, j, s), "followed to "+s.Identity
	case drill.DocumentSeen:
		err, want = d.document(ctx, j, s), s.Document
	case drill.MessageOpened:
		if err = d.prepare(ctx, j, s); err == nil {
			err = d.probe(ctx, j, s, p, j.old, j.oldKey)
		}
	case drill.InFlightOpened, drill.InFlightRefused:
		if p.Name == drill.InFlightRefused {
			want = "refused " + string(envelope.CodeKeyRetired)
		}
		err = d.send(ctx, j, s, j.inFlight)
	case drill.OldKeyOpened:
		err = d.probe(ctx, j, s, p, j.old, j.oldKey)
	case drill.OldKeyRefused:
		err, want = d.probe(ctx, j, s, p, j.old, j.oldKey), "refused "+string(envelope.CodeKeyRetired)
	case drill.NewKeyOpened:
		var id did.DID
		if id, err = did.Parse(s.Identity); err == nil {
			var doc *did.Document
			if doc, err = d.n.resolver.Resolve(ctx, id); err == nil {
				err = d.probe(ctx, j, s, p, doc, s.NewKey)
			}
		}
	}
	return drill.Expect(p, d.n.clock.Now(), err, want)
}

// prepare remembers the subject's keys, and seals a message that will be under way when they rotate.
func (d *drills) prepare(ctx context.Context, j *joinedDrill, s drill.Step) (err error) {
	if j.old, err = d.n.resolver.Resolve(ctx, j.identity); err != nil {
		return err
	}
	j.oldKey = s.OldKey
	name := drill.InFlightOpened
	if j.terms.Kind == drill.Compromise {
		name = drill.InFlightRefused
	}
	j.inFlight, err = d.n.notices.NewProbe(ctx, j.old, j.oldKey, drillContext(j.id, drill.Grace, name), drillProbe, nil)
	return err
}

// probe seals a message to one key of the subject and sends it.
func (d *drills) probe(ctx context.Context, j *joinedDrill, s drill.Step, p drill.Promise, doc *did.Document, kid string) error {
	if doc == nil {
		return errors.New("there is no document from before")
	}
	probe, err := d.n.notices.NewProbe(ctx, doc, kid, drillContext(j.id, p.Phase, p.Name), drillProbe, nil)
	if err != nil {
		return err
	}
	return d.send(ctx, j, s, probe)
}

// send delivers it to the subject's node, again where nobody decided.
func (d *drills) send(ctx context.Context, j *joinedDrill, s drill.Step, p *notice.Probe) error {
	if p == nil {
		return errors.New("nothing was sealed before the rotation")
	}
	via := j.from
	if j.terms.Mode == drill.Live {
		id, err := did.Parse(s.Identity)
		if err != nil {
			return err
		}
		via = id
	}
	var err error
	for i := range 4 {
		var a notice.Answer
		a, err = d.n.notices.SendProbe(ctx, p, via)
		var r *envelope.Refusal
		switch {
		case err == nil && !a.OK:
			return &drill.Refused{Code: a.Code}
		case err == nil:
			return nil
		case errors.As(err, &r) && !r.Code.Retryable():
			return &drill.Refused{Code: string(r.Code)}
		}
		if clock.Sleep(ctx, time.Duration(i+1)*250*time.Millisecond) != nil {
			return err
		}
	}
	return err
}

// document compares what the subject says it publishes with what is there.
func (d *drills) document(ctx context.Context, j *joinedDrill, s drill.Step) error {
	id, err := did.Parse(s.Identity)
	if err != nil || id != j.identity && !did.SameSubject(id, j.identity) {
		return fmt.Errorf("%q is another subject", s.Identity)
	}
	d.n.resolver.Evict(id)
	doc, err := d.n.resolver.Resolve(ctx, id)
	if err != nil {
		return err
	}
	if got := doc.Hash().String(); got != s.Document {
		return fmt.Errorf("published is %s", got)
	}
	return nil
}

// followed walks from the DID before to the one in use.
func (d *drills) followed(ctx context.Context, j *joinedDrill, s drill.Step) error {
	d.n.resolver.Evict(j.identity)
	chain, err := d.n.resolver.Walk(ctx, j.identity)
	switch {
	case err != nil:
		return err
	case chain.Current.ID().String() != s.Identity:
		return fmt.Errorf("the documents lead to %s", chain.Current.ID())
	case !chain.Assurance.Moves():
		return fmt.Errorf("the assurance is %s", chain.Assurance)
	}
	if j.terms.Mode == drill.Live {
		d.mu.Lock()
		j.current = chain.Current.ID()
		d.mu.Unlock()
	}
	return nil
}

// evicted waits until the document from before is not taken from the cache any more.
func (d *drills) evicted(ctx context.Context, j *joinedDrill) error {
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	for {
		doc, err := d.n.resolver.Resolve(ctx, j.identity)
		if err != nil && ctx.Err() == nil || err == nil && j.old != nil && doc.Hash() != j.old.Hash() {
			return nil
		}
		if clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return errors.New("it is still in the cache")
		}
	}
}

// toSign signs a report that says what this node has seen and is signed by the subject.
func (d *drills) toSign(ctx context.Context, tx store.Tx, from did.DID, data []byte) (any, error) {
	rep, err := drill.Parse(data)
	if err != nil {
		return nil, refuseDrill(codeDrillRefused, "%v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	j, err := d.in(rep.ID, from)
	if err != nil {
		return nil, err
	}
	keys := d.n.notices.Keys()
	switch {
	case rep.Subject != from.String() || from != j.current || rep.Counterparty != keys.Document.ID().String() || rep.Identity != j.identity.String() || rep.Terms != j.terms ||
		rep.Contract != j.contract || rep.GraceSeconds != j.grace:
		return nil, refuseDrill(codeDrillRefused, "the report is about other nodes, or another drill, than was agreed")
	case !j.sawAsReported(rep):
		return nil, refuseDrill(codeDrillRefused, "the report does not say what this node has seen")
	}
	if err := rep.VerifyProofs(1); err != nil {
		return nil, refuseDrill(codeDrillRefused, "%v", err)
	}
	if err := rep.Sign(ctx, keys.Binding, d.n.clock.Now()); err != nil {
		return nil, err
	}
	if err := rep.VerifyProofs(2); err != nil {
		return nil, refuseDrill(codeDrillRefused, "%v", err)
	}
	digest, err := rep.Digest()
	if err != nil {
		return nil, err
	}
	if _, err := tx.Append(ledger.Entry{Type: ledger.DrillFinished, Peer: from.String(), Data: ledger.DrillResult{
		Drill: rep.ID, Kind: string(rep.Terms.Kind), Passed: rep.Held, Failed: rep.Broken, Report: digest,
	}}); err != nil {
		return nil, err
	}
	raw, err := rep.Marshal()
	if err != nil {
		return nil, err
	}
	if err := d.keep(rep, raw); err != nil {
		return nil, err
	}
	j.until = d.n.clock.Now() // over
	j.stop()
	return map[string]any{"proof": rep.Proofs[1]}, nil
}

// sawAsReported compares each check of this side with what was sent.
func (j *joinedDrill) sawAsReported(rep *drill.Report) bool {
	seen := map[string]drill.Check{}
	for _, list := range j.seen {
		for _, c := range list {
			seen[string(c.Phase)+" "+c.Name] = c
		}
	}
	for _, c := range rep.Checks {
		key := string(c.Phase) + " " + c.Name
		_, looked := seen[key]
		if c.Side != drill.Counterparty || c.Phase == drill.Whole || c.Result == drill.NotChecked && !looked {
			continue
		}
		if seen[key] != c {
			return false
		}
	}
	if j.result == nil {
		return rep.Load == nil || j.terms.Buyer != drill.Counterparty
	}
	mine, err1 := canon.Marshal(j.result)
	theirs, err2 := canon.Marshal(rep.Load)
	return err1 == nil && err2 == nil && string(mine) == string(theirs)
}

// ended forgets a drill that the subject has given up.
func (d *drills) ended(_ context.Context, tx store.Tx, from did.DID, data []byte) (any, error) {
	var over struct {
		Drill string `json:"drill"`
	}
	if err := canon.Unmarshal(data, &over, canon.Limits{MaxBytes: 1 << 10}); err != nil {
		return nil, refuseDrill(codeNoDrill, "%v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	j, err := d.in(over.Drill, from)
	if err != nil {
		return nil, err
	}
	j.until = d.n.clock.Now()
	j.stop()
	_, err = tx.Append(ledger.Entry{Type: ledger.DrillFinished, Peer: from.String(), Data: ledger.DrillResult{
		Drill: j.id, Kind: string(j.terms.Kind), Reason: "the other side gave it up",
	}})
	return nil, err
}
