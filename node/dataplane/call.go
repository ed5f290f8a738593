// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/internal/crashpoint"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// call is one query on its way.
type call struct {
	s      *Service
	caller httpsig.Caller
	req    contract.Request
	digest canon.Digest // of the request
	facts  facts
	v      *verdict
	basis  canon.Digest // of the facts that v was found by: see Service.verdictKey
	epoch  *uint64      // of these facts, where they were read for this call
	plan   *query.Plan
	shape  *shape // nil where no shapes are remembered
}

// Query decides about one call for aggregates and answers it. The error is a *Refusal when the data owner refuses.
func (s *Service) Query(ctx context.Context, caller httpsig.Caller, in datatools.QueryInput) (*datatools.QueryOutput, error) {
	return s.answer(ctx, caller, in.Request(caller.DID.String()))
}

// Select decides about one call for rows and answers it. The error is a *Refusal when the data owner refuses.
func (s *Service) Select(ctx context.Context, caller httpsig.Caller, in datatools.SelectInput) (*datatools.QueryOutput, error) {
	req := in.Request(caller.DID.String())
	if !req.Rows() {
		return nil, fmt.Errorf("%w: columns is empty", datatools.ErrArguments)
	}
	return s.answer(ctx, caller, req)
}

func (s *Service) answer(ctx context.Context, caller httpsig.Caller, req contract.Request) (*datatools.QueryOutput, error) {
	c := &call{s: s, caller: caller, req: req}
	var err error
	if c.digest, err = c.req.Digest(); err != nil {
		return nil, c.refuse(ctx, contract.Refusal(contract.InvalidQuery, nil, "the query has no canonical form"))
	}
	// The facts that count are those of the transaction that reserves the call. Whether it gets that far is decided by what was
	// found for the call before it, if that was a yes, and else by reading them beforehand.
	if !c.recall() {
		if err := c.consider(ctx); err != nil {
			return nil, err
		}
	}
	// A call waits for its place before it is charged.
	working, leave, err := s.slots.enter(ctx, UnderWay{Buyer: c.req.Caller, ContractID: c.req.ContractID, Dataset: c.req.Dataset})
	if err != nil {
		return nil, fmt.Errorf("waiting for the engine: %w", err)
	}
	defer leave()
	for range 8 {
		if out, err := c.proceed(ctx, working, leave); !errors.Is(err, errStale) {
			return out, err
		}
		// It keeps its place: what is on record may change again before it had another one.
		if err := c.consider(working); err != nil {
			return nil, err
		}
	}
	return nil, errStale
}

// consider reads the facts and decides by them. The error is a *Refusal when that is no yes.
func (c *call) consider(ctx context.Context) error {
	s := c.s
	floor := s.seen.floor()
	err := s.opts.Store.View(ctx, func(tx store.Tx) (err error) {
		c.facts, err = s.readFacts(tx, c.req.ContractID, c.caller.DID, floor)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the contract: %w", err)
	}
	s.seen.standing(&c.facts)
	if c.v, err = s.judge(ctx, c.facts, c.caller); err != nil {
		return fmt.Errorf("verifying the contract: %w", err)
	}
	epoch := c.facts.Epoch
	c.basis, c.epoch = s.verdictKey(c.facts, c.caller, nil), &epoch
	d := c.decide()
	if !d.Allowed {
		return c.refuse(ctx, d)
	}
	if c.v.contract.Parties.Buyer == c.req.Caller {
		s.known.Add(c.party(), known{c.v, c.basis})
	}
	return nil
}

// known is what the last call of a contract's buyer went by.
type known struct {
	v     *verdict
	basis canon.Digest
}

// party is whom known is about.
type party struct{ contract, caller string }

func (c *call) party() party { return party{c.req.ContractID, c.req.Caller} }

// recall decides by what is known, and says whether that is a yes.
func (c *call) recall() bool {
	k, ok := c.s.known.Get(c.party())
	if !ok {
		return false
	}
	c.v, c.basis = k.v, k.basis
	return c.decide().Allowed
}

// proceed reserves the call, runs it in its place and releases the answer. errStale, and nothing was done, when c does not go by the
// facts any more.
func (c *call) proceed(ctx, working context.Context, leave func()) (out *datatools.QueryOutput, err error) {
	s := c.s
	// What was not released need not be kept apart from later queries.
	c.board()
	defer func() { err = errors.Join(err, c.land(ctx, out != nil)) }()
	if err := c.reserve(working); err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.CallReserved)
	if err := c.apart(working); err != nil {
		return nil, err
	}
	rows, err := s.run(working, leave, c.plan.Statement)
	if errors.Is(err, source.ErrTooManyRows) {
		return nil, c.refuse(ctx, contract.Refusal(contract.InvalidQuery, c.v.contract, fmt.Sprintf("the answer has more than %d groups; set a limit or group by less", s.opts.MaxRows)))
	}
	if err != nil {
		return nil, fmt.Errorf("running the query: %w", err)
	}
	answer, err := c.plan.Answer(rows)
	if errors.Is(err, query.ErrGroups) {
		text := fmt.Sprintf("no group has at least %d subjects with a value", s.opts.Ceiling.minGroup(c.v.contract.MinGroupSize))
		if n := c.plan.Values; n > 0 {
			text += fmt.Sprintf(", and the %d values without which a percentile is the minimum or maximum", n)
		}
		return nil, c.refuse(ctx, contract.Refusal(contract.GroupTooSmall, c.v.contract, text))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the result: %w", err)
	}
	crashpoint.Hit(crashpoint.CallExecuted)
	return c.release(ctx, answer)
}

