// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/text"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
)

// Record says what of a question goes into the event log.
type Record string

// What is recorded.
const (
	RecordNone    Record = "none"    // nothing
	RecordDigests Record = "digests" // that it was asked and answered, digests, tokens, errors
	RecordFull    Record = "full"    // and the texts, as far as an event holds them
)

// Config sets up a Model. BaseURL, Model, Transport, Log and Now are needed; zero numbers are the defaults named.
type Config struct {
	BaseURL    string // see CheckURL
	Model      string
	Key        string            // "": none is sent
	Transport  http.RoundTripper // see Transport
	Timeout    time.Duration     // of one question, every attempt included; 60 s
	MaxTokens  int               // of one answer; 1024
	Concurrent int               // questions at a time; 2
	PerHour    int               // calls about one peer; 60
	Record     Record            // "": RecordDigests
	Log        func(context.Context, ledger.Entry) error
	Now        func() time.Time
	Sleep      func(ctx context.Context, d time.Duration) error // between attempts; nil: time passes
}

// Model is a model behind an endpoint. It is safe for concurrent use.
type Model struct {
	cfg    Config
	at     *endpoint
	slots  chan struct{}
	budget budget
}

// Defaults and bounds.
const (
	DefaultTimeout    = 60 * time.Second
	DefaultMaxTokens  = 1024
	DefaultConcurrent = 2
	DefaultPerHour    = 60

	attempts      = 3 // at one call, while the endpoint is busy
	firstWait     = time.Second
	longestWait   = 20 * time.Second
	maxRecorded   = 12 << 10 // bytes of a text in an event
	maxPeers      = 1024     // told apart by the budget; further ones share one
	maxRepeated   = 4 << 10  // bytes of an unusable answer that the model is shown again
	maxComplained = 300      // bytes of what was wrong with it
)

// New makes a Model. It dials nothing. Errors match ErrEndpoint.
func New(cfg Config) (*Model, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxTokens <= 0 {
		cfg.MaxTokens = DefaultMaxTokens
	}
	if cfg.Concurrent <= 0 {
		cfg.Concurrent = DefaultConcurrent
	}
	if cfg.PerHour <= 0 {
		cfg.PerHour = DefaultPerHour
	}
	if cfg.Record == "" {
		cfg.Record = RecordDigests
	}
	if cfg.Sleep == nil {
		cfg.Sleep = clock.Sleep
	}
	if cfg.Model == "" {
		return nil, fmt.Errorf("%w: no model is named", ErrEndpoint)
	}
	at, err := newEndpoint(cfg.BaseURL, cfg.Key, cfg.Model, cfg.MaxTokens, cfg.Transport)
	if err != nil {
		return nil, err
	}
	cfg.Key = "" // the endpoint has it, in a form that does not print
	return &Model{cfg: cfg, at: at, slots: make(chan struct{}, cfg.Concurrent), budget: budget{perHour: cfg.PerHour, peers: map[did.DID]*rate.Limiter{}}}, nil
}

// Check asks the endpoint for its models: whether it answers, takes the key and, where it lists any, has this one.
func (m *Model) Check(ctx context.Context) (listed bool, err error) { return m.at.check(ctx) }

// Name is the model's.
func (m *Model) Name() string { return m.cfg.Model }

// question is one question and how its answer is read.
type question struct {
	peer    did.DID
	context string
	prompt
	shape object
	parse func(text string) error
}

// ask asks, once more with what was wrong if the answer cannot be used, and then gives up. Errors: ErrAnswer, ErrEndpoint, and
// negotiation.ErrNotNow when the budget is used up or the node stops.
func (m *Model) ask(ctx context.Context, q question) error {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return fmt.Errorf("decider: %w: too many questions at a time", negotiation.ErrNotNow)
	}
	messages := []turn{{"system", q.system}, {"user", q.user}}
	var wrong error
	for attempt := 1; attempt <= 2; attempt++ {
		if err := m.budget.take(q.peer, m.cfg.Now()); err != nil {
			return err
		}
		digest, err := m.asked(ctx, q, messages, attempt)
		if err != nil {
			return err
		}
		r, err := m.call(ctx, messages, q.shape)
		if outer.Err() != nil {
			return fmt.Errorf("decider: %w: %w", negotiation.ErrNotNow, outer.Err()) // nobody decided anything
		}
		if wrong = r.wrong; err == nil && wrong == nil {
			wrong = q.parse(r.text)
		}
		if logErr := m.answered(outer, q, digest, r, errors.Join(err, wrong), attempt); logErr != nil || err != nil {
			return errors.Join(err, logErr)
		}
		if wrong == nil {
			return nil
		}
		messages = append(messages, turn{"assistant", text.Clip(r.text, maxRepeated)}, turn{
			"user", "That cannot be used: " + text.Clip(wrong.Error(), maxComplained) + ". Answer again, with exactly the JSON object that was described and nothing else.",
		})
	}
	return fmt.Errorf("%w: %w", ErrAnswer, wrong)
}

