// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"golang.org/x/sync/errgroup"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/store"
)

// Push says how callers are told of changes of their tasks (A2A section 4.3). What is sent is the whole task, so that a notification
// that was lost takes nothing with it, and every change is sent at least once.
//
// A caller names an address that this node then calls, so the client must be one that reaches public addresses only, follows no
// redirect and bounds the answer. Only callers with a verified DID may ask; how many addresses are kept is bounded by the store, and
// one that does not answer is given up after about an hour.
type Push struct {
	Store    store.Store
	Client   *http.Client           // guarded, and not signing: a caller chooses the path, and what it posts must not act in our name
	CheckURL func(u *url.URL) error // what the client would refuse in any case, so that the caller learns it at once
}

// Bounds of a configuration, in bytes, and of delivery.
const (
	maxPushURL    = 2048
	maxPushToken  = 1024
	maxPushSecret = 4096

	pushAtOnce   = 8
	pushTimeout  = 10 * time.Second
	pushAttempts = 10
	firstRetry   = 5 * time.Second
	lastRetry    = 15 * time.Minute
	keepTold     = 24 * time.Hour // a configuration can be looked up for so long after the task's end was told
)

// headerToken carries the token that the receiver gave (A2A section 4.3.3).
const headerToken = "A2A-Notification-Token"

var (
	errPushMany = refuse(sdk.ErrInvalidParams, "there are as many push notification configurations as are kept for one task or one caller; delete one")
	errPushGone = refuse(sdk.ErrTaskNotFound, "no such push notification configuration")
)

// checkPush holds a configuration to what can be sent.
func (p *Push) checkPush(c *sdk.PushConfig) error {
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "" || len(c.URL) > maxPushURL || err != nil:
		return refuse(sdk.ErrInvalidParams, "pushNotificationConfig.url must be an absolute URL of at most 2048 bytes")
	case len(c.ID) > maxID || len(c.Token) > maxPushToken || !headerSafe(c.Token):
		return refuse(sdk.ErrInvalidParams, "pushNotificationConfig: id has at most 256 bytes and token at most 1024 visible ASCII characters")
	}
	if err := p.CheckURL(u); err != nil {
		return refuse(sdk.ErrInvalidParams, "pushNotificationConfig.url: want https on a public name, without user information")
	}
	if a := c.Auth; a != nil {
		if s := strings.ToLower(a.Scheme); s != "bearer" && s != "basic" {
			return refuse(sdk.ErrInvalidParams, "pushNotificationConfig.authentication.scheme: Bearer and Basic can be sent")
		}
		if len(a.Credentials) > maxPushSecret || !headerSafe(a.Credentials) {
			return refuse(sdk.ErrInvalidParams, "pushNotificationConfig.authentication.credentials: at most 4096 visible ASCII characters")
		}
	}
	return nil
}