// evaluate is [contract.Evaluate] by the facts at hand.
func (c *call) evaluate() contract.Decision {
	s := c.s
	d := contract.Evaluate(c.req, s.schemas[c.req.Dataset], c.v.contract, s.usage(c.facts, c.v, c.req.Caller), s.opts.Now())
	if !d.Allowed && c.v.note != "" {
		d.Note = c.v.note
	}
	return d
}

// decide is where yes is said: Evaluate, then the operator's ceiling, then whether the statement can be built. With a yes there
// is a plan.
func (c *call) decide() contract.Decision {
	s := c.s
	d := c.evaluate()
	if !d.Allowed {
		return d
	}
	granted := c.v.contract
	set := s.opts.Datasets[c.req.Dataset]
	if why := s.opts.Ceiling.refuses(set, &c.req, granted.RowFilter); why != "" {
		return contract.Refusal(contract.ScopeDenied, granted, why)
	}
	if why := s.opts.Ceiling.forbids(set, &c.req, granted); why != "" {
		return contract.Refusal(contract.ScopeDenied, granted, why)
	}
	if own := s.digests[c.req.Dataset]; !own.Equal(granted.SchemaDigest) {
		return contract.Refusal(contract.ScopeDenied, granted, "the dataset's schema is not the one that was agreed on; negotiate again")
	}
	table, err := s.opts.Source.Table(c.req.Dataset)
	if err != nil {
		return contract.Refusal(contract.InvalidQuery, granted, "the query cannot be asked of this dataset")
	}
	dialect, err := s.opts.Source.Dialect(c.req.Dataset)
	if err != nil {
		return contract.Refusal(contract.InvalidQuery, granted, "the query cannot be asked of this dataset")
	}
	if c.req.Rows() && c.req.Limit > s.opts.MaxRows {
		return contract.Refusal(contract.InvalidQuery, granted, fmt.Sprintf("one answer has at most %d rows", s.opts.MaxRows))
	}
	spec := query.Spec{
		Dialect: dialect, From: table.From,
		Hides: func(op, column string) bool {
			g, _ := granted.Grant(column)
			return !slices.Contains(g.Operations, op)
		},
		Request: c.req, Schema: s.schemas[c.req.Dataset], RowFilter: granted.RowFilter, Subject: set.Subject,
		MinGroup: s.opts.Ceiling.minGroup(granted.MinGroupSize), MaxRows: s.opts.MaxRows,
	}
	if granted.Noise != nil {
		if len(s.opts.NoiseSecret) == 0 {
			return contract.Refusal(contract.ScopeDenied, granted, "this data plane is not set up to add noise, and without it nothing leaves")
		}
		spec.Noise = &query.Noise{Terms: granted.Noise, Seed: query.NoiseSeed(s.opts.NoiseSecret, granted.ID, c.digest)}
	}
	c.plan, err = query.Build(spec)
	if err == nil {
		c.shape, err = newShape(spec, granted)
	}
	if err != nil {
		return contract.Refusal(contract.InvalidQuery, granted, "the query cannot be asked of this dataset")
	}
	return d
}

