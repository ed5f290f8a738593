// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/treaty-node/treaty/did/canon"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	buyer    = "did:wba:buyercorp.test:agents:analyst:e1_B"
	vendor   = "did:wba:vendorcorp.test:agents:steward:e1_V"
	context1 = "ctx-0123456789abcdef0123456789abcdef"
	contract = "ctr_AAAAAAAAAAAAAAAAAAAAAA"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 123_456_789, time.UTC)

// chain makes a log of entries, one second apart.
func chain(t testing.TB, entries ...Entry) []Event {
	t.Helper()
	head, events := Genesis(buyer), make([]Event, 0, len(entries))
	for i, entry := range entries {
		e, err := Next(head, buyer, "node", start.Add(time.Duration(i)*time.Second), entry)
		if err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		events = append(events, e)
		head = e.Head()
	}
	return events
}

// story is one entry of every type, as a buyer's and a vendor's log would have them.
func story() []Entry {
	digest := canon.Sum([]byte("something"))
	with := func(typ string, data any) Entry {
		return Entry{Type: typ, Context: context1, Peer: vendor, Data: data}
	}
	under := func(typ string, data any) Entry {
		e := with(typ, data)
		e.Contract = contract
		return e
	}
	round := Round{Round: 1, Status: "negotiating", Candidates: []string{
		"contract v1, X25519, a2a 1.0 JSON-RPC, mcp 2025-11-25", "contract v1, X25519, a2a 1.0 HTTP+JSON, mcp 2025-11-25",
	}, Summary: "We prefer JSON-RPC."}
	proposal := Proposal{
		Columns: []string{"region", "order_value", "customer_email"}, Operations: []string{"avg", "count"},
		Purpose: "regional-pricing", RetentionDays: 90, Rationale: "average order value by region",
	}
	offer := Offer{
		Digest: digest, Columns: []string{"region", "order_value"}, Operations: []string{"avg", "count"}, RetentionDays: 30,
		MinGroupSize: 5, CallBudget: 100, ExpiresAt: "2026-11-30T12:15:00Z",
		Removed: []Removal{
			{What: "column", Asked: "customer_email", Rule: "never_leaves", Why: "class pii never leaves"},
			{What: "retentionDays", Asked: "90", Offered: "30", Rule: "max_retention", Why: "policy allows at most 30 days"},
			{What: "operation", Asked: "median", Rule: "operations"},
			{What: "minGroupSize", Offered: "5", Rule: "min_group", Why: "no group may be smaller"},
		},
	}
	asked := offer
	asked.Removed, asked.MinGroupSize, asked.CallBudget = nil, 1, 1
	return []Entry{
		{Type: NodeStarted, Data: Started{Build: "0.1.0+7d66067"}},
		{Type: DatasetImported, Data: Imported{Dataset: "orders", Rows: 624, Columns: 7}},
		with(DIDResolved, Resolved{DID: vendor, URL: "https://vendorcorp.test/agents/steward/e1_V/did.json", Hash: digest}),
		with(DIDVerified, Verified{DID: vendor, Profile: "e1", Dialect: "spec", KeyID: vendor + "#signing-01234567"}),
		{Type: DIDRefused, Peer: "did:wba:evil.test:e1_X", Data: DIDRefusal{DID: "did:wba:evil.test:e1_X", Reason: "not on the allow list"}},
		with(CardVerified, Card{URL: "https://vendorcorp.test/.well-known/agent-card.json", KID: vendor + "#signing-01234567", Name: "Data steward"}),
		{Type: DIDSucceeded, Peer: vendor, Data: Succession{Old: vendor, New: vendor + "-2", Assurance: "recovery_verified", OldHash: digest, NewHash: digest, Overruled: vendor + "-3"}},
		{Type: DIDSuccessionRefused, Peer: vendor, Data: SuccessionRefusal{From: vendor, At: vendor + "-2", Code: "TRANSITION_INVALID", Reason: "another subject"}},
		{Type: DIDCompromised, Peer: vendor, Data: Compromise{DID: vendor, Since: "2026-11-30T11:00:00Z"}},
		with(ConversationMoved, ConversationMove{Side: "vendor", Old: vendor, New: vendor + "-2", Seq: 4}),
		with(MetaprotoSent, round),
		with(MetaprotoReceived, round),
		with(MetaprotoAgreed, Agreement{digest, "1", "DHKEM-X25519-HKDF-SHA256/HKDF-SHA256/ChaCha20Poly1305", "a2a-1.0/json-rpc", "mcp/2025-11-25", 2, ""}),
		with(ProposalSent, proposal),
		with(ProposalReceived, proposal),
		with(OfferMade, asked),
		with(OfferReceived, offer),
		with(AcceptSent, Accept{digest}),
		with(AcceptReceived, Accept{digest}),
		with(MessageRefused, MessageRefusal{Code: "OUT_OF_ORDER", Reason: "expected message 4, got 6", Type: "negotiation", Seq: 6}),
		under(ContractBuilt, Built{digest}),
		under(ContractProof, ProofAdded{By: vendor, KeyID: vendor + "#signing-01234567", Digest: digest}),
		under(ContractActivated, Activated{Digest: digest, ActivatedAt: "2026-11-30T12:00:09Z"}),
		under(ContractInForce, InForce{Digest: digest, Dataset: "orders", Purpose: "regional-pricing", ValidUntil: "2027-02-28T12:00:00Z"}),
		under(ContractRevoked, Revocation{Statement: digest, By: buyer, Reason: "the report is finished", RevokedAt: "2026-12-01T08:00:00Z", Effective: true}),
		under(ContractRevoked, Revocation{Statement: digest, By: vendor, Reason: "replaced", RevokedAt: "2026-12-01T08:00:01Z", Replaced: "ctr_BBBBBBBBBBBBBBBBBBBBBB"}),
		under(ContractReplaced, Replacement{By: "ctr_BBBBBBBBBBBBBBBBBBBBBB", Digest: digest}),
		under(ContractAcknowledged, Acknowledgement{Statement: digest, By: vendor, Outcome: "revoked", At: "2026-12-01T08:00:02Z"}),
		under(DataDeleted, Deletion{Statement: digest, By: buyer, Reason: "retention_ended", Results: 3, Receipts: 4, DeletedAt: "2026-12-30T12:00:00Z"}),
		under(DeletionReceived, Deletion{Statement: digest, By: buyer, Reason: "early", Results: 1, Receipts: 1, DeletedAt: "2026-12-30T12:00:00Z"}),
		with(NegotiationEnded, Ended{Outcome: "agreed"}),
		with(NegotiationWithdrawn, Withdrawn{By: buyer, Reason: "no longer needed"}),
		with(NegotiationReopened, Reopening{From: "before", To: "after", Attempt: 1, Code: "KEY_RETIRED", Reason: "the key's grace is over"}),
		under(QuerySent, Query{"orders", []string{"avg(order_value)", "count(*)"}, []string{"region"}, []string{"order_date between 2025-07-01 and 2025-09-30"}, "regional-pricing"}),
		under(QueryAnswered, Answer{Rows: 4, UsedRows: 156, TotalRows: 624, ResultDigest: digest, Receipt: "rcp_1"}),
		under(QueryRefused, QueryRefusal{"SCOPE_DENIED", "column customer_email is not granted by " + contract + "; nothing was read"}),
		under(QueryFailed, QueryFailure{"connection refused"}),
		under(CallAnswered, Call{Caller: buyer, QueryDigest: digest, ResultDigest: digest, Rows: 1, TotalRows: 624, UsedRows: 156}),
		under(CallRefused, CallRefusal{"SCOPE_DENIED", "column customer_email is not granted; nothing was read", buyer}),
		{Type: TrustChanged, Data: TrustChange{Action: "deny", Pattern: "*.evil.test"}},
		{Type: KeyRotated, Data: Rotation{Role: "kex", KeyID: vendor + "#kex-new", Previous: []string{vendor + "#kex-old"}, Until: "2026-12-07T12:00:00Z", Hash: digest}},
		{Type: KeyRetired, Data: Retirement{Role: "kex", KeyID: vendor + "#kex-old", Hash: digest}},
		under(ModelAsked, Question{Model: "m-1", Attempt: 2, PromptDigest: digest}),
		under(ModelAnswered, ModelAnswer{Model: "m-1", Attempt: 1, PromptDigest: digest, PromptTokens: 700, CompletionTokens: 55, Error: "no answer: \x1b[2J"}),
		under(ModelAnswered, ModelAnswer{Model: "m-1", Attempt: 2, PromptDigest: digest, AnswerDigest: digest, PromptTokens: 740, CompletionTokens: 60}),
		under(ModelNarrowed, Narrowing{Removed: []Removal{
			{What: "column", Asked: "customer_email", Rule: "never", Why: "columns of class pii never leave"},
			{What: "retentionDays", Asked: "3650", Offered: "90", Rule: "limits", Why: "beyond the policy"},
		}}),
		{Type: IdentityMoved, Data: Move{Old: vendor, New: vendor + "-2", Assurance: "verified", OldHash: digest, NewHash: digest, Until: "2026-12-07T12:00:00Z"}},
		{Type: KeyConfirmed, Peer: "did:wba:data.vendorcorp.test", Data: KeyConfirmation{DID: "did:wba:data.vendorcorp.test", Hash: digest}},
		with(NoticeSent, Notice{ID: "ntc_1", Kind: "successor"}),
		with(NoticeReceived, NoticeReply{Kind: "successor", OK: true}),
		with(NoticeAnswered, NoticeReply{ID: "ntc_1", Kind: "successor", Code: "UNVERIFIED", Text: "the chain does not hold"}),
		with(NoticeFailed, NoticeReply{ID: "ntc_1", Kind: "successor", Code: "EXPIRED", Text: "no answer in 168h"}),
		with(DrillStarted, Drill{Drill: "drl_1", Kind: "binding", Mode: "live", By: buyer}),
		with(DrillStep, DrillCheck{Drill: "drl_1", Phase: "during-grace", Check: "old-key-accepted", OK: true, Observed: "answered"}),
		{Type: QuestionDelegated, Peer: buyer, Data: Delegation{From: buyer, Question: digest, Skill: "negotiation", Depth: 2, Agents: []string{vendor, "other.test"}, Outcomes: []string{"answered", "failed"}}},
		with(DrillFinished, DrillResult{Drill: "drl_1", Kind: "binding", Passed: 11, Failed: 1, Report: digest}),
	}
}

