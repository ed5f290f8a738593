// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/internal/text"
)

// ReportType is the type of a report.
const ReportType = "TreatyDrillReport"

// Bounds of a report.
const (
	MaxBytes    = 128 << 10
	MaxTimeline = 64
	MaxText     = 500 // bytes of one observation

	timeLayout = "2006-01-02T15:04:05.000Z"
)

// Result of a check.
type Result string

// Results.
const (
	Held       Result = "held"
	Broken     Result = "broken"
	NotChecked Result = "not-checked"
)

// Check is one promise and what was seen of it.
type Check struct {
	Phase    Phase  `json:"phase"`
	Name     string `json:"name"`
	Side     Side   `json:"side"` // who looked
	Result   Result `json:"result"`
	Observed string `json:"observed"` // at most 500 bytes
	At       string `json:"at"`       // RFC 3339 in UTC with milliseconds; "" when it was not checked
}

// Moment is a line of the timeline.
type Moment struct {
	At   string `json:"at"` // as above
	Side Side   `json:"side"`
	What string `json:"what"`
}

// Latency is how long queries took in one phase, in microseconds, from the first attempt to the answer.
type Latency struct {
	Phase Phase `json:"phase"`
	Count int   `json:"count"`
	P50   int64 `json:"p50Micros"`
	P99   int64 `json:"p99Micros"`
	Max   int64 `json:"maxMicros"`
}

// LoadResult is what became of the queries that ran under the drill.
type LoadResult struct {
	PerSecond int       `json:"perSecond"` // as agreed
	Requests  int       `json:"requests"`
	Repeated  int       `json:"repeated"` // needed more than one attempt
	Lost      int       `json:"lost"`     // never got their right answer
	FirstLoss string    `json:"firstLoss"`
	Latencies []Latency `json:"latencies"`
}

// Report is what a drill has shown.
type Report struct {
	Type         string      `json:"type"` // ReportType
	Version      int         `json:"version"`
	ID           string      `json:"id"`
	Terms        Terms       `json:"terms"`
	GraceSeconds int         `json:"graceSeconds"` // of the drill's own messages
	Proves       string      `json:"proves"`
	Subject      string      `json:"subject"`   // DID of the node whose drill it is, when it signed
	Identity     string      `json:"identity"`  // DID whose keys rotated
	Successor    string      `json:"successor"` // DID that it moved to, "" when it did not
	Counterparty string      `json:"counterparty"`
	Contract     string      `json:"contract"` // under which queries ran, "" for none
	Timeline     []Moment    `json:"timeline"`
	Checks       []Check     `json:"checks"`
	Load         *LoadResult `json:"load"` // null: none
	Held         int         `json:"held"`
	Broken       int         `json:"broken"`
	NotChecked   int         `json:"notChecked"`
	// Documents are the two signers' DID documents, as text: the subject's, then the counterparty's.
	Documents []string    `json:"documents"`
	Proofs    []did.Proof `json:"proofs,omitempty"` // the subject's, then the counterparty's
}

// ErrReport wraps every error of a report.
var ErrReport = errors.New("drill: report")

var idForm = regexp.MustCompile(`^drl_[A-Za-z0-9_-]{1,60}$`)

// ValidID says whether a drill may be called that. Reports are files of this name.
func ValidID(id string) bool { return idForm.MatchString(id) }

// Parse reads a report strictly and holds it against its own plan.
func Parse(data []byte) (*Report, error) {
	var r Report
	if err := canon.Unmarshal(data, &r, canon.Limits{MaxBytes: MaxBytes, MaxDepth: 12}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReport, err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReport, err)
	}
	return &r, nil
}

func (r *Report) check() error {
	if r.Type != ReportType || r.Version != 1 || !ValidID(r.ID) || len(r.Timeline) > MaxTimeline || len(r.Documents) != 2 || len(r.Proofs) > 2 {
		return errors.New("it is not in the one form that there is")
	}
	if err := r.Terms.Check(); err != nil {
		return err
	}
	plan := Plan(r.Terms)
	if len(plan) != len(r.Checks) {
		return fmt.Errorf("it has %d checks, its plan has %d", len(r.Checks), len(plan))
	}
	count := map[Result]int{}
	for i, c := range r.Checks {
		if p := plan[i]; c.Phase != p.Phase || c.Name != p.Name || c.Side != p.Side {
			return fmt.Errorf("check %d is not %s of the plan", i, p.Name)
		}
		if c.Result != Held && c.Result != Broken && c.Result != NotChecked || len(c.Observed) > MaxText {
			return fmt.Errorf("check %d has no result", i)
		}
		if (c.Result == NotChecked) != (plan[i].NotHere != "") {
			return fmt.Errorf("check %d is left out, or should have been", i)
		}
		if l := r.Load; c.Name == NothingLost && c.Result == Held && (l == nil || l.Requests == 0 || l.Lost > 0) {
			return fmt.Errorf("check %d does not follow from the load", i)
		}
		count[c.Result]++
	}
	if count[Held] != r.Held || count[Broken] != r.Broken || count[NotChecked] != r.NotChecked {
		return errors.New("the counts are not those of the checks")
	}
	return nil
}

