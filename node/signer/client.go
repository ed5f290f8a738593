// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// Timeout bounds one request to a signer. It is short: a node signs while its store's write lock is held.
const Timeout = 5 * time.Second

// Client talks to the signer behind a Unix socket. It is safe for concurrent use.
type Client struct {
	path string
	http *http.Client
}

// NewClient makes a client. Nothing is dialled before the first request, and every new connection looks at the socket anew.
func NewClient(path string) *Client {
	return &Client{path: path, http: &http.Client{
		Timeout: Timeout,
		// The signer has no business sending us elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 8 << 10, DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if err := checkSocket(path); err != nil {
					return nil, err
				}
				var d net.Dialer
				return d.DialContext(ctx, "unix", path)
			},
		},
	}}
}

// Path is the socket's.
func (c *Client) Path() string { return c.path }

func checkSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: %s is not a socket", ErrSocket, path)
	case info.Mode().Perm()&0o007 != 0:
		return fmt.Errorf("%w: %s has mode %04o, so that everybody may sign; run chmod 600 %[2]s", ErrSocket, path, info.Mode().Perm())
	}
	return nil
}

// Keys lists the keys that the signer offers.
func (c *Client) Keys(ctx context.Context) ([]KeyInfo, error) {
	data, err := c.do(ctx, http.MethodGet, pathKeys, nil)
	if err != nil {
		return nil, err
	}
	return parseKeys(data)
}

// Key looks up one key.
func (c *Client) Key(ctx context.Context, kid string) (KeyInfo, error) {
	keys, err := c.Keys(ctx)
	if err != nil {
		return KeyInfo{}, err
	}
	for _, k := range keys {
		if k.KID == kid {
			return k, nil
		}
	}
	return KeyInfo{}, fmt.Errorf("%w: %s is not among the %d keys of the signer at %s", ErrUnknownKey, kid, len(keys), c.path)
}

// Signer returns a signer for a key that the signer must have, or ErrWrongKey if it has another one under that id. A zero
// want takes the key as it is.
func (c *Client) Signer(ctx context.Context, kid string, want did.PublicKey) (did.Signer, error) {
	k, err := c.Key(ctx, kid)
	if err != nil {
		return nil, err
	}
	if !want.IsZero() && !k.Public.Equal(want) {
		return nil, fmt.Errorf("%w: the signer at %s has %s as %s, the document has %s", ErrWrongKey, c.path, k.Public, kid, want)
	}
	return &remote{c, k}, nil
}

type remote struct {
	client *Client
	key    KeyInfo
}

func (r *remote) KeyID() string            { return r.key.KID }
func (r *remote) PublicKey() did.PublicKey { return r.key.Public }
func (r *remote) String() string           { return r.key.KID + " at " + r.client.path }

// Sign implements [did.Signer].
func (r *remote) Sign(ctx context.Context, message []byte) ([]byte, error) {
	// Asked here too: the signer would refuse, but a defect on this side should not look like one on that side.
	if _, err := FormOf(r.key.KID, message); err != nil {
		return nil, err
	}
	if len(message) > MaxMessage {
		return nil, fmt.Errorf("%w: %d bytes; at most %d are signed", ErrForm, len(message), MaxMessage)
	}
	body, err := canon.Marshal(signJSON{r.key.KID, b64.EncodeToString(message)})
	if err != nil {
		return nil, err
	}
	data, err := r.client.do(ctx, http.MethodPost, pathSign, body)
	if err != nil {
		return nil, err
	}
	sig, err := parseSigned(data)
	if err != nil {
		return nil, err
	}
	if err := r.key.Public.Verify(message, sig); err != nil {
		return nil, fmt.Errorf("%w: what the signer at %s returned does not verify: %w", ErrWrongKey, r.client.path, err)
	}
	return sig, nil
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://signer"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// Signing twice does no harm, so a connection that the signer closed meanwhile is replaced. An empty value is not sent.
	req.Header["Idempotency-Key"] = []string{}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, parseError(data)
	}
	return data, nil
}

// failure: the caller gave up, or the signer does not answer.
func (c *Client) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("signer at %s: %w", c.path, err)
	}
	if errors.Is(err, ErrSocket) {
		return fmt.Errorf("%w, so nothing is signed: %w", did.ErrSignerUnavailable, err)
	}
	return fmt.Errorf("%w: nothing answers at %s, so nothing is signed (is treaty-signer running?): %w", did.ErrSignerUnavailable, c.path, err)
}