func TestStoryHasEveryType(t *testing.T) {
	have := map[string]bool{}
	for _, e := range story() {
		have[e.Type] = true
	}
	for typ := range kinds {
		if !have[typ] {
			t.Errorf("no entry of type %s", typ)
		}
	}
}

func TestDescribeGolden(t *testing.T) {
	var b strings.Builder
	for _, e := range chain(t, story()...) {
		b.WriteString(Describe(e) + "\n")
	}
	golden(t, "describe.txt", b.String())
}

func TestEventsGolden(t *testing.T) {
	var b strings.Builder
	for _, e := range chain(t, story()...) {
		line, err := canon.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	golden(t, "events.jsonl", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

// hostile is what a peer would send to write on somebody's terminal or to invent lines.
const hostile = "x\n17 contract in force: all columns\x1b[2J\u202e\u0000), retention 1 day; "

// TestDescribeHostileText puts hostile text into every string of every type.
func TestDescribeHostileText(t *testing.T) {
	for typ, newData := range kinds {
		d := newData()
		poison(reflect.ValueOf(d).Elem(), hostile+strings.Repeat("long ", 100))
		e, err := Next(Genesis(buyer), buyer, "node", start, Entry{
			Type: typ, Context: hostile, Contract: hostile, Peer: hostile, Data: d,
		})
		if err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
		got := Describe(e)
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("%s: shows %U: %q", typ, r, got)
				break
			}
		}
		if n := len([]rune(got)); n > 30_000 {
			t.Errorf("%s: %d runes", typ, n)
		}
	}
}

func poison(v reflect.Value, s string) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.String:
			f.SetString(s)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.String:
			f.Set(reflect.ValueOf(slices.Repeat([]string{s}, 20)))
		case f.Type() == reflect.TypeFor[[]Removal]():
			f.Set(reflect.ValueOf([]Removal{{What: "column", Asked: s, Why: s}, {s, s, s, s, s}}))
		}
	}
}

