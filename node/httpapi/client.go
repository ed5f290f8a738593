// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/treaty-node/treaty/node/ledger"
)

// ErrNoNode: nothing answers on the admin socket of the folder.
var ErrNoNode = errors.New("no node is running on this folder")

// SocketName is the admin socket's name within the node's folder.
const SocketName = "admin.sock"

const maxAdminAnswer = 64 << 20

// AdminClient talks to the node that runs on a folder.
type AdminClient struct {
	dir  string
	http *http.Client
}

// NewAdminClient makes a client for the node in dir.
func NewAdminClient(dir string) *AdminClient {
	socket := filepath.Join(dir, SocketName)
	return &AdminClient{dir: dir, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Get reads path into out.
func (c *AdminClient) Get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, nil, out)
}

// Post sends in to path and reads the answer into out.
func (c *AdminClient) Post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, path, body, out)
}

func (c *AdminClient) do(ctx context.Context, method, path string, body []byte, out any) error {
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer))
	if err != nil {
		return fmt.Errorf("admin interface: %w", err)
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = bytes.TrimSpace(data)
		return nil
	}
	return json.Unmarshal(data, out)
}

func (c *AdminClient) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://node/v1"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, fmt.Errorf("%w (%s): start it with `treaty serve --dir %s`", ErrNoNode, c.dir, c.dir)
		}
		return nil, &Error{Kind: KindUnreachable, Message: "admin interface: " + err.Error()}
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxAdminBody))
	e := new(Error)
	if json.Unmarshal(data, e) != nil || e.Kind == "" {
		return nil, fmt.Errorf("admin interface: %s: %s", resp.Status, bytes.TrimSpace(data))
	}
	return nil, e
}

// Events calls f with every event after the sequence number, in order; with follow it goes on until ctx ends or f fails.
func (c *AdminClient) Events(ctx context.Context, after uint64, follow bool, f func(ledger.Event) error) error {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}}
	if follow {
		q.Set("follow", "1")
	}
	resp, err := c.send(ctx, http.MethodGet, "/events?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e ledger.Event
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("admin interface: event: %w", err)
			}
			if err := f(e); err != nil {
				return err
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil
			}
			return &Error{Kind: KindUnreachable, Message: "the event stream broke: " + err.Error()}
		}
	}
}
