// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
	"github.com/treaty-node/treaty/wellknown"
)

// receiver is a caller's server for notifications.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []*http.Request
	bodies []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: http.StatusNoContent}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		body, _ := io.ReadAll(req.Body)
		r.got, r.bodies = append(r.got, req), append(r.bodies, string(body))
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

// pushBench is a gateway with push notifications, a clock that the test moves, and a receiver at hooks.example.com.
type pushBench struct {
	*bench
	*receiver
	db *sqlite.DB
	at time.Time
}

func newPushBench(t *testing.T) *pushBench {
	db, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "push.db"), sqlite.Options{Node: vendor.id.String(), Process: "node"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := &pushBench{receiver: newReceiver(t), db: db, at: start}
	p.bench = newBench(t, func(c *Config) {
		c.Now = func() time.Time { return p.at }
		c.Push = &Push{Store: db, Client: &http.Client{Transport: dialing(p.receiver.Server)}, CheckURL: func(u *url.URL) error { return fetch.CheckURL(u) }}
	})
	return p
}

func (p *pushBench) notify(t *testing.T) {
	t.Helper()
	if err := p.bench.handler.(*Server).Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// rpcAs calls a method and decodes its result, or returns the reason of the error.
func (p *pushBench) rpcAs(t *testing.T, caller *party, method, params string, result any) string {
	t.Helper()
	w := p.ask(caller, "POST", "/a2a", rpc(method, params), nil)
	var answer struct{ Result json.RawMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if reason, _ := outcome(t, w.Body.Bytes()); reason != "" {
		return reason
	}
	if result != nil {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			t.Fatalf("%v: %s", err, answer.Result)
		}
	}
	return ""
}

const hook = `"url":"https://hooks.example.com/treaty?x=1","token":"tok-1","authentication":{"scheme":"Bearer","credentials":"s3cret"}`

// Every change of a negotiation is told to who asked, with what it gave to recognise us, and nothing twice.
func TestPushTellsEveryChange(t *testing.T) {
	p := newPushBench(t)
	state := Reply{TaskID: "task-1", ContextID: "ctx-1", State: InputRequired, Envelope: []byte(`{"reply":1}`), Updated: start}
	p.replies[buyer.id] = []Reply{state}
	var made struct{ ID, URL, Token string }
	if why := p.rpcAs(t, &buyer, "CreateTaskPushNotificationConfig", `{"taskId":"task-1",`+hook+`}`, &made); why != "" || made.ID == "" || made.Token != "tok-1" {
		t.Fatalf("%s %+v", why, made)
	}
	p.notify(t)
	if len(p.got) != 0 {
		t.Fatalf("told what the caller knew: %q", p.bodies)
	}
	for i, next := range []State{Working, Completed} {
		p.at = p.at.Add(time.Second)
		state.State, state.Updated = next, p.at
		p.replies[buyer.id] = []Reply{state}
		p.notify(t)
		p.notify(t)
		if len(p.got) != i+1 {
			t.Fatalf("%s: %d notifications", next, len(p.got))
		}
	}
	var told struct {
		Task struct {
			ID     string
			Status struct{ State string }
		}
	}
	last := p.got[1]
	if err := json.Unmarshal([]byte(p.bodies[1]), &told); err != nil || told.Task.ID != "task-1" || told.Task.Status.State != "TASK_STATE_COMPLETED" {
		t.Errorf("%v: %s", err, p.bodies[1])
	}
	if last.Header.Get("A2A-Notification-Token") != "tok-1" || last.Header.Get("Authorization") != "Bearer s3cret" || last.URL.RequestURI() != "/treaty?x=1" {
		t.Errorf("%s %v", last.URL, last.Header)
	}
	// The configuration can be looked up for a while, and then is gone.
	if why := p.rpcAs(t, &buyer, "GetTaskPushNotificationConfig", `{"taskId":"task-1","id":"`+made.ID+`"}`, nil); why != "" {
		t.Error(why)
	}
	p.at = p.at.Add(keepTold + time.Minute)
	p.notify(t)
	if why := p.rpcAs(t, &buyer, "GetTaskPushNotificationConfig", `{"taskId":"task-1","id":"`+made.ID+`"}`, nil); why != "TASK_NOT_FOUND" {
		t.Error(why)
	}
}

// A configuration in a message is for the task that the message leads to, a plain question's included.
func TestPushWithTheMessage(t *testing.T) {
	p := newPushBench(t)
	var sent struct{ Task struct{ ID string } }
	params := `{"message":` + questionJSON + `,"configuration":{"taskPushNotificationConfig":{` + hook + `}}}`
	if why := p.rpcAs(t, &buyer, "SendMessage", params, &sent); why != "" {
		t.Fatal(why)
	}
	p.notify(t)
	if len(p.got) != 1 || !strings.Contains(p.bodies[0], sent.Task.ID) {
		t.Fatalf("%q", p.bodies)
	}
}

// A receiver that does not answer is asked again, ever more rarely, and then no more.
func TestPushGivesUp(t *testing.T) {
	p := newPushBench(t)
	p.replies[buyer.id] = []Reply{{TaskID: "task-1", ContextID: "ctx-1", State: Working, Updated: start}}
	p.status = http.StatusInternalServerError
	if why := p.rpcAs(t, &buyer, "CreateTaskPushNotificationConfig", `{"taskId":"task-1","id":"a",`+hook+`}`, nil); why != "" {
		t.Fatal(why)
	}
	p.replies[buyer.id][0].State = Completed
	p.notify(t)
	p.notify(t)
	if len(p.got) != 1 {
		t.Fatalf("%d attempts at once", len(p.got))
	}
	for range 2 * pushAttempts {
		p.at = p.at.Add(lastRetry)
		p.notify(t)
	}
	if len(p.got) != pushAttempts {
		t.Errorf("%d attempts, want %d", len(p.got), pushAttempts)
	}
	if why := p.rpcAs(t, &buyer, "GetTaskPushNotificationConfig", `{"taskId":"task-1","id":"a"}`, nil); why != "TASK_NOT_FOUND" {
		t.Error(why)
	}
}

func TestPushConfigurations(t *testing.T) {
	p := newPushBench(t)
	p.replies[buyer.id] = []Reply{{TaskID: "task-1", ContextID: "ctx-1", State: Working, Updated: start}}
	p.replies[stranger.id] = []Reply{{TaskID: "task-2", ContextID: "ctx-2", State: Working, Updated: start}}
	create := func(rest string) string { return `{"taskId":"task-1",` + rest + `}` }
	for _, c := range []struct {
		name, params string
		caller       *party
		want         string
	}{
		{"nobody", create(hook), nil, "UNAUTHENTICATED"},
		{"another's task", create(hook), &stranger, "TASK_NOT_FOUND"},
		{"no address", create(`"token":"x"`), &buyer, "INVALID_PARAMS"},
		{"plain http", create(`"url":"http://hooks.example.com/"`), &buyer, "INVALID_PARAMS"},
		{"metadata service", create(`"url":"https://169.254.169.254/"`), &buyer, "INVALID_PARAMS"},
		{"this machine", create(`"url":"https://127.0.0.1/"`), &buyer, "INVALID_PARAMS"},
		{"this machine in IPv6", create(`"url":"https://[::1]/"`), &buyer, "INVALID_PARAMS"},
		{"user information", create(`"url":"https://a:b@hooks.example.com/"`), &buyer, "INVALID_PARAMS"},
		{"port", create(`"url":"https://hooks.example.com:6379/"`), &buyer, "INVALID_PARAMS"},
		{"file", create(`"url":"file:///etc/passwd"`), &buyer, "INVALID_PARAMS"},
		{"header in the token", create(`"url":"https://hooks.example.com/","token":"x\r\nX-Y: z"`), &buyer, "INVALID_PARAMS"},
		{"header in the credentials", create(`"url":"https://hooks.example.com/","authentication":{"scheme":"Bearer","credentials":"x\ny"}`), &buyer, "INVALID_PARAMS"},
		{"unknown scheme", create(`"url":"https://hooks.example.com/","authentication":{"scheme":"Digest","credentials":"x"}`), &buyer, "INVALID_PARAMS"},
		{"long address", create(`"url":"https://hooks.example.com/` + strings.Repeat("x", maxPushURL) + `"`), &buyer, "INVALID_PARAMS"},
	} {
		if why := p.rpcAs(t, c.caller, "CreateTaskPushNotificationConfig", c.params, nil); why != c.want {
			t.Errorf("%s: got %q, want %q", c.name, why, c.want)
		}
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if why := p.rpcAs(t, &buyer, "CreateTaskPushNotificationConfig", create(`"id":"`+id+`",`+hook), nil); why != "" {
			t.Fatal(why)
		}
	}
	if why := p.rpcAs(t, &buyer, "CreateTaskPushNotificationConfig", create(hook), nil); why != "INVALID_PARAMS" {
		t.Errorf("a fifth: %q", why)
	}
	var list struct{ Configs []struct{ ID string } }
	if why := p.rpcAs(t, &buyer, "ListTaskPushNotificationConfigs", `{"taskId":"task-1"}`, &list); why != "" || len(list.Configs) != store.MaxPushesOfTask {
		t.Errorf("%s %+v", why, list)
	}
	for _, method := range []string{"GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"} {
		if why := p.rpcAs(t, &stranger, method, `{"taskId":"task-1","id":"a"}`, nil); why != "TASK_NOT_FOUND" {
			t.Errorf("%s by a stranger: %q", method, why)
		}
		if why := p.rpcAs(t, nil, method, `{"taskId":"task-1","id":"a"}`, nil); why != "UNAUTHENTICATED" {
			t.Errorf("%s by nobody: %q", method, why)
		}
	}
	for range 2 {
		if why := p.rpcAs(t, &buyer, "DeleteTaskPushNotificationConfig", `{"taskId":"task-1","id":"a"}`, nil); why != "" {
			t.Error(why)
		}
	}
	if why := p.rpcAs(t, &buyer, "GetTaskPushNotificationConfig", `{"taskId":"task-1","id":"a"}`, nil); why != "TASK_NOT_FOUND" {
		t.Error(why)
	}
}

// The guarded client looks at the address that a name leads to at the moment of the call, whatever it was when the name was given.
func TestPushThroughTheGuard(t *testing.T) {
	p := newPushBench(t)
	asked := 0
	p.bench.handler.(*Server).gateway.cfg.Push.Client = fetch.NewClient(fetch.Config{Timeout: 5 * time.Second, Lookup: func(context.Context, string) ([]netip.Addr, error) {
		asked++
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("10.0.0.1")}, nil
	}})
	p.replies[buyer.id] = []Reply{{TaskID: "task-1", ContextID: "ctx-1", State: Working, Updated: start}}
	if why := p.rpcAs(t, &buyer, "CreateTaskPushNotificationConfig", `{"taskId":"task-1","id":"a",`+hook+`}`, nil); why != "" {
		t.Fatal(why)
	}
	p.replies[buyer.id][0].State = Completed
	p.notify(t)
	kept, err := read(p.db, func(tx store.Tx) (store.Push, error) { return tx.GetPush(buyer.id.String(), "task-1", "a") })
	if asked == 0 || len(p.got) != 0 || err != nil || kept.Failed != 1 {
		t.Errorf("looked up %d times, %d notifications, %+v, %v", asked, len(p.got), kept, err)
	}
}