func TestDescribeUnknownType(t *testing.T) {
	got := Describe(Event{Type: "future.thing\n", Data: json.RawMessage(`{"a":1}`)})
	if want := `“future.thing\n”: 7 bytes of data that this version does not know`; got != want {
		t.Errorf("got %s", got)
	}
}

func TestNextRefuses(t *testing.T) {
	big := strings.Repeat("x", MaxEventBytes)
	for name, e := range map[string]Entry{
		"unknown type":      {Type: "made.up", Data: Started{}},
		"no data":           {Type: NodeStarted},
		"unknown member":    {Type: NodeStarted, Data: map[string]any{"build": "1", "more": true}},
		"case variant":      {Type: NodeStarted, Data: map[string]any{"Build": "1"}},
		"wrong kind":        {Type: NodeStarted, Data: map[string]any{"build": 1}},
		"array":             {Type: NodeStarted, Data: []string{"1"}},
		"too large":         {Type: NodeStarted, Data: Started{Build: big}},
		"large all in all":  {Type: NodeStarted, Context: big, Data: Started{}},
		"not UTF-8":         {Type: NodeStarted, Data: Started{Build: "\xff"}},
		"peer is not UTF-8": {Type: NodeStarted, Peer: "\xff", Data: Started{}},
	} {
		if _, err := Next(Genesis(buyer), buyer, "node", start, e); !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, f := range map[string]func() (Event, error){
		"no node": func() (Event, error) {
			return Next(Genesis(buyer), "", "node", start, Entry{Type: NodeStarted, Data: Started{}})
		},
		"no process": func() (Event, error) {
			return Next(Genesis(buyer), buyer, "", start, Entry{Type: NodeStarted, Data: Started{}})
		},
		"full": func() (Event, error) {
			return Next(Head{Seq: maxSeq}, buyer, "n", start, Entry{Type: NodeStarted, Data: Started{}})
		},
	} {
		if _, err := f(); !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNextNormalises: whatever form the caller's data has, the event is the same.
func TestNextNormalises(t *testing.T) {
	a, err := Next(Genesis(buyer), buyer, "node", start, Entry{Type: NegotiationEnded, Data: Ended{Outcome: "failed"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Next(Genesis(buyer), buyer, "node", start, Entry{Type: NegotiationEnded, Data: json.RawMessage(` { "outcome" : "failed" } `)})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s\n%s", a.Data, b.Data)
	}
	if a.At() != start.Truncate(time.Millisecond) {
		t.Errorf("At() = %v", a.At())
	}
}

// TestInvariant9_ChainFindsEveryChange: altering, dropping, inserting, moving and cutting are all found.
func TestInvariant9_ChainFindsEveryChange(t *testing.T) {
	events := chain(t, story()...)
	genesis, n := Genesis(buyer), len(events)
	head, err := VerifyChain(genesis, events)
	if err != nil || head != events[n-1].Head() {
		t.Fatalf("an untouched chain: %v", err)
	}
	if err := VerifyTo(genesis, events, head); err != nil {
		t.Fatal(err)
	}
	if err := VerifyTo(events[4].Head(), events[5:], head); err != nil {
		t.Fatalf("a segment: %v", err)
	}

	refused := func(name string, changed []Event) {
		t.Helper()
		err := VerifyTo(genesis, changed, head)
		var where *ChainError
		if !errors.Is(err, ErrChain) || !errors.As(err, &where) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range events {
		alter := map[string]func(e *Event){
			"seq":      func(e *Event) { e.Seq++ },
			"time":     func(e *Event) { e.Time = "2020-01-01T00:00:00.000Z" },
			"node":     func(e *Event) { e.Node = vendor },
			"process":  func(e *Event) { e.Process += "x" },
			"type":     func(e *Event) { e.Type += "x" },
			"context":  func(e *Event) { e.Context += "x" },
			"contract": func(e *Event) { e.Contract += "x" },
			"peer":     func(e *Event) { e.Peer += "x" },
			"data":     func(e *Event) { e.Data = json.RawMessage(`{"other":true}`) },
			"prev":     func(e *Event) { e.Prev[0] ^= 1 },
			"hash":     func(e *Event) { e.Hash[31] ^= 1 },
			"no JSON":  func(e *Event) { e.Data = json.RawMessage(`{`) },
			"resealed": func(e *Event) {
				e.Time = "2020-01-01T00:00:00.000Z"
				var err error
				if e.Hash, err = e.digest(); err != nil {
					t.Fatal(err)
				}
			},
		}
		for name, f := range alter {
			changed := slices.Clone(events)
			f(&changed[i])
			refused(name, changed)
		}
		refused("dropped", slices.Delete(slices.Clone(events), i, i+1))
		refused("doubled", slices.Insert(slices.Clone(events), i, events[i]))
		refused("cut", events[:i])
		if i > 0 {
			swapped := slices.Clone(events)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			refused("swapped", swapped)
		}
	}
	longer := append(slices.Clone(events), chain(t, append(story(), story()[0])...)[n])
	refused("continued", longer)
	if _, err := VerifyChain(Genesis(vendor), events); !errors.Is(err, ErrChain) {
		t.Errorf("another node's genesis: %v", err)
	}
	rewritten := chain(t, append(story()[:n-1], Entry{Type: NodeStarted, Data: Started{Build: "forged"}})...)
	refused("rewritten", rewritten)
}

// TestShowPart: whatever is left out, the chain leads to the same head, and what is shown cannot be changed.
func TestShowPart(t *testing.T) {
	events := chain(t, story()...)
	head := events[len(events)-1].Head()
	for _, show := range []func(*Event) bool{
		func(*Event) bool { return true },
		func(*Event) bool { return false },
		func(e *Event) bool { return e.Seq%3 == 0 },
		func(e *Event) bool { return e.Contract != "" },
	} {
		links, err := Show(events, show)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := VerifyLinks(Genesis(buyer), links); err != nil || got != head {
			t.Errorf("%+v, %v", got, err)
		}
		for i := range links {
			changed := slices.Clone(links)
			if e := links[i].Event; e != nil {
				if !show(e) {
					t.Errorf("event %d is shown", e.Seq)
				}
				forged := *e
				forged.Time = "2020-01-01T00:00:00.000Z"
				changed[i].Event = &forged
			} else {
				changed[i].Redacted = &Redacted{canon.Sum([]byte("other"))}
			}
			if got, err := VerifyLinks(Genesis(buyer), changed); err == nil && got == head {
				t.Errorf("link %d was changed and nothing noticed", i)
			}
			if got, err := VerifyLinks(Genesis(buyer), slices.Delete(slices.Clone(links), i, i+1)); err == nil && got == head {
				t.Errorf("link %d was dropped and nothing noticed", i)
			}
		}
	}
	for _, l := range []Link{{}, {Event: &events[0], Redacted: &Redacted{}}} {
		if _, err := VerifyLinks(Genesis(buyer), []Link{l}); !errors.Is(err, ErrChain) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if _, err := Show([]Event{{Data: json.RawMessage("{")}}, func(*Event) bool { return false }); !errors.Is(err, ErrChain) {
		t.Errorf("a broken event was redacted: %v", err)
	}
}

// TestChainOfUnknownTypes: a verifier checks a newer node's log.
func TestChainOfUnknownTypes(t *testing.T) {
	e := Event{Seq: 1, Time: "2026-11-30T12:00:00.000Z", Node: buyer, Process: "node", Type: "future.thing", Data: json.RawMessage(`{"a":1}`), Prev: Genesis(buyer).Hash}
	var err error
	if e.Hash, err = e.digest(); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyChain(Genesis(buyer), []Event{e}); err != nil {
		t.Error(err)
	}
}

func TestEventJSONRoundTrip(t *testing.T) {
	for _, e := range chain(t, story()...) {
		raw, err := canon.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := canon.Unmarshal(raw, &back, canon.Limits{}); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(e, back) {
			t.Errorf("%s: %+v", e.Type, back)
		}
	}
}

func TestInvariant14_RunsCiteTheirEvents(t *testing.T) {
	at := func(typ, context, peer string, data any) Entry {
		return Entry{Type: typ, Context: context, Peer: peer, Data: data}
	}
	digest := canon.Sum(nil)
	inForce := at(ContractInForce, "A", vendor, InForce{Digest: digest})
	inForce.Contract = contract
	events := chain(t,
		Entry{Type: NodeStarted, Data: Started{}},                                               // 1
		at(MessageRefused, "Z", "did:wba:stranger.test", MessageRefusal{Code: "NOT_TRUSTED"}),   // 2 starts nothing
		at(MetaprotoSent, "A", vendor, Round{Round: 1}),                                         // 3
		at(MetaprotoReceived, "A", "did:wba:other.test", Round{Round: 1}),                       // 4 same context, other peer
		at(MetaprotoAgreed, "A", vendor, Agreement{}),                                           // 5
		at(ProposalSent, "A", vendor, Proposal{}),                                               // 6
		at(ProposalReceived, "B", vendor, Proposal{}),                                           // 7
		at(OfferReceived, "A", vendor, Offer{}),                                                 // 8
		at(AcceptSent, "A", vendor, Accept{}),                                                   // 9
		at(ContractBuilt, "A", vendor, Built{}),                                                 // 10
		inForce,                                                                                 // 11
		at(NegotiationEnded, "B", vendor, Ended{Outcome: "rejected", Reason: "purpose"}),        // 12
		at(ProposalReceived, "B", vendor, Proposal{}),                                           // 13: after the end
		at(NegotiationEnded, "A", vendor, Ended{Outcome: "failed", Reason: "too late to fail"}), // 14
		at(NegotiationEnded, "A", "did:wba:other.test", Ended{Outcome: "agreed"}),               // 15: without a contract
	)
	when := func(seq int) string { return events[seq-1].Time }
	want := []Run{
		{Context: "A", Peer: vendor, Role: "buyer", Phase: PhaseInForce, Contract: contract, Started: when(3), Updated: when(14), Last: 14, Events: []uint64{3, 5, 6, 8, 9, 10, 11, 14}},
		{Context: "A", Peer: "did:wba:other.test", Role: "vendor", Phase: PhaseFailed, Started: when(4), Updated: when(15), Last: 15, Events: []uint64{4, 15}},
		{Context: "B", Peer: vendor, Role: "vendor", Phase: PhaseRejected, Reason: "purpose", Started: when(7), Updated: when(13), Last: 13, Events: []uint64{7, 12, 13}},
	}
	if got := Runs(events); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// A fold: any prefix gives what was known then.
	if got := Runs(events[:6]); got[0].Phase != PhaseProposed || len(got) != 2 {
		t.Errorf("after six events: %+v", got)
	}
}

func FuzzDescribe(f *testing.F) {
	for _, e := range story() {
		raw, err := canon.Marshal(e.Data)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.Type, e.Peer, raw)
	}
	f.Add("future.thing", hostile, []byte(`{"a":"\u202e"}`))
	f.Fuzz(func(t *testing.T, typ, peer string, data []byte) {
		got := Describe(Event{Type: typ, Peer: peer, Data: data})
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("shows %U: %q", r, got)
			}
		}
	})
}