// call asks until the endpoint is not busy any more, a bounded number of times.
func (m *Model) call(ctx context.Context, messages []turn, shape object) (reply, error) {
	wait := firstWait
	for attempt := 1; ; attempt++ {
		r, err := m.at.complete(ctx, messages, shape)
		var b *busy
		if !errors.As(err, &b) {
			return r, err
		}
		pause := max(wait, b.after)
		if deadline, ok := ctx.Deadline(); attempt == attempts || pause > longestWait || ok && time.Until(deadline) < pause {
			return reply{}, b.err
		}
		if m.cfg.Sleep(ctx, pause) != nil {
			return reply{}, b.err
		}
		wait *= 2
	}
}

// asked records the question before it leaves.
func (m *Model) asked(ctx context.Context, q question, messages []turn, attempt int) (canon.Digest, error) {
	var all strings.Builder
	for _, msg := range messages {
		all.WriteString(msg.Role + ":\n" + msg.Content + "\n")
	}
	digest := canon.Sum([]byte(all.String()))
	data := ledger.Question{Model: m.cfg.Model, Attempt: attempt, PromptDigest: digest}
	if m.cfg.Record == RecordFull {
		data.Prompt = text.Clip(all.String(), maxRecorded)
	}
	return digest, m.record(ctx, q, ledger.Entry{Type: ledger.ModelAsked, Data: data})
}

func (m *Model) answered(ctx context.Context, q question, prompt canon.Digest, r reply, err error, attempt int) error {
	data := ledger.ModelAnswer{
		Model: m.cfg.Model, Attempt: attempt, PromptDigest: prompt, PromptTokens: r.promptTokens, CompletionTokens: r.completeTokens,
	}
	if r.text != "" {
		data.AnswerDigest = canon.Sum([]byte(r.text))
	}
	if err != nil {
		data.Error = text.Clip(err.Error(), maxComplained)
	}
	if m.cfg.Record == RecordFull {
		data.Answer = text.Clip(r.text, maxRecorded)
	}
	return m.record(ctx, q, ledger.Entry{Type: ledger.ModelAnswered, Data: data})
}

func (m *Model) record(ctx context.Context, q question, e ledger.Entry) error {
	if m.cfg.Record == RecordNone {
		return nil
	}
	e.Context, e.Peer = q.context, q.peer.String()
	return m.cfg.Log(ctx, e)
}

// budget bounds the calls about one peer, and about all together to sixteen times as many. It begins anew with the process.
type budget struct {
	perHour int

	mu    sync.Mutex
	peers map[did.DID]*rate.Limiter
	all   *rate.Limiter
}

func (b *budget) limiters(peer did.DID) (own, all *rate.Limiter) {
	hourly := func(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(float64(n)/3600), max(n/4, 2)) }
	if b.all == nil {
		b.all = hourly(b.perHour * 16)
	}
	if b.peers[peer] == nil && len(b.peers) >= maxPeers {
		peer = did.DID{}
	}
	if b.peers[peer] == nil {
		b.peers[peer] = hourly(b.perHour)
	}
	return b.peers[peer], b.all
}

var errBudget = fmt.Errorf("decider: %w: the budget of model calls is used up", negotiation.ErrNotNow)

// has says whether a call is left. It takes none.
func (b *budget) has(peer did.DID, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own, all := b.limiters(peer); own.TokensAt(now) < 1 || all.TokensAt(now) < 1 {
		return errBudget
	}
	return nil
}

func (b *budget) take(peer did.DID, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own, all := b.limiters(peer); own.TokensAt(now) < 1 || !all.AllowN(now, 1) || !own.AllowN(now, 1) {
		return errBudget
	}
	return nil
}
