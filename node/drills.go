// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/trust"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/store"
)

// DrillsDir is the folder of drill reports inside a node's folder.
const DrillsDir = "drills"

// Kinds of notices between the two nodes of a drill.
const (
	drillPropose = "drill.propose" // drill.Proposal; the answer is the counterparty's consent, or why not
	drillStep    = "drill.step"    // drill.Step: a phase has begun
	drillObserve = "drill.observe" // drill.Observations: what the counterparty has seen
	drillProbe   = "drill.probe"   // changes nothing: whether it is opened is what is to be seen
	drillSign    = "drill.sign"    // the report with the subject's proof; the answer is the counterparty's
	drillEnd     = "drill.end"     // the drill is over, or given up
)

// Codes of drills.
const (
	codeDrillRefused = "DRILL_REFUSED"
	codeDrillBusy    = "DRILL_UNDER_WAY"
	codeNoDrill      = "NO_DRILL"
)

// Bounds of drills.
const (
	defaultDrillGrace = 10 * time.Second
	maxDrillGrace     = time.Hour
	drillAnswer       = 30 * time.Second // for one notice
	drillPhase        = 2 * time.Minute  // for the counterparty's observations of one phase
	drillMargin       = 10 * time.Minute // a drill that was agreed to is forgotten so long after its grace
	loadDwell         = 3 * time.Second  // a phase under load lasts at least so long
	maxDrillQueries   = 1_000_000        // drill.max_queries
)

// drills is the node's part in drills: at most one of its own at a time, and at most one that it has agreed to. They live in this
// process; what is left of a drill that the process did not survive is nothing but its events.
type drills struct {
	n *Node

	mu        sync.Mutex
	own       *ownDrill
	joined    *joinedDrill
	rehearsal *rehearsal // its documents stay published after its end
}

// ownDrill is one whose subject this node is.
type ownDrill struct {
	id       string
	peer     did.DID
	observed map[drill.Phase]chan *drill.Observations
	// late are the contexts of messages that arrive after the end of the drill's grace, once that is over.
	late map[string]bool
}

func (d *drills) register() {
	d.n.notices.Handle(drillProbe, d.probed)
	d.n.notices.Handle(drillPropose, d.proposed)
	d.n.notices.Handle(drillStep, d.stepped)
	d.n.notices.Handle(drillObserve, d.observed)
	d.n.notices.Handle(drillSign, d.toSign)
	d.n.notices.Handle(drillEnd, d.ended)
}

// probed answers a message of a drill.
func (d *drills) probed(context.Context, store.Tx, did.DID, []byte) (any, error) { return nil, nil }

// opener is what opens a peer's messages: for those of a drill whose grace is over, as it will be when the grace of the keys is.
// They are told by their contextId before anything is opened, so that nothing else is ever refused early.
func (d *drills) opener(from did.DID, contextID string) hpke.Opener {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := opener{d.n, d.n.id(), 0}
	if d.own != nil && d.own.peer == from && d.own.late[contextID] {
		o.ahead = d.n.cfg.Rotation.Grace + time.Minute
	}
	return o
}

func (d *drills) endGrace() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own == nil {
		return
	}
	for _, name := range []string{drill.OldKeyRefused, drill.NewKeyOpened} {
		d.own.late[drillContext(d.own.id, drill.After, name)] = true
	}
}

// drillContext is the contextId of one message of a drill, which both sides can tell beforehand.
func drillContext(id string, phase drill.Phase, name string) string {
	h := canon.Hash("treaty drill context v1", []byte(id+"\n"+string(phase)+"\n"+name))
	return "d" + base64.RawURLEncoding.EncodeToString(h[:24])[1:]
}

// serves answers for documents of a rehearsal, and says whether there is one at that path.
func (d *drills) serves(w http.ResponseWriter, r *http.Request) bool {
	d.mu.Lock()
	re := d.rehearsal
	d.mu.Unlock()
	return re != nil && re.serves(w, r)
}

// addressed is who takes notices to this DID: the rehearsal's own service, or the node's.
func (d *drills) addressed(to did.DID) *notice.Service {
	d.mu.Lock()
	re := d.rehearsal
	d.mu.Unlock()
	if re != nil && re.owns(to) {
		return re.notices
	}
	return d.n.notices
}

