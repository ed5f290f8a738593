// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/delegation"
	"github.com/treaty-node/treaty/wellknown"
)

// handsOn is a vendor that asks two others whatever it is asked.
func handsOn(t *testing.T, ask delegation.Ask) *bench {
	return newBench(t, func(c *Config) {
		c.Delegate = func(ctx context.Context, caller did.DID, q delegation.Question) ([]delegation.Answer, error) {
			if caller != buyer.id {
				t.Errorf("asked by %s", caller)
			}
			return delegation.Run(ctx, vendor.id.String(), q, []string{"did:wba:a.example.com", "did:wba:b.example.com"}, ask)
		}
	})
}

func ask(depth int) delegation.Question {
	return delegation.Question{Text: "what can be negotiated?", Depth: depth, Via: []string{buyer.id.String()}, OnFailure: delegation.Partial}
}

func TestDelegatedQuestion(t *testing.T) {
	for _, binding := range bindings {
		b := handsOn(t, func(_ context.Context, agent string, q delegation.Question) (delegation.Answer, error) {
			if q.Depth != 0 || len(q.Via) != 2 || q.Via[0] != buyer.id.String() || q.Via[1] != vendor.id.String() || q.Text != "what can be negotiated?" {
				t.Errorf("handed on: %+v", q)
			}
			if strings.Contains(agent, "b.example") {
				return delegation.Answer{}, errors.New("out of order")
			}
			return delegation.Answer{Text: "nothing", Data: json.RawMessage(`{"schemas":[1]}`)}, nil
		})
		c := b.client(t, &buyer, binding)
		got, err := c.Ask(t.Context(), ask(1))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.Text, "orders") || len(got.Branches) != 2 || got.Branches[0].Text != "nothing" || string(got.Branches[0].Data) != `{"schemas":[1]}` ||
			got.Branches[0].Outcome != delegation.Answered || got.Branches[1].Outcome != delegation.Failed || got.Branches[1].Error != "out of order" {
			t.Errorf("%+v", got)
		}
		q := ask(1)
		q.OnFailure = delegation.Fail
		if got, err := c.Ask(t.Context(), q); err == nil || !strings.Contains(err.Error(), "TASK_STATE_FAILED") || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("%+v %v", got, err)
		}
		if got, err := c.Ask(t.Context(), ask(0)); err != nil || got.Branches != nil || !strings.Contains(got.Text, "orders") {
			t.Errorf("asked itself: %+v %v", got, err)
		}
		stranger := b.client(t, nil, binding)
		q = ask(1)
		q.Via = []string{}
		if got, err := stranger.Ask(t.Context(), q); err != nil || got.Branches != nil {
			t.Errorf("a stranger's question is answered here: %+v %v", got, err)
		}
	}
}

// Whoever takes a question back takes it back from everybody.
func TestDelegationTakenBack(t *testing.T) {
	asked, ended := make(chan string, 2), make(chan string, 2)
	b := handsOn(t, func(ctx context.Context, agent string, _ delegation.Question) (delegation.Answer, error) {
		asked <- agent
		<-ctx.Done()
		ended <- agent
		return delegation.Answer{}, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := b.client(t, &buyer, wellknown.BindingJSONRPC).Ask(ctx, ask(1))
		done <- err
	}()
	<-asked
	<-asked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range 2 {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("a branch goes on")
		}
	}
}

func TestDelegationParameters(t *testing.T) {
	b := handsOn(t, func(context.Context, string, delegation.Question) (delegation.Answer, error) {
		t.Error("was handed on")
		return delegation.Answer{}, nil
	})
	message := func(params string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"extensions":["` + DelegationURI + `"],"metadata":{"` + DelegationURI + `":` + params + `}}}`
	}
	for name, params := range map[string]string{
		"no object":        `7`,
		"unknown member":   `{"skill":"","depth":1,"via":[],"onFailure":"fail","x":1}`,
		"too deep":         `{"skill":"","depth":4,"via":[],"onFailure":"fail"}`,
		"negative":         `{"skill":"","depth":-1,"via":[],"onFailure":"fail"}`,
		"no policy":        `{"skill":"","depth":1,"via":[],"onFailure":""}`,
		"speaks as other":  `{"skill":"","depth":1,"via":["` + stranger.id.String() + `"],"onFailure":"fail"}`,
		"no DID":           `{"skill":"","depth":1,"via":["me"],"onFailure":"fail"}`,
		"case variant":     `{"Skill":"","depth":1,"via":[],"onFailure":"fail"}`,
		"long skill":       `{"skill":"` + strings.Repeat("x", 200) + `","depth":1,"via":[],"onFailure":"fail"}`,
		"fraction of hops": `{"skill":"","depth":1.5,"via":[],"onFailure":"fail"}`,
	} {
		w := b.ask(&buyer, "POST", "/a2a", rpc("SendMessage", message(params)), nil)
		if reason, _ := outcome(t, w.Body.Bytes()); reason != "INVALID_PARAMS" {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
}
