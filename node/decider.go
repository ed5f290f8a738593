// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/decider"
)

// Decider says who decides in negotiations, within policy and needs. Without it code decides alone.
type Decider struct {
	// Kind is policy (default), or openai: a model at an endpoint that speaks OpenAI's chat completions.
	Kind string `yaml:"kind,omitempty"`
	// BaseURL is the endpoint, such as https://models.example/v1: https, or http on this machine. Default: OPENAI_BASE_URL.
	BaseURL string `yaml:"base_url,omitempty"`
	// Model is the model's name. Default: OPENAI_MODEL.
	Model string `yaml:"model,omitempty"`
	// APIKeyEnv names the environment variable with the key (default OPENAI_API_KEY), APIKeyFile a file that only its owner may read.
	APIKeyEnv  string `yaml:"api_key_env,omitempty"`
	APIKeyFile string `yaml:"api_key_file,omitempty"`
	// Timeout is for one decision (default 60s).
	Timeout time.Duration `yaml:"timeout,omitempty"`
	// MaxTokens of one answer (default 1024).
	MaxTokens int `yaml:"max_tokens,omitempty"`
	// Concurrent is how many decisions are made at a time (default 2).
	Concurrent int `yaml:"concurrent,omitempty"`
	// CallsPerHour is how often the model may be called about one counterparty (default 60).
	CallsPerHour int `yaml:"calls_per_hour,omitempty"`
	// Record says what the event log has of it: none, digests (default) or full.
	Record string `yaml:"record,omitempty"`
	// ReadText lets the model read how a counterparty that sends only text would like to talk.
	ReadText bool `yaml:"read_text,omitempty"`
}

const (
	deciderPolicy = "policy"
	deciderOpenAI = "openai"

	maxModelTokens = 32768
	maxModelCalls  = 100_000
	maxAPIKey      = 4096
)

func (d *Decider) validate() error {
	switch d.Kind {
	case "", deciderPolicy:
		if *d != (Decider{Kind: d.Kind}) {
			return errors.New("decider: the other keys are for kind: openai")
		}
		return nil
	case deciderOpenAI:
	default:
		return fmt.Errorf("decider.kind: %q is neither policy nor openai", d.Kind)
	}
	if d.BaseURL != "" {
		if err := decider.CheckURL(d.BaseURL); err != nil {
			return fmt.Errorf("decider.base_url: %w", err)
		}
	}
	if d.APIKeyEnv != "" && d.APIKeyFile != "" {
		return errors.New("decider: api_key_env and api_key_file exclude each other")
	}
	switch decider.Record(d.Record) {
	case "", decider.RecordNone, decider.RecordDigests, decider.RecordFull:
	default:
		return fmt.Errorf("decider.record: %q is none of none, digests, full", d.Record)
	}
	if d.Timeout < 0 || d.Timeout > 10*time.Minute {
		return errors.New("decider.timeout: not between 0 and 10m")
	}
	if d.MaxTokens < 0 || d.MaxTokens > maxModelTokens || d.Concurrent < 0 || d.Concurrent > 64 || d.CallsPerHour < 0 || d.CallsPerHour > maxModelCalls {
		return fmt.Errorf("decider: max_tokens is at most %d, concurrent 64, calls_per_hour %d", maxModelTokens, maxModelCalls)
	}
	return nil
}