// admits says whether a DID is the identity of a rehearsal that this node has agreed to.
func (d *drills) admits(id did.DID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.joined
	return j != nil && j.terms.Mode == drill.Rehearsal && d.n.clock.Now().Before(j.until) && (id == j.identity || did.SameSubject(id, j.identity))
}

// Drill implements [httpapi.DrillAdmin].
func (n *Node) Drill(ctx context.Context, req httpapi.DrillRequest) (json.RawMessage, error) {
	grace := time.Duration(req.GraceSeconds) * time.Second
	if grace == 0 {
		grace = defaultDrillGrace
	}
	t := drill.Terms{Kind: drill.Kind(req.Kind), Mode: drill.Rehearsal, Load: req.Load}
	if req.Live {
		t.Mode = drill.Live
	}
	if err := t.Check(); err != nil {
		return nil, usageError(err)
	}
	if grace < time.Second || grace > maxDrillGrace {
		return nil, usageError(fmt.Errorf("a grace of %s is not between 1s and %s", grace, maxDrillGrace))
	}
	ids, err := n.find(ctx, req.Peer)
	if err != nil {
		return nil, err
	}
	if len(ids) != 1 {
		return nil, usageError(fmt.Errorf("%s has %d agents; name one by its DID", req.Peer, len(ids)))
	}
	peer, err := n.connect(ctx, n.successorOf(ctx, ids[0]))
	if err != nil {
		return nil, err
	}
	return n.drills.run(ctx, peer.result.Document, t, grace)
}

// run is a drill from the proposal to the signed report.
func (d *drills) run(ctx context.Context, counterparty *did.Document, t drill.Terms, grace time.Duration) (json.RawMessage, error) {
	n, peer := d.n, counterparty.ID()
	own := &ownDrill{id: "drl_" + envelope.NewID(), peer: peer, observed: map[drill.Phase]chan *drill.Observations{}, late: map[string]bool{}}
	for _, p := range []drill.Phase{drill.Before, drill.Grace, drill.After} {
		own.observed[p] = make(chan *drill.Observations, 1)
	}
	d.mu.Lock()
	busy := d.own != nil
	if !busy {
		d.own = own
	}
	d.mu.Unlock()
	if busy {
		return nil, &httpapi.Error{Kind: httpapi.KindRefused, Code: codeDrillBusy, Message: "this node is in a drill of its own already", Hint: "treaty events --follow shows it"}
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.own = nil
	}()

	p := drill.Proposal{Drill: own.id, Terms: t, GraceSeconds: int(grace / time.Second)}
	r := &drill.Runner{Grace: grace, Peer: &drillPeer{d: d, own: own}, Now: n.clock.Now, Step: d.step(own.id, peer)}
	var role string
	if err := n.db.View(ctx, func(tx store.Tx) (err error) { p.Contract, role, err = n.sharedContract(tx, peer); return err }); err != nil {
		return nil, err
	}
	switch role {
	case "buyer":
		p.Terms.Buyer = drill.Subject
		buyer, err := n.newContractBuyer(ctx, p.Contract)
		if err != nil {
			return nil, err
		}
		r.Buyer = buyer
	case "vendor":
		p.Terms.Buyer = drill.Counterparty
	default:
		if t.Load > 0 {
			return nil, &httpapi.Error{Kind: httpapi.KindUsage, Message: "there is no contract in force with " + peer.String() + " under which queries could run", Hint: "leave --load away"}
		}
	}
	if t.Load > 0 {
		r.Dwell = loadDwell
	}
	call := func(ctx context.Context, s did.Signer) error { return n.callAs(ctx, peer, s) }
	if t.Mode == drill.Live {
		l := n.newLiveIdentity(t.Kind)
		l.call, r.Rotating = call, l
	} else {
		re, err := n.newRehearsal(ctx, t.Kind, grace)
		if err != nil {
			return nil, err
		}
		re.call, r.Rotating = call, re
		d.mu.Lock()
		d.rehearsal = re
		d.mu.Unlock()
	}
	p.Identity = r.Rotating.Document().ID().String()
	r.Proposal = p

	rep, err := r.Run(ctx)
	if re, ok := r.Rotating.(*rehearsal); ok {
		err = errors.Join(err, re.end(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return nil, d.failed(ctx, own, t.Kind, err)
	}
	rep.Subject, rep.Counterparty = n.self().String(), peer.String()
	rep.Documents = []string{string(n.id().agent.Raw()), string(counterparty.Raw())}
	if err := rep.Sign(ctx, n.id().binding, n.clock.Now()); err != nil {
		return nil, d.failed(ctx, own, t.Kind, err)
	}
	if rep, err = r.Peer.Countersign(ctx, rep); err != nil {
		return nil, d.failed(ctx, own, t.Kind, err)
	}
	return d.finish(ctx, peer, rep)
}

// failed ends a drill that could not be gone through, and says so to the counterparty.
func (d *drills) failed(ctx context.Context, own *ownDrill, kind drill.Kind, err error) error {
	ctx = context.WithoutCancel(ctx)
	dbErr := d.n.db.Update(ctx, func(tx store.Tx) error {
		if _, err := tx.Append(ledger.Entry{Type: ledger.DrillFinished, Peer: own.peer.String(), Data: ledger.DrillResult{
			Drill: own.id, Kind: string(kind), Reason: bounded(err),
		}}); err != nil {
			return err
		}
		_, err := d.n.notices.Post(ctx, tx, notice.Outgoing{Peer: own.peer, Kind: drillEnd, Data: map[string]string{"drill": own.id}, Within: drillMargin})
		return err
	})
	if dbErr != nil {
		return errors.Join(err, dbErr)
	}
	var e *httpapi.Error
	if errors.As(err, &e) {
		return err
	}
	return &httpapi.Error{Kind: httpapi.KindUnreachable, Code: "DRILL_INCOMPLETE", Message: "the drill could not be gone through: " + err.Error(), Hint: "what was rotated stays rotated; `treaty keys list` shows it"}
}

// finish stores a report that both have signed.
func (d *drills) finish(ctx context.Context, peer did.DID, rep *drill.Report) (json.RawMessage, error) {
	raw, err := rep.Marshal()
	if err != nil {
		return nil, err
	}
	digest, err := rep.Digest()
	if err != nil {
		return nil, err
	}
	if err := d.keep(rep, raw); err != nil {
		return nil, err
	}
	return raw, d.n.record(context.WithoutCancel(ctx), ledger.Entry{Type: ledger.DrillFinished, Peer: peer.String(), Data: ledger.DrillResult{
		Drill: rep.ID, Kind: string(rep.Terms.Kind), Passed: rep.Held, Failed: rep.Broken, Report: digest,
	}})
}

// keep writes a report into the folder, as JSON and for people.
func (d *drills) keep(rep *drill.Report, raw []byte) error {
	dir := filepath.Join(d.n.dir, DrillsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, rep.ID+".json"), raw, 0o600), os.WriteFile(filepath.Join(dir, rep.ID+".md"), []byte(rep.Markdown()), 0o600))
}

