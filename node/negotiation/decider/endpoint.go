// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ErrEndpoint is matched by every error about an endpoint: where it may be, and that it does not answer.
var ErrEndpoint = errors.New("decider: endpoint")

const maxResponse = 1 << 20 // bytes of one HTTP answer

// CheckURL says whether a model may be asked at base: an https URL, or plain http on this machine.
func CheckURL(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%w: not a plain URL such as https://models.example/v1", ErrEndpoint)
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%w: https is needed, but for a model on this machine", ErrEndpoint)
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// endpoint is where the model is. What is used of the interface, one request and one answer, is small enough to be written out
// here; the official client takes minutes to compile and settings from the environment.
type endpoint struct {
	http  *http.Client
	base  string
	key   secret
	model string
	max   int
	// plain: it does not know structured output by schema, nor the newer name of the token limit.
	plain atomic.Bool
}

func newEndpoint(base, key, model string, maxTokens int, transport http.RoundTripper) (*endpoint, error) {
	if err := CheckURL(base); err != nil {
		return nil, err
	}
	base = strings.TrimSuffix(base, "/") + "/"
	client := &http.Client{
		Transport:     bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the key is for one place
	}
	return &endpoint{http: client, base: base, key: secret(key), model: model, max: maxTokens}, nil
}

// Transport is what an endpoint is dialled with: no proxy from the environment, and a "localhost" that is this machine.
func Transport(base *http.Transport) *http.Transport {
	t := base.Clone()
	t.Proxy = nil
	dial := (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(addr); err == nil && host == "localhost" {
			addr = net.JoinHostPort("127.0.0.1", port)
		}
		return dial(ctx, network, addr)
	}
	return t
}

// bounded reads no more of an answer than there may be.
type bounded struct{ base http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxResponse), resp.Body}
	return resp, nil
}

// secret does not print.
type secret string

// Format implements fmt.Formatter.
func (secret) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "[secret]") }

// turn is one message of a conversation with a model.
type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// request is a chat completion's.
type request struct {
	Model               string `json:"model"`
	Messages            []turn `json:"messages"`
	MaxTokens           int    `json:"max_tokens,omitempty"`
	MaxCompletionTokens int    `json:"max_completion_tokens,omitempty"`
	ResponseFormat      object `json:"response_format"`
}

// reply is what came back: the model's words, or what is wrong with them.
type reply struct {
	text                         string
	promptTokens, completeTokens int64
	wrong                        error // the model answered, and not usably
}

// busy is an endpoint that may be asked again.
type busy struct {
	err   error
	after time.Duration // it asks for, 0 if it does not say
}

func (b *busy) Error() string { return b.err.Error() }
func (b *busy) Unwrap() error { return b.err }

// complete asks once. The error is *busy, or final.
func (e *endpoint) complete(ctx context.Context, messages []turn, shape object) (reply, error) {
	for {
		plain := e.plain.Load()
		raw, status, header, err := e.post(ctx, messages, shape, plain)
		switch {
		case ctx.Err() != nil:
			return reply{}, fmt.Errorf("%w: no answer in time", ErrEndpoint)
		case !plain && (status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusUnprocessableEntity):
			e.plain.Store(true)
			continue
		case status == http.StatusTooManyRequests || status >= 500 || status == http.StatusRequestTimeout:
			return reply{}, &busy{fmt.Errorf("%w: status %d", ErrEndpoint, status), retryAfter(header)}
		case status == 0:
			return reply{}, &busy{err: fmt.Errorf("%w: cannot be reached", ErrEndpoint)}
		case status != http.StatusOK:
			return reply{}, fmt.Errorf("%w: status %d%s", ErrEndpoint, status, mend(status))
		case err != nil:
			return reply{}, &busy{err: fmt.Errorf("%w: the answer broke off", ErrEndpoint)}
		}
		return parseReply(raw), nil
	}
}

func mend(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ": it refuses the key"
	case http.StatusNotFound:
		return ": there is no such model, or base_url is wrong"
	}
	return ""
}

func (e *endpoint) post(ctx context.Context, messages []turn, shape object, plain bool) (raw []byte, status int, header http.Header, err error) {
	body := request{Model: e.model, Messages: messages}
	if plain {
		body.MaxTokens, body.ResponseFormat = e.max, object{"type": "json_object"}
	} else {
		body.MaxCompletionTokens = e.max
		body.ResponseFormat = object{"type": "json_schema", "json_schema": object{"name": "answer", "strict": true, "schema": shape}}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, 0, nil, err
	}
	resp, err := e.send(ctx, http.MethodPost, "chat/completions", bytes.NewReader(data))
	if err != nil {
		return nil, 0, nil, err
	}
	defer resp.Body.Close()
	raw, err = io.ReadAll(resp.Body)
	return raw, resp.StatusCode, resp.Header, err
}

func (e *endpoint) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if e.key != "" {
		req.Header.Set("Authorization", "Bearer "+string(e.key))
	}
	return e.http.Do(req)
}

// retryAfter reads the header in seconds; a date, or nonsense, is no wish.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 || n > 24*60*60 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// parseReply takes the model's words out of a chat completion. encoding/json refuses an object where a text belongs.
func parseReply(raw []byte) reply {
	var c struct {
		Choices []struct {
			FinishReason *string `json:"finish_reason"`
			Message      struct {
				Content   *string           `json:"content"`
				Refusal   *string           `json:"refusal"`
				ToolCalls []json.RawMessage `json:"tool_calls"`
				Function  json.RawMessage   `json:"function_call"`
			} `json:"message"`
		} `json:"choices"`
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return reply{wrong: errors.New("the endpoint's answer is no chat completion")}
	}
	r := reply{promptTokens: max(c.Usage.Prompt, 0), completeTokens: max(c.Usage.Completion, 0)}
	if len(c.Choices) != 1 {
		r.wrong = fmt.Errorf("%d answers instead of one", len(c.Choices))
		return r
	}
	m, finish := c.Choices[0].Message, ""
	if f := c.Choices[0].FinishReason; f != nil {
		finish = *f
	}
	if m.Content != nil {
		r.text = *m.Content
	}
	switch {
	case m.Refusal != nil && *m.Refusal != "" || finish == "content_filter":
		r.wrong = errors.New("the model refuses")
	case len(m.ToolCalls) > 0 || len(m.Function) > 0 && string(m.Function) != "null" || finish == "tool_calls" || finish == "function_call":
		r.wrong = errors.New("the model calls a tool; there is none")
	case finish == "length":
		r.wrong = errors.New("the answer was cut off")
	case strings.TrimSpace(r.text) == "":
		r.wrong = errors.New("the answer is empty")
	}
	return r
}

// check asks for the list of models, which costs nothing. Endpoints without one say 404.
func (e *endpoint) check(ctx context.Context) (found bool, err error) {
	resp, err := e.send(ctx, http.MethodGet, "models", http.NoBody)
	if err != nil {
		return false, fmt.Errorf("%w: cannot be reached", ErrEndpoint)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return false, nil
	default:
		return false, fmt.Errorf("%w: status %d%s", ErrEndpoint, resp.StatusCode, mend(resp.StatusCode))
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return false, fmt.Errorf("%w: its list of models cannot be read", ErrEndpoint)
	}
	for _, m := range list.Data {
		if m.ID == e.model {
			return true, nil
		}
	}
	return false, fmt.Errorf("%w: it lists no model of this name", ErrEndpoint)
}