// reserve reads the facts and, where they are those that c goes by and still say yes, takes the call, its rows and its epsilon
// out of the budgets and the rate's window. All is taken or nothing, and with the facts in one transaction: who was revoked
// before it is refused, and of any number of callers no more pass than the contract lets.
func (c *call) reserve(ctx context.Context) error {
	id, granted, now := c.req.ContractID, c.v.contract, c.s.opts.Now()
	budget, draw := c.s.opts.Ceiling.budget(granted.CallBudget), c.draw(now)
	var d contract.Decision
	floor := c.s.seen.floor()
	err := c.s.opts.Store.UpdateRelaxed(ctx, func(tx store.Tx) (err error) {
		if c.facts, err = c.s.readFacts(tx, id, c.caller.DID, floor); err != nil {
			return err
		}
		if !c.facts.found || !c.facts.callerLost.IsZero() || !c.current() {
			return errStale
		}
		if d = c.evaluate(); !d.Allowed {
			return errRefused
		}
		if _, err := tx.Reserve(id, budget); err != nil {
			return err
		}
		if err := tx.Draw(id, draw); err != nil {
			return err
		}
		return c.remember(tx)
	})
	switch {
	case errors.Is(err, errRefused):
		c.s.seen.standing(&c.facts)
	case errors.Is(err, store.ErrBudget):
		d = contract.Refusal(contract.BudgetExhausted, granted, fmt.Sprintf("all %d calls are used", budget))
	case errors.Is(err, store.ErrRows):
		d = granted.RowRefusal(c.facts.Drawn.Rows + granted.Rows.RowBudget - draw.RowLimit)
	case errors.Is(err, store.ErrRate):
		d = granted.RateRefusal(now)
	case errors.Is(err, store.ErrEpsilon):
		d = granted.PrivacyRefusal()
	case err != nil:
		c.s.known.Remove(c.party())
		return fmt.Errorf("reserving the call: %w", err)
	default:
		c.s.seen.standing(&c.facts)
		c.s.seen.spent(&c.facts, draw)
		return nil
	}
	// The next call is refused before it waits for a place.
	c.s.known.Remove(c.party())
	return c.refuse(ctx, d)
}

// current says whether the facts are those that c goes by. A verdict that was found for this call stands whatever was revoked since:
// the facts say whether it was this contract, and others must not keep this call from its turn.
func (c *call) current() bool {
	f := c.facts
	if c.epoch != nil {
		f.Epoch = *c.epoch
	}
	return c.s.verdictKey(f, c.caller, nil).Equal(c.basis)
}

// draw is what this call takes beside itself.
func (c *call) draw(now time.Time) store.Draw {
	granted := c.v.contract
	d := store.Draw{Window: granted.Rate.Window(now).Unix(), WindowLimit: granted.Rate.Calls}
	if c.req.Rows() {
		d.Rows, d.RowLimit = int64(c.req.Limit), c.s.opts.Ceiling.rows(granted.Rows.RowBudget)
	}
	if granted.Noise != nil {
		d.Epsilon, _ = contract.MicroEpsilon(granted.Noise.EpsilonPerQuery)
		d.EpsilonLimit = c.s.opts.Ceiling.epsilon(granted.Noise.EpsilonTotal)
	}
	return d
}

var (
	errRevoked = errors.New("revoked")
	errExpired = errors.New("expired")
	errRefused = errors.New("refused")
	errStale   = errors.New("what is on record about the contract is changing; ask again")
)