// step logs each check as it is made.
func (d *drills) step(id string, peer did.DID) func(context.Context, drill.Check) {
	return func(ctx context.Context, c drill.Check) {
		err := d.n.record(ctx, ledger.Entry{Type: ledger.DrillStep, Peer: peer.String(), Data: ledger.DrillCheck{
			Drill: id, Phase: string(c.Phase), Check: c.Name, OK: c.Result == drill.Held, Observed: c.Observed,
		}})
		if err != nil && ctx.Err() == nil {
			d.n.log.Error("step of a drill not logged", "err", err)
		}
	}
}

// Drills implements [httpapi.DrillAdmin].
func (n *Node) Drills(context.Context) ([]httpapi.DrillSummary, error) {
	names, err := filepath.Glob(filepath.Join(n.dir, DrillsDir, "drl_*.json"))
	if err != nil {
		return nil, err
	}
	list := []httpapi.DrillSummary{}
	for _, name := range names {
		rep, _, err := readReport(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s := httpapi.DrillSummary{
			ID: rep.ID, Kind: string(rep.Terms.Kind), Mode: string(rep.Terms.Mode), Subject: rep.Subject, Counterparty: rep.Counterparty, Held: rep.Held, Broken: rep.Broken, NotChecked: rep.NotChecked,
		}
		if len(rep.Timeline) > 0 {
			s.Finished = rep.Timeline[len(rep.Timeline)-1].At
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b httpapi.DrillSummary) int { return strings.Compare(b.Finished, a.Finished) })
	return list, nil
}

func readReport(path string) (*drill.Report, []byte, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // in the node's own folder
	if err != nil {
		return nil, nil, err
	}
	rep, err := drill.Parse(raw)
	return rep, raw, err
}

// DrillReport implements [httpapi.DrillAdmin].
func (n *Node) DrillReport(_ context.Context, id string) (json.RawMessage, error) {
	if name, ok := strings.CutPrefix(id, "drl_"); ok && envelope.ValidID(name) {
		_, raw, err := readReport(filepath.Join(n.dir, DrillsDir, id+".json"))
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return raw, err
		}
	}
	return nil, &httpapi.Error{Kind: httpapi.KindNotFound, Message: fmt.Sprintf("there is no report of a drill %q here", id), Hint: "treaty drill list"}
}