func headerSafe(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// owner is the verified caller of a request about push notifications.
func (g *gateway) owner(ctx context.Context) (string, error) {
	if g.cfg.Push == nil {
		return "", sdk.ErrPushNotificationNotSupported
	}
	if owner := ownerOf(ctx); owner != "" {
		return owner, nil
	}
	return "", errNoCaller
}

// putPush keeps a configuration for a task of the caller. told is the state that the caller knows of already.
func (g *gateway) putPush(ctx context.Context, c *sdk.PushConfig, told string) (*sdk.PushConfig, error) {
	owner, err := g.owner(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.cfg.Push.checkPush(c); err != nil {
		return nil, err
	}
	kept := *c
	kept.Tenant = ""
	if kept.ID == "" {
		kept.ID = rand.Text()
	}
	raw, err := json.Marshal(&kept)
	if err != nil {
		return nil, err
	}
	now := g.cfg.Now()
	err = g.cfg.Push.Store.Update(ctx, func(tx store.Tx) error {
		return tx.PutPush(store.Push{Owner: owner, TaskID: string(kept.TaskID), ID: kept.ID, Bytes: raw, Told: told, Due: now, Created: now})
	})
	if errors.Is(err, store.ErrTooMany) {
		err = errPushMany
	}
	return &kept, err
}

// pushAfter keeps the configuration that came with a message (A2A section 3.2.2) for the task that the message led to.
func (g *gateway) pushAfter(ctx context.Context, c *sdk.PushConfig, result sdk.SendMessageResult) error {
	task, ok := result.(*sdk.Task)
	if !ok || c == nil {
		return nil
	}
	kept := *c
	kept.TaskID = task.ID
	_, err := g.putPush(ctx, &kept, "")
	return err
}

// CreateTaskPushConfig implements a2asrv.RequestHandler.
func (g *gateway) CreateTaskPushConfig(ctx context.Context, req *sdk.PushConfig) (*sdk.PushConfig, error) {
	begin(ctx)
	if _, err := g.owner(ctx); err != nil {
		return nil, g.toPeer(ctx, err)
	}
	task, err := g.find(ctx, req.TaskID)
	if err != nil {
		return nil, g.toPeer(ctx, err)
	}
	kept, err := g.putPush(ctx, req, mark(task))
	return kept, g.toPeer(ctx, err)
}

// GetTaskPushConfig implements a2asrv.RequestHandler.
func (g *gateway) GetTaskPushConfig(ctx context.Context, req *sdk.GetTaskPushConfigRequest) (*sdk.PushConfig, error) {
	begin(ctx)
	owner, err := g.owner(ctx)
	var found store.Push
	if err == nil {
		err = g.cfg.Push.Store.View(ctx, func(tx store.Tx) (err error) {
			found, err = tx.GetPush(owner, string(req.TaskID), req.ID)
			return err
		})
	}
	if errors.Is(err, store.ErrNotFound) {
		err = errPushGone
	}
	if err != nil {
		return nil, g.toPeer(ctx, err)
	}
	c, err := pushConfig(found)
	return c, g.toPeer(ctx, err)
}

// ListTaskPushConfigs implements a2asrv.RequestHandler. There are few: the answer is one page.
func (g *gateway) ListTaskPushConfigs(ctx context.Context, req *sdk.ListTaskPushConfigRequest) (*sdk.ListTaskPushConfigResponse, error) {
	begin(ctx)
	owner, err := g.owner(ctx)
	if err == nil {
		_, err = g.find(ctx, req.TaskID)
	}
	var found []store.Push
	if err == nil {
		err = g.cfg.Push.Store.View(ctx, func(tx store.Tx) (err error) {
			found, err = tx.ListPushes(owner, string(req.TaskID))
			return err
		})
	}
	list := &sdk.ListTaskPushConfigResponse{Configs: []*sdk.PushConfig{}}
	for _, p := range found {
		var c *sdk.PushConfig
		if c, err = pushConfig(p); err != nil {
			break
		}
		list.Configs = append(list.Configs, c)
	}
	if err != nil {
		return nil, g.toPeer(ctx, err)
	}
	return list, nil
}

// DeleteTaskPushConfig implements a2asrv.RequestHandler.
func (g *gateway) DeleteTaskPushConfig(ctx context.Context, req *sdk.DeleteTaskPushConfigRequest) error {
	begin(ctx)
	owner, err := g.owner(ctx)
	if err == nil {
		_, err = g.find(ctx, req.TaskID)
	}
	if err == nil {
		err = g.cfg.Push.Store.Update(ctx, func(tx store.Tx) error { return tx.DeletePush(owner, string(req.TaskID), req.ID) })
	}
	return g.toPeer(ctx, err)
}

func pushConfig(p store.Push) (*sdk.PushConfig, error) {
	var c sdk.PushConfig
	if err := json.Unmarshal(p.Bytes, &c); err != nil {
		return nil, fmt.Errorf("stored push configuration: %w", err)
	}
	return &c, nil
}

// mark names a task's state: two of the same mark have nothing new to tell.
func mark(t *sdk.Task) string {
	return string(t.Status.State) + " " + strconv.FormatInt(updated(t).UnixMicro(), 10) + " " + messageID(t) + " " + strconv.Itoa(len(t.Artifacts))
}

// Notify tells callers what became of their tasks since it last looked. It sends and then notes that it has, so a crash in between
// sends again. The error is the store's; servers that do not answer are no error.
func (s *Server) Notify(ctx context.Context) error {
	p := s.gateway.cfg.Push
	if p == nil {
		return nil
	}
	var due []store.Push
	err := p.Store.View(ctx, func(tx store.Tx) (err error) {
		due, err = tx.DuePushes(s.gateway.cfg.Now(), store.MaxPushes)
		return err
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pushAtOnce)
	for _, d := range due {
		g.Go(func() error { return s.gateway.notify(ctx, d) })
	}
	return g.Wait()
}

// notify looks at one task for its owner.
func (g *gateway) notify(ctx context.Context, p store.Push) error {
	owner, err := did.Parse(p.Owner)
	if err != nil {
		return g.forgetPush(ctx, p)
	}
	task, err := g.find(httpsig.WithCaller(ctx, httpsig.Caller{DID: owner}), sdk.TaskID(p.TaskID))
	if errors.Is(err, sdk.ErrTaskNotFound) || errors.Is(err, ErrNotFound) {
		return g.forgetPush(ctx, p)
	}
	if err != nil {
		return err
	}
	now, final := g.cfg.Now(), task.Status.State.Terminal()
	switch m := mark(task); {
	case m != p.Told:
		if err := g.send(ctx, p, task); err != nil {
			g.cfg.Logger.InfoContext(ctx, "push notification not delivered", "owner", p.Owner, "task", p.TaskID, "attempt", p.Failed+1, "error", err)
			if p.Failed++; p.Failed >= pushAttempts {
				return g.forgetPush(ctx, p)
			}
			p.Due = now.Add(min(firstRetry<<(p.Failed-1), lastRetry))
		} else {
			p.Told, p.Failed, p.Due = m, 0, now
			if final {
				p.Due = now.Add(keepTold)
			}
		}
	case final && p.Due.Before(now): // told, and kept long enough
		if now.Sub(p.Created) >= keepTold {
			return g.forgetPush(ctx, p)
		}
		p.Due = now.Add(keepTold)
	default:
		return nil
	}
	err = g.cfg.Push.Store.Update(ctx, func(tx store.Tx) error { return tx.MarkPush(p) })
	if errors.Is(err, store.ErrNotFound) { // replaced or deleted meanwhile
		return nil
	}
	return err
}

func (g *gateway) forgetPush(ctx context.Context, p store.Push) error {
	return g.cfg.Push.Store.Update(ctx, func(tx store.Tx) error { return tx.DeletePush(p.Owner, p.TaskID, p.ID) })
}

// send posts the task to its owner's server. Errors do not quote the answer, and never the configuration.
func (g *gateway) send(ctx context.Context, p store.Push, task *sdk.Task) error {
	c, err := pushConfig(p)
	if err != nil {
		return err
	}
	body, err := json.Marshal(sdk.StreamResponse{Event: task})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/a2a+json")
	if c.Token != "" {
		req.Header.Set(headerToken, c.Token)
	}
	if c.Auth != nil && c.Auth.Credentials != "" {
		scheme := "Bearer "
		if strings.EqualFold(c.Auth.Scheme, "basic") {
			scheme = "Basic "
		}
		req.Header.Set("Authorization", scheme+c.Auth.Credentials)
	}
	resp, err := g.cfg.Push.Client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) { // without the address, which may hold a secret
			err = u.Err
		}
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxPushURL))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the receiver answered with status %d", resp.StatusCode)
	}
	return nil
}