// release signs the receipt and commits it with the event. Nothing of the answer leaves before that.
func (c *call) release(ctx context.Context, answer *query.Answer) (*datatools.QueryOutput, error) {
	result, err := canon.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	rcp := c.receipt()
	rcp.ContractDigest, rcp.ResultDigest = c.v.digest, canon.Sum(result)
	rcp.Rows, rcp.UsedRows, rcp.TotalRows = int64(len(answer.Rows)), answer.UsedRows, answer.TotalRows
	signed, err := c.sign(ctx, rcp)
	if err != nil {
		return nil, err
	}
	event := ledger.Entry{
		Type: ledger.CallAnswered, Context: c.facts.Contract.ContextID, Contract: c.req.ContractID, Peer: c.req.Caller,
		Data: ledger.Call{QueryDigest: c.digest, ResultDigest: rcp.ResultDigest, Rows: rcp.Rows, UsedRows: rcp.UsedRows, TotalRows: rcp.TotalRows, Caller: c.req.Caller},
	}
	// The crash argument: before this commit the caller has nothing and the call is only counted; after it the receipt is on
	// record, and an answer that did not arrive is one that the log shows as given.
	err = c.s.opts.Store.Update(ctx, func(tx store.Tx) error {
		gone, err := tx.Revoked(c.req.ContractID)
		if err != nil {
			return err
		}
		if gone || c.s.seen.isRevoked(c.req.ContractID) {
			return errRevoked
		}
		if until, err := contract.ParseTime(c.v.contract.ValidUntil); err != nil || !c.s.opts.Now().Before(until) {
			return errExpired
		}
		if err := tx.PutReceipt(store.Receipt{ID: rcp.ID, ContractID: rcp.ContractID, Result: rcp.ResultDigest, Bytes: signed, Created: c.s.opts.Now()}); err != nil {
			return err
		}
		if left := int64(c.req.Limit) - rcp.Rows; c.req.Rows() && left > 0 {
			if err := tx.ReturnRows(c.req.ContractID, left); err != nil {
				return err
			}
		}
		_, err = tx.Append(event)
		return err
	})
	switch {
	case errors.Is(err, errRevoked):
		c.s.seen.revoke(c.req.ContractID)
		return nil, c.refuse(ctx, contract.Refusal(contract.ContractRevoked, c.v.contract, "the contract was revoked while the query ran"))
	case errors.Is(err, errExpired):
		return nil, c.refuse(ctx, contract.Refusal(contract.ContractExpired, c.v.contract, "the contract ended while the query ran"))
	case err != nil:
		return nil, fmt.Errorf("recording the answer: %w", err)
	}
	if c.req.Rows() {
		c.s.seen.left(c.req.ContractID, rcp.Rows)
	}
	crashpoint.Hit(crashpoint.CallReceipt)
	return &datatools.QueryOutput{Result: result, Receipt: signed}, nil
}

// refuse records a refusal and returns it as an error. A refusal that cannot be recorded is a fault: either way the caller
// gets no data. Of a caller that is not the contract's buyer only so many are recorded; the others have no receipt.
func (c *call) refuse(ctx context.Context, d contract.Decision) error {
	party := c.v != nil && c.v.contract != nil && c.v.buyer
	also := ""
	if !party {
		var record bool
		if record, also = c.s.strangers.note(c.req.Caller, c.s.opts.Now()); !record {
			return &Refusal{Decision: d}
		}
	}
	rcp := c.receipt()
	rcp.Code = d.Code
	if party {
		rcp.ContractDigest = c.v.digest
	}
	signed, err := c.sign(ctx, rcp)
	if err != nil {
		return err
	}
	logged := d.Text
	if d.Note != "" {
		logged += " [" + d.Note + "]"
	}
	logged += also
	// The record must not depend on a caller that hangs up when it sees a refusal coming.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	err = c.s.opts.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.PutReceipt(store.Receipt{ID: rcp.ID, ContractID: rcp.ContractID, Bytes: signed, Created: c.s.opts.Now()}); err != nil {
			return err
		}
		_, err := tx.Append(ledger.Entry{
			Type: ledger.CallRefused, Context: c.facts.Contract.ContextID, Contract: rcp.ContractID, Peer: c.req.Caller,
			Data: ledger.CallRefusal{Code: string(d.Code), Text: logged, Caller: c.req.Caller},
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("recording the refusal: %w", err)
	}
	return &Refusal{Decision: d, Receipt: signed}
}

const recordTime = 30 * time.Second

// receipt begins the receipt of this call.
func (c *call) receipt() *contract.Receipt {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	id := c.req.ContractID
	if len(id) > contract.MaxID || contract.CheckColumnName(id) != nil {
		id = "" // a stranger's words that no receipt can hold
	}
	return &contract.Receipt{
		ID: contract.ReceiptID(random), ContractID: id, QueryDigest: c.digest, Time: contract.FormatTime(c.s.opts.Now()),
		Caller: c.req.Caller, DataPlane: c.s.id,
	}
}

func (c *call) sign(ctx context.Context, r *contract.Receipt) ([]byte, error) {
	if r.QueryDigest.IsZero() {
		r.QueryDigest = canon.Sum(nil) // a query without canonical form
	}
	if err := r.Sign(ctx, c.s.opts.Signer); err != nil {
		return nil, fmt.Errorf("signing the receipt: %w", err)
	}
	return r.Marshal()
}