// drillPeer is the counterparty, spoken to by notices.
type drillPeer struct {
	d   *drills
	own *ownDrill
}

// ask makes one notice of the drill and turns the peer's no into an error for the operator.
func (p *drillPeer) ask(ctx context.Context, kind string, data any) (notice.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, drillAnswer)
	defer cancel()
	a, err := p.d.n.notices.Ask(ctx, notice.Outgoing{Peer: p.own.peer, Kind: kind, Data: data, Within: drillAnswer})
	var failed *notice.Failed
	switch {
	case errors.As(err, &failed):
		return a, &httpapi.Error{Kind: httpapi.KindRefused, Code: failed.Code, Message: "the counterparty's node did not take the notice: " + failed.Reason}
	case err != nil:
		return a, err
	case !a.OK:
		return a, &httpapi.Error{Kind: httpapi.KindRefused, Code: a.Code, Message: "the counterparty says no: " + a.Text, Hint: "its operator decides by drill.allow, drill.live, drill.min_grace and drill.max_queries"}
	}
	return a, nil
}

// Propose implements [drill.Peer].
func (p *drillPeer) Propose(ctx context.Context, prop drill.Proposal) error {
	if _, err := p.ask(ctx, drillPropose, prop); err != nil {
		return err
	}
	return p.d.n.record(ctx, ledger.Entry{Type: ledger.DrillStarted, Peer: p.own.peer.String(), Data: ledger.Drill{
		Drill: prop.Drill, Kind: string(prop.Terms.Kind), Mode: string(prop.Terms.Mode), By: prop.Identity,
	}})
}

// Observe implements [drill.Peer].
func (p *drillPeer) Observe(ctx context.Context, s drill.Step) (*drill.Observations, error) {
	if _, err := p.ask(ctx, drillStep, s); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, drillPhase)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("none came: %w", ctx.Err())
	case o := <-p.own.observed[s.Phase]:
		return o, nil
	}
}

// Countersign implements [drill.Peer].
func (p *drillPeer) Countersign(ctx context.Context, r *drill.Report) (*drill.Report, error) {
	raw, err := r.Marshal()
	if err != nil {
		return nil, err
	}
	a, err := p.ask(ctx, drillSign, json.RawMessage(raw))
	if err != nil {
		return nil, err
	}
	var signed struct {
		Proof did.Proof `json:"proof"`
	}
	if err := canon.Unmarshal(a.Data, &signed, canon.Limits{}); err != nil {
		return nil, err
	}
	r.Proofs = append(r.Proofs, signed.Proof)
	return r, r.VerifyProofs(2)
}

// observed takes the counterparty's observations of this node's own drill.
func (d *drills) observed(_ context.Context, _ store.Tx, from did.DID, data []byte) (any, error) {
	o, err := drill.ParseObservations(data)
	if err != nil {
		return nil, &notice.Refused{Code: codeNoDrill, Text: err.Error()}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own == nil || d.own.id != o.Drill || d.own.peer != from || d.own.observed[o.Phase] == nil {
		return nil, &notice.Refused{Code: codeNoDrill, Text: "there is no such drill here"}
	}
	select {
	case d.own.observed[o.Phase] <- o:
	default: // they were here before
	}
	return nil, nil
}

// mayDrill is the operator's word on drills that others propose.
func (n *Node) mayDrill(from did.DID, contracted bool, mode drill.Mode) error {
	listed := len(n.cfg.Drill.Allow) > 0 && trust.Policy{Allow: n.cfg.Drill.Allow}.Admit(from) == nil
	switch {
	case !listed && !contracted:
		return errors.New("there is no contract in force with you, and drill.allow does not name you")
	case mode == drill.Live && !n.cfg.Drill.Live:
		return errors.New("this node takes part in rehearsals only (drill.live)")
	}
	return nil
}
