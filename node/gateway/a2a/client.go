// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/wellknown"
)

// Defaults of a client.
const (
	DefaultClientTimeout = 30 * time.Second
	DefaultMaxResponse   = 2 << 20
)

var (
	// ErrRedirect: the peer answered with a redirect. None is followed: a signature is for one address.
	ErrRedirect = errors.New("a2a: peer redirects")
	// ErrResponseTooLarge: the peer's answer exceeds the limit.
	ErrResponseTooLarge = errors.New("a2a: peer's answer is too large")
	// ErrBadAnswer: what came back is not an A2A answer to the request.
	ErrBadAnswer = errors.New("a2a: not an answer to the request")
	// ErrStatus: the peer answered with an HTTP status that carries no A2A error.
	ErrStatus = errors.New("a2a: unexpected HTTP status")
)

// TransportError says that no usable answer arrived. Whether the peer acted is not known: the same bytes can be sent again and
// have one effect. Err is ErrRedirect, ErrResponseTooLarge, ErrBadAnswer, ErrStatus, or what the connection failed of.
type TransportError struct {
	Status int    // HTTP status, 0 when there was none
	Code   string // ANP-02's code, from WWW-Authenticate or the body of a refused request, if any
	Err    error
}

func (e *TransportError) Error() string {
	switch {
	case e.Code != "":
		return fmt.Sprintf("%v %d (%s)", e.Err, e.Status, e.Code)
	case e.Status != 0 && e.Status != http.StatusOK:
		return fmt.Sprintf("%v %d", e.Err, e.Status)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *TransportError) Unwrap() error { return e.Err }

// PeerError is an A2A error that is not a refusal of an envelope. errors.Is finds the kind among the errors of a2a-go.
type PeerError struct {
	Kind error
	Text string // the peer's words, bounded
}

func (e *PeerError) Error() string { return "a2a: peer answers: " + e.Text }

// Unwrap returns the kind.
func (e *PeerError) Unwrap() error { return e.Kind }

// ClientConfig sets up a client.
type ClientConfig struct {
	Card        *wellknown.VerifiedCard // whom to talk to
	HTTP        *http.Client            // its Transport must be guarded and sign; its redirect policy and timeout are not used
	Binding     string                  // as agreed: wellknown.BindingJSONRPC (default) or BindingHTTPJSON
	Timeout     time.Duration           // of one exchange; 0 = 30 s
	MaxResponse int64                   // bytes of one answer; 0 = 2 MiB
}

// Client sends envelopes to one peer. It is safe for concurrent use.
type Client struct {
	client *a2aclient.Client
	iface  wellknown.Interface
}

// NewClient makes a client from a verified card. It dials nothing. Errors: wellknown.ErrNoInterface, wellknown.ErrNoExtension.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Card == nil || cfg.Card.Card == nil || cfg.Card.Agent.IsZero() {
		return nil, errors.New("a2a: a verified card is needed")
	}
	if cfg.HTTP == nil || cfg.HTTP.Transport == nil {
		return nil, errors.New("a2a: an HTTP client with a guarded transport is needed")
	}
	if _, ok := cfg.Card.Extension(wellknown.ExtensionURI); !ok {
		return nil, wellknown.ErrNoExtension
	}
	if cfg.Binding == "" {
		cfg.Binding = wellknown.BindingJSONRPC
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultClientTimeout
	}
	if cfg.MaxResponse == 0 {
		cfg.MaxResponse = DefaultMaxResponse
	}
	iface, err := cfg.Card.Interface(cfg.Binding)
	if err != nil {
		return nil, err
	}
	hc := &http.Client{
		Transport:     &boundedTransport{base: cfg.HTTP.Transport, binding: cfg.Binding, max: cfg.MaxResponse},
		Timeout:       cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return ErrRedirect },
	}
	transport := a2aclient.WithJSONRPCTransport(hc)
	if cfg.Binding == wellknown.BindingHTTPJSON {
		transport = a2aclient.WithRESTTransport(hc)
	}
	client, err := a2aclient.NewFromEndpoints(context.Background(), []*sdk.AgentInterface{{
		URL: iface.URL, ProtocolBinding: sdk.TransportProtocol(iface.ProtocolBinding),
		ProtocolVersion: sdk.ProtocolVersion(iface.ProtocolVersion), Tenant: iface.Tenant,
	}}, a2aclient.WithDefaultsDisabled(), transport)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", wellknown.ErrNoInterface, err)
	}
	return &Client{client: client, iface: iface}, nil
}

// Interface returns the interface that the client talks to.
func (c *Client) Interface() wellknown.Interface { return c.iface }

// SendEnvelope sends one envelope and returns the negotiation as the peer then shows it. contextID and taskID may be empty;
// they are hints to the peer, and an answer about others is ErrBadAnswer. What the reply says counts only once its envelope
// has been verified.
//
// Errors: *envelope.Refusal when the peer refused the envelope; *PeerError for other A2A errors; *TransportError when no
// usable answer arrived.
func (c *Client) SendEnvelope(ctx context.Context, contextID, taskID string, envelope []byte) (Reply, error) {
	msg := envelopeMessage(sdk.MessageRoleUser, envelope)
	msg.ContextID, msg.TaskID = contextID, sdk.TaskID(taskID)
	result, err := c.client.SendMessage(withExtension(ctx), &sdk.SendMessageRequest{Message: msg})
	if err != nil {
		return Reply{}, translate(err)
	}
	task, ok := result.(*sdk.Task)
	if !ok {
		return Reply{}, &TransportError{Err: fmt.Errorf("%w: a message instead of a task", ErrBadAnswer)}
	}
	return replyFrom(task, contextID, taskID)
}