// Check holds terms to what there is.
func (t Terms) Check() error {
	switch {
	case !slices.Contains(Kinds(), t.Kind):
		return fmt.Errorf("kind %q is none of %v", t.Kind, Kinds())
	case t.Mode != Live && t.Mode != Rehearsal:
		return fmt.Errorf("mode %q is neither %s nor %s", t.Mode, Live, Rehearsal)
	case t.Mode == Live && t.Kind == Recovery:
		return errors.New("a recovery key is out of the node's reach: recovery is rehearsed, or done in earnest with `treaty rotate binding --recovery-key`")
	case t.Buyer != "" && t.Buyer != Subject && t.Buyer != Counterparty:
		return fmt.Errorf("side %q", t.Buyer)
	case t.Load < 0 || t.Load > MaxLoad:
		return fmt.Errorf("a load of %d queries a second is not between 0 and %d", t.Load, MaxLoad)
	}
	return nil
}

// Marshal returns the canonical form, with the proofs there are.
func (r *Report) Marshal() ([]byte, error) { return canon.Marshal(r) }

// Body returns the canonical form without proofs: what is signed.
func (r *Report) Body() ([]byte, error) {
	bare := *r
	bare.Proofs = nil
	return canon.Marshal(&bare)
}

// Digest is plain SHA-256 over Body.
func (r *Report) Digest() (canon.Digest, error) {
	body, err := r.Body()
	return canon.Sum(body), err
}

// Sign adds a proof, by a node's binding key. The subject signs first.
func (r *Report) Sign(ctx context.Context, s did.Signer, at time.Time) error {
	body, err := r.Body()
	if err != nil {
		return err
	}
	p, err := did.SignObject(ctx, body, s, at)
	if err != nil {
		return err
	}
	r.Proofs = append(r.Proofs, p)
	return nil
}

// VerifyProofs verifies what proofs there are: with both, nil means that the two nodes have signed this very report. The documents
// in it are held against the fingerprints of the DIDs, so that nothing else is needed.
func (r *Report) VerifyProofs(want int) error {
	if len(r.Proofs) != want {
		return fmt.Errorf("%w: %d proofs, want %d", ErrReport, len(r.Proofs), want)
	}
	if a, aErr := did.Parse(r.Subject); aErr == nil && want > 1 {
		if b, err := did.Parse(r.Counterparty); err == nil && (a == b || did.SameSubject(a, b)) {
			return fmt.Errorf("%w: both signers are the same node", ErrReport)
		}
	}
	body, err := r.Body()
	if err != nil {
		return err
	}
	for i, who := range []string{r.Subject, r.Counterparty}[:want] {
		doc, err := did.ParseDocument([]byte(r.Documents[i]))
		if err != nil {
			return fmt.Errorf("%w: document of %s: %w", ErrReport, who, err)
		}
		if doc.ID().String() != who || doc.ID().Fingerprint() == "" {
			return fmt.Errorf("%w: document %d is not that of %s, or nothing binds it to its keys", ErrReport, i, who)
		}
		v, err := doc.Verify(doc.ProofCreated())
		if err != nil {
			return fmt.Errorf("%w: document of %s: %w", ErrReport, who, err)
		}
		kid, err := doc.BindingKeyID()
		if err != nil || v.ProofKeyID != kid || r.Proofs[i].VerificationMethod != kid {
			return fmt.Errorf("%w: proof %d is not by the binding key of %s", ErrReport, i, who)
		}
		m, _ := doc.Method(kid)
		if err := did.VerifyObject(body, r.Proofs[i], m.Key); err != nil {
			return fmt.Errorf("%w: proof of %s: %w", ErrReport, who, err)
		}
	}
	return nil
}

// Passed says whether every promise that was looked at held.
func (r *Report) Passed() bool { return r.Broken == 0 }

// Stamp is a time as reports write it.
func Stamp(t time.Time) string { return t.UTC().Format(timeLayout) }

// Clip bounds an observation.
func Clip(s string) string { return text.Clip(s, MaxText) }

// Observations is what one side saw in one phase; what travels from the counterparty.
type Observations struct {
	Drill  string      `json:"drill"`
	Phase  Phase       `json:"phase"`
	Checks []Check     `json:"checks"`
	Load   *LoadResult `json:"load"`
}

// ParseObservations reads them strictly.
func ParseObservations(data []byte) (*Observations, error) {
	var o Observations
	if err := canon.Unmarshal(data, &o, canon.Limits{MaxBytes: MaxBytes, MaxDepth: 10}); err != nil {
		return nil, fmt.Errorf("%w: observations: %w", ErrReport, err)
	}
	if len(o.Checks) > 32 || len(o.Drill) > 64 || o.Load != nil && len(o.Load.Latencies) > 8 {
		return nil, fmt.Errorf("%w: observations: too many", ErrReport)
	}
	for _, c := range o.Checks {
		if len(c.Observed) > MaxText || len(c.At) > 40 || c.Result != Held && c.Result != Broken {
			return nil, fmt.Errorf("%w: observations: a check without a result", ErrReport)
		}
	}
	return &o, nil
}