func read[T any](db *sqlite.DB, get func(store.Tx) (T, error)) (v T, err error) {
	err = db.View(context.Background(), func(tx store.Tx) error { v, err = get(tx); return err })
	return v, err
}

func TestExtendedCard(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Extended = func(ctx context.Context, caller did.DID) ([]byte, error) {
			if caller == stranger.id {
				return nil, errors.New("the disk is gone")
			}
			return wellknown.BuildCard(ctx, wellknown.CardSpec{
				Agent: vendor.id, Name: "Vendor", Description: "Sells.", Origin: origin, Push: true, Extended: true,
				MoreSkills: []wellknown.Skill{{ID: "contract-1", Name: "Query orders", Description: "For " + caller.String(), Tags: []string{"contract"}}},
			}, vendor.signer)
		}
	})
	for target, method := range map[string]string{"/a2a": "POST", "/a2a/v1/extendedAgentCard": "GET"} {
		body := ""
		if target == "/a2a" {
			body = rpc("GetExtendedAgentCard", "{}")
		}
		w := b.ask(&buyer, method, target, body, nil)
		raw := w.Body.Bytes()
		if target == "/a2a" {
			var answer struct{ Result json.RawMessage }
			if err := json.Unmarshal(raw, &answer); err != nil {
				t.Fatal(err)
			}
			raw = answer.Result
		}
		card, err := wellknown.VerifyCard(raw, vendor.doc, start) // the signature survives the library
		if err != nil {
			t.Fatalf("%s: %v: %s", target, err, w.Body)
		}
		if !strings.Contains(card.Skills[len(card.Skills)-1].Description, buyer.id.String()) || !card.Capabilities.ExtendedAgentCard || !card.Capabilities.PushNotifications {
			t.Errorf("%+v", card.Card)
		}
		if reason, _ := outcome(t, b.ask(nil, method, target, body, nil).Body.Bytes()); reason != "UNAUTHENTICATED" {
			t.Errorf("nobody: %q", reason)
		}
		if reason, text := outcome(t, b.ask(&stranger, method, target, body, nil).Body.Bytes()); reason != "INTERNAL_ERROR" || strings.Contains(text, "disk") {
			t.Errorf("a fault: %q %q", reason, text)
		}
	}
}