// Lookup asks the peer how a negotiation stands. Errors as [Client.SendEnvelope].
func (c *Client) Lookup(ctx context.Context, taskID string) (Reply, error) {
	task, err := c.client.GetTask(withExtension(ctx), &sdk.GetTaskRequest{ID: sdk.TaskID(taskID)})
	if err != nil {
		return Reply{}, translate(err)
	}
	return replyFrom(task, "", taskID)
}

// Probe asks for a task that there cannot be, which changes nothing over there. It returns nil when the peer says so: it has then
// verified who asks, and let it in. Errors as [Client.SendEnvelope].
func (c *Client) Probe(ctx context.Context) error {
	_, err := c.Lookup(ctx, rand.Text())
	if errors.Is(err, sdk.ErrTaskNotFound) {
		return nil
	}
	if err == nil {
		return &TransportError{Err: fmt.Errorf("%w: a task that nobody made", ErrBadAnswer)}
	}
	return err
}

func withExtension(ctx context.Context) context.Context {
	return a2aclient.AttachServiceParams(ctx, a2aclient.ServiceParams{
		sdk.SvcParamExtensions: {wellknown.ExtensionURI},
	})
}

// translate sorts what the library returns into the three kinds of error.
func translate(err error) error {
	var transport *TransportError
	if errors.As(err, &transport) {
		return transport
	}
	if refusal := refusalFrom(err); refusal != nil {
		return refusal
	}
	var answered *sdk.Error
	if errors.As(err, &answered) && answered.Err != nil {
		return &PeerError{Kind: answered.Err, Text: clean(answered.Error())}
	}
	return &TransportError{Err: fmt.Errorf("%w: %w", ErrBadAnswer, err)}
}

func replyFrom(task *sdk.Task, contextID, taskID string) (Reply, error) {
	bad := func(what string) (Reply, error) {
		return Reply{}, &TransportError{Err: fmt.Errorf("%w: %s", ErrBadAnswer, what)}
	}
	r := Reply{TaskID: string(task.ID), ContextID: task.ContextID}
	if r.TaskID == "" || len(r.TaskID) > maxID || len(r.ContextID) > maxID {
		return bad("task without a usable id")
	}
	if taskID != "" && r.TaskID != taskID || contextID != "" && r.ContextID != contextID {
		return bad("a task of another conversation")
	}
	for state, name := range states {
		if name == task.Status.State {
			r.State = state
		}
	}
	if r.State == "" {
		return bad("a task state that no negotiation has")
	}
	if task.Status.Timestamp != nil {
		r.Updated = *task.Status.Timestamp
	}
	var err error
	for _, artifact := range task.Artifacts {
		if artifact == nil || !slices.Contains(artifact.Extensions, wellknown.ExtensionURI) {
			continue
		}
		if r.Envelope != nil {
			return bad("two contract artifacts")
		}
		if r.Envelope, err = envelopeIn(artifact.Parts); err != nil || r.Envelope == nil {
			return bad("a contract artifact without exactly one envelope")
		}
		r.Artifact = true
	}
	if m := task.Status.Message; r.Envelope == nil && m != nil {
		if r.Envelope, err = envelopeIn(m.Parts); err != nil {
			return bad("a status message without exactly one envelope")
		}
	}
	return r, nil
}

// boundedTransport reads every answer whole, within a limit, as strict JSON, and turns everything that is not an A2A answer into
// a TransportError before the library can reduce it to a string.
type boundedTransport struct {
	base    http.RoundTripper
	binding string
	max     int64
}

// RoundTrip implements http.RoundTripper.
func (t *boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, &TransportError{Err: err}
	}
	defer resp.Body.Close()
	var body []byte
	failed := func(err error) (*http.Response, error) {
		return nil, &TransportError{Status: resp.StatusCode, Code: authCode(resp.Header, body), Err: err}
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return failed(ErrRedirect)
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, t.max+1))
	if err != nil {
		return failed(err)
	}
	if int64(len(body)) > t.max {
		body = nil
		return failed(ErrResponseTooLarge)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	isJSON := kind == "application/json" || kind == "application/a2a+json"
	if resp.StatusCode != http.StatusOK && (t.binding == wellknown.BindingJSONRPC || !isJSON || !isStatusError(body)) {
		return failed(ErrStatus)
	}
	if !isJSON {
		return failed(fmt.Errorf("%w: %q", ErrBadAnswer, clean(kind)))
	}
	if err := canon.Check(body, canon.Limits{MaxBytes: int(t.max), MaxDepth: maxDepth}); err != nil {
		return failed(fmt.Errorf("%w: %w", ErrBadAnswer, err))
	}
	resp.Header.Set("Content-Type", "application/json") // the library reads errors of that type only
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	return resp, nil
}

// isStatusError says whether a body is a google.rpc.Status with details, as HTTP+JSON errors are (A2A section 11.6).
func isStatusError(body []byte) bool {
	var status struct {
		Error struct {
			Code   int    `json:"code"`
			Status string `json:"status"`
		} `json:"error"`
	}
	return canon.UnmarshalOpen(body, &status, canon.Limits{}) == nil && status.Error.Status != ""
}

// authCode finds the code with which an ANP-02 verifier refused the request, "" when it did not.
func authCode(header http.Header, body []byte) string {
	if challenge, ok := httpsig.ParseChallenge(header); ok {
		return clean(string(challenge.Code))
	}
	var refused struct {
		Error any `json:"error"`
		Code  any `json:"code"`
	}
	if canon.UnmarshalOpen(body, &refused, canon.Limits{}) != nil {
		return ""
	}
	if code, ok := refused.Error.(string); ok {
		return clean(code)
	}
	code, _ := refused.Code.(string) // did_superseded stands here
	return clean(code)
}