// key reads the key, which stays out of the configuration and of every message about it.
func (d *Decider) key(dir string) (string, error) {
	if d.APIKeyFile != "" {
		path := Path(dir, d.APIKeyFile)
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("decider.api_key_file: %w", err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			return "", fmt.Errorf("decider.api_key_file: others can read %s; chmod 600 it", path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("decider.api_key_file: %w", err)
		}
		return checkKey("api_key_file", strings.TrimSpace(string(data)))
	}
	if d.APIKeyEnv != "" {
		return checkKey("api_key_env", strings.TrimSpace(os.Getenv(d.APIKeyEnv)))
	}
	if key := strings.TrimSpace(os.Getenv("OPENAI_API_KEY")); key != "" {
		return checkKey("OPENAI_API_KEY", key)
	}
	return "", nil // models on this machine often want none
}

func checkKey(from, key string) (string, error) {
	ok := key != "" && len(key) <= maxAPIKey
	for i := range len(key) {
		ok = ok && key[i] > ' ' && key[i] < 0x7f
	}
	if !ok {
		return "", fmt.Errorf("decider: %s holds no key", from)
	}
	return key, nil
}

// openModel makes the model that the configuration names, nil when code decides alone.
func (n *Node) openModel() (*decider.Model, error) {
	d := &n.cfg.Decider
	if d.Kind != deciderOpenAI {
		return nil, nil //nolint:nilnil // no model is the usual case
	}
	key, err := d.key(n.dir)
	if err != nil {
		return nil, err
	}
	roots, err := LoadRoots(Path(n.dir, n.cfg.CA))
	if err != nil {
		return nil, err
	}
	transport := decider.Transport(http.DefaultTransport.(*http.Transport)) //nolint:forcetypeassert // the standard library's
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	model, err := decider.New(decider.Config{
		BaseURL: or(d.BaseURL, os.Getenv("OPENAI_BASE_URL")), Model: or(d.Model, os.Getenv("OPENAI_MODEL")), Key: key, Transport: transport,
		Timeout: d.Timeout, MaxTokens: d.MaxTokens, Concurrent: d.Concurrent, PerHour: d.CallsPerHour, Record: decider.Record(d.Record),
		Log: func(ctx context.Context, e ledger.Entry) error { return n.record(ctx, e) }, Now: n.clock.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("decider: %w (base_url and model stand in %s, or in OPENAI_BASE_URL and OPENAI_MODEL)", err, ConfigFile)
	}
	return model, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// advised lets the model have its say in nego.
func (n *Node) advised(nego *negotiation.Config) {
	if n.model == nil {
		return
	}
	nego.Adviser = decider.Buyer{Model: n.model}
	if n.offer != nil {
		nego.Drafter = decider.Vendor{Model: n.model, Schema: func(id string) *contract.Schema { return n.offer.schemas[id] }}
		nego.Later = n.conclude
	}
	if n.cfg.Decider.ReadText {
		nego.Reader = decider.Reader{Model: n.model, Policy: n.cfg.MetaPolicy}
	}
}

// conclude answers a stored proposal in the background for as long as the node runs.
func (n *Node) conclude(contextID string) {
	n.driving.Go(func() {
		err := n.nego.Conclude(n.life, contextID)
		switch {
		case err == nil, n.life.Err() != nil, errors.Is(err, negotiation.ErrBusy):
		case errors.Is(err, negotiation.ErrNotNow):
			n.log.Warn("the decider cannot be asked now", "contextId", contextID, "err", err)
		default:
			n.log.Error("a proposal waits for its answer", "contextId", contextID, "err", err)
		}
	})
}

// concludeAll goes on with every proposal that was not answered yet.
func (n *Node) concludeAll(ctx context.Context) error {
	if n.offer == nil {
		return nil
	}
	ids, err := n.nego.Undecided(ctx)
	for _, id := range ids {
		n.conclude(id)
	}
	return err
}

// decider asks whether the model can be reached.
func (e *examination) decider(ctx context.Context) {
	const name = "decider"
	if e.n.model == nil {
		e.ok(name, "policy: code alone decides")
		return
	}
	listed, err := e.n.model.Check(ctx)
	switch {
	case err != nil:
		e.fail(name, "check decider in "+ConfigFile+"; negotiations fail while no model answers", "%v", err)
	case listed:
		e.ok(name, "the endpoint answers and has the model %s", e.n.model.Name())
	default:
		e.ok(name, "the endpoint answers; it lists no models, so that %s was not looked up", e.n.model.Name())
	}
}
