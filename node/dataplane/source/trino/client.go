// SPDX-License-Identifier: Apache-2.0

package trino

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/treaty-node/treaty/node/dataplane/source"
)

// client speaks the protocol of a Trino coordinator: POST /v1/statement, then GET of each nextUri until there is none, DELETE of
// it to cancel (https://trino.io/docs/current/develop/client-protocol.html).
type client struct {
	http           *http.Client
	base           *url.URL
	user, password string
	catalog        string
	schema         string
	maxTime        time.Duration
}

const (
	maxPage  = 64 << 20 // bytes of one response
	attempts = 5        // for one page, when the coordinator is busy or a connection broke
	pause    = 100 * time.Millisecond
)

// page is one response. Members that are not needed are passed over.
type page struct {
	ID      string `json:"id"`
	NextURI string `json:"nextUri"`
	Columns []struct {
		Name string `json:"name"`
		Type string `json:"type"`
	} `json:"columns"`
	Data  [][]any  `json:"data"`
	Error *failure `json:"error"`
	Stats struct {
		State string `json:"state"`
	} `json:"stats"`
}

// failure is the engine's account of an error. Its message may quote rows and is never read.
type failure struct {
	Name string `json:"errorName"`
	Type string `json:"errorType"`
}

func (f *failure) Error() string { return "trino: the engine reported an error" }

var (
	errStatus = errors.New("trino: unexpected status")
	errNext   = errors.New("trino: nextUri leads elsewhere")
)

// each runs a statement and hands out its pages. Whatever ends it before the last page, the coordinator is told to cancel.
func (c *client) each(ctx context.Context, sql string, do func(*page) error) (err error) {
	req := func(ctx context.Context) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath("/v1/statement").String(), strings.NewReader(sql))
		if err == nil {
			r.Header.Set("Content-Type", "text/plain; charset=utf-8")
		}
		return r, err
	}
	next := ""
	defer func() {
		if err != nil && next != "" {
			c.cancel(ctx, next)
		}
	}()
	for {
		p, err := c.page(ctx, req, next != "")
		if err != nil {
			return err
		}
		next = ""
		if p.NextURI != "" {
			if next, err = c.follow(p.NextURI); err != nil {
				return err
			}
		}
		if p.Error != nil {
			return p.Error
		}
		if err := do(p); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		uri := next
		req = func(ctx context.Context) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, http.MethodGet, uri, nil)
		}
	}
}

// follow takes a nextUri on the coordinator's own origin only: the password goes with the request.
func (c *client) follow(next string) (string, error) {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != c.base.Scheme || u.Host != c.base.Host || u.User != nil || !strings.HasPrefix(u.Path, "/v1/statement/") {
		return "", errNext
	}
	return next, nil
}

// page gets one page. A coordinator, or what stands before it, that says it is busy or away is asked again, and so it is after a
// broken connection once the statement exists. A statement whose submission nobody answered is not submitted again.
func (c *client) page(ctx context.Context, build func(context.Context) (*http.Request, error), exists bool) (*page, error) {
	for attempt := 1; ; attempt++ {
		p, again, err := c.once(ctx, build, exists)
		if err == nil || !again || attempt == attempts || ctx.Err() != nil {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause * time.Duration(attempt)):
		}
	}
}

func (c *client) once(ctx context.Context, build func(context.Context) (*http.Request, error), exists bool) (_ *page, again bool, err error) {
	r, err := build(ctx)
	if err != nil {
		return nil, false, err
	}
	c.sign(r)
	res, err := c.http.Do(r)
	if err != nil {
		return nil, exists, err
	}
	defer func() { _ = res.Body.Close() }() // read to its end or given up
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil, true, fmt.Errorf("%w %d", errStatus, res.StatusCode)
	default:
		return nil, false, fmt.Errorf("%w %d", errStatus, res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxPage+1))
	switch {
	case err != nil:
		return nil, exists, err
	case len(body) > maxPage:
		return nil, false, source.ErrMemory
	}
	var p page
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber() // 64-bit integers
	if err := dec.Decode(&p); err != nil {
		return nil, false, errors.New("trino: not an answer of the protocol") // err quotes the body
	}
	return &p, false, nil
}

func (c *client) sign(r *http.Request) {
	h := r.Header
	h.Set("X-Trino-User", c.user)
	h.Set("X-Trino-Source", "treaty-dataplane")
	h.Set("X-Trino-Catalog", c.catalog)
	h.Set("X-Trino-Schema", c.schema)
	h.Set("X-Trino-Time-Zone", "UTC")
	h.Set("X-Trino-Session", "query_max_run_time="+strconv.FormatInt(c.maxTime.Milliseconds(), 10)+"ms")
	h.Set("User-Agent", "treaty-dataplane")
	if c.password != "" {
		r.SetBasicAuth(c.user, c.password)
	}
}

// cancel tells the coordinator that nobody waits any more. It does not matter whether the answer arrives: the statement has a
// time limit of its own.
func (c *client) cancel(ctx context.Context, next string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodDelete, next, nil)
	if err != nil {
		return
	}
	c.sign(r)
	if res, err := c.http.Do(r); err == nil {
		_ = res.Body.Close()
	}
}
