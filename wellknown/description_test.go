// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

func adSpec(a agent) ADSpec {
	plane := vendorSpec(a).DataPlane
	return ADSpec{
		Agent: a.id, URL: "https://vendorcorp.test/agents/steward/ad.json", Name: "Data steward",
		Description: "Negotiates access to sales data.", OwnerName: "Vendor Corp", OwnerURL: "https://vendorcorp.test",
		Created: at, Interfaces: Interfaces("https://vendorcorp.test", plane),
	}
}

func TestAgentDescription(t *testing.T) {
	a, other := newAgent(t, "vendorcorp.test", 1), newAgent(t, "othercorp.test", 2)
	raw, err := BuildAgentDescription(context.Background(), adSpec(a), a.signer)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "ad.json", raw)
	ad := must(ParseAgentDescription(raw))
	if kid, err := ad.Verify(a.doc, at); err != nil || kid != a.signer.KeyID() {
		t.Fatalf("%q, %v", kid, err)
	}
	kinds := map[string]bool{}
	for _, i := range ad.Interfaces {
		kinds[i.Type+" "+i.Protocol] = true
	}
	for _, want := range []string{"NaturalLanguageInterface A2A", "StructuredInterface A2A", "StructuredInterface MCP", "MetaProtocolInterface " + ExtensionURI} {
		if !kinds[want] {
			t.Errorf("no %s", want)
		}
	}
	proof := func(change func(map[string]any)) []byte {
		return edit(t, raw, func(m map[string]any) { change(m["proof"].(map[string]any)) })
	}
	for name, test := range map[string]struct {
		raw  []byte
		doc  agent
		want error
	}{
		"changed":             {edit(t, raw, func(m map[string]any) { m["name"] = "x" }), a, ErrBadSignature},
		"member added":        {edit(t, raw, func(m map[string]any) { m["x"] = "x" }), a, ErrBadSignature},
		"no proof":            {edit(t, raw, func(m map[string]any) { delete(m, "proof") }), a, ErrNotSigned},
		"another agent's key": {raw, other, ErrWrongAgent},
		"another did":         {edit(t, raw, func(m map[string]any) { m["did"] = other.id.String() }), a, ErrWrongAgent},
		"proof of other kind": {proof(func(p map[string]any) { p["challenge"] = "1235" }), a, ErrBadSignature},
		"proof time changed":  {proof(func(p map[string]any) { p["created"] = "2026-11-30T12:00:01Z" }), a, ErrBadSignature},
		"other purpose":       {proof(func(p map[string]any) { p["proofPurpose"] = "authentication" }), a, ErrBadSignature},
		"key not listed":      {proof(func(p map[string]any) { p["verificationMethod"] = a.id.String() + "#x" }), a, ErrBadSignature},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := must(ParseAgentDescription(test.raw)).Verify(test.doc.doc, at); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	if _, err := BuildAgentDescription(context.Background(), adSpec(a), other.signer); !errors.Is(err, ErrSpec) {
		t.Errorf("foreign signer: %v", err)
	}
}

// The example of ANP-07, shortened: members we do not know, a misspelt one among them, and a proof of another kind.
func TestParseForeignDescription(t *testing.T) {
	ad, err := ParseAgentDescription([]byte(`{"protocolType":"ANP","protocolVersion":"1.0.0","type":"AgentDescription",
		"url":"https://grand-hotel.com/agents/hotel-assistant/ad.json","name":"Grand Hotel Assistant","did":"did:wba:grand-hotel.com:service:hotel-assistant",
		"owner":{"type":"Organization","name":"Grand Hotel Management Group","url":"https://grand-hotel.com"},
		"securityDefinitions":{"didwba_sc":{"scheme":"didwba","in":"header","name":"Authorization"}},"security":"didwba_sc",
		"Infomations":[{"type":"Product","url":"https://grand-hotel.com/products/luxury-rooms.json"}],
		"interfaces":[{"type":"StructuredInterface","protocol":"openrpc","content":{"openrpc":"1.3.2"}},{"type":"StructuredInterface","protocol":"YAML","humanAuthorization":true}],
		"proof":{"type":"EcdsaSecp256r1Signature2019","challenge":"1235abcd6789"}}`))
	if err != nil || len(ad.Interfaces) != 2 || !ad.Interfaces[1].HumanAuthorization {
		t.Fatalf("%+v, %v", ad, err)
	}
	if _, err := ad.Verify(newAgent(t, "vendorcorp.test", 1).doc, at); !errors.Is(err, ErrBadSignature) {
		t.Errorf("got %v", err)
	}
}

func TestDescriptionPages(t *testing.T) {
	var items []Item
	for i := range 5 {
		items = append(items, Item{Name: fmt.Sprint("agent ", i), ID: fmt.Sprintf("https://vendorcorp.test/agents/%d/ad.json", i)})
	}
	docs, err := DescriptionPages("https://vendorcorp.test", items, 2)
	if err != nil || len(docs) != 3 {
		t.Fatalf("%d pages, %v", len(docs), err)
	}
	golden(t, "agent-descriptions.json", docs[0].Body)
	total := 0
	for i, d := range docs {
		page := must(ParseDescriptions(d.Body))
		total += len(page.Items)
		if last := i == len(docs)-1; last != (page.Next == "") {
			t.Errorf("page %d: next %q", i+1, page.Next)
		}
	}
	if total != 5 {
		t.Errorf("%d items", total)
	}
	if docs, err := DescriptionPages("https://vendorcorp.test", nil, 10); err != nil || len(docs) != 1 || !strings.Contains(string(docs[0].Body), `"items":[]`) {
		t.Errorf("no agents: %v, %v", docs, err)
	}
	if _, err := DescriptionPages("https://vendorcorp.test", []Item{{ID: "http://x"}}, 1); !errors.Is(err, ErrSpec) {
		t.Errorf("http: %v", err)
	}
}

func TestParseDescriptionsRefusals(t *testing.T) {
	many := strings.Repeat(`{"@type":"ad:AgentDescription","@id":"https://a.test/ad.json"},`, maxPageItems)
	for name, test := range map[string]struct {
		in   string
		want error
	}{
		"other type":       {`{"@type":"Collection","items":[]}`, ErrMalformed},
		"too many":         {`{"@type":"CollectionPage","items":[` + many + `{}]}`, ErrTooMany},
		"too large":        {strings.Repeat(" ", MaxPageBytes+1), canon.ErrTooLarge},
		"duplicate member": {`{"@type":"CollectionPage","items":[],"items":[]}`, canon.ErrDuplicateMember},
		"case variant":     {`{"@type":"CollectionPage","Items":[]}`, canon.ErrCaseVariant},
		"items no list":    {`{"@type":"CollectionPage","items":"x"}`, canon.ErrType},
	} {
		if _, err := ParseDescriptions([]byte(test.in)); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}

// web is a domain as a map from URL to body.
type web map[string]string

func (w web) get(_ context.Context, url string, limit int64) ([]byte, error) {
	body, ok := w[url]
	if !ok {
		return nil, errors.New("404")
	}
	if int64(len(body)) > limit {
		return nil, errors.New("too large")
	}
	return []byte(body), nil
}

func page(next string, ids ...string) string {
	var items []string
	for _, id := range ids {
		items = append(items, `{"@type":"ad:AgentDescription","@id":"`+id+`"}`)
	}
	out := `{"@type":"CollectionPage","items":[` + strings.Join(items, ",") + `]`
	if next != "" {
		out += `,"next":"` + next + `"`
	}
	return out + `}`
}

func ad(did string) string { return `{"name":"x","did":"` + did + `"}` }

func TestDiscover(t *testing.T) {
	const base = "https://vendorcorp.test"
	first := base + PathDescriptions
	w := web{
		first:                     page(first+"?page=2", base+"/a/ad.json", base+"/a/ad.json", "https://evil.test/ad.json", base+".evil.test/ad.json", base+"@evil.test/ad.json", base+"/foreign/ad.json"),
		first + "?page=2":         page(first, base+"/b/ad.json", base+"/gone/ad.json", base+"/bad/ad.json", base+"/nodid/ad.json"),
		base + "/a/ad.json":       ad("did:wba:vendorcorp.test:agents:a"),
		base + "/b/ad.json":       ad("did:wba:vendorcorp.test:agents:b"),
		base + "/foreign/ad.json": ad("did:wba:othercorp.test:agents:a"),
		base + "/bad/ad.json":     `{"did":1}`,
		base + "/nodid/ad.json":   `{"name":"x"}`,
	}
	var asked []string
	out, err := Discover(context.Background(), func(ctx context.Context, url string, limit int64) ([]byte, error) {
		asked = append(asked, url)
		return w.get(ctx, url, limit)
	}, "vendorcorp.test")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range out.Agents {
		got = append(got, a.DID.String()+" "+a.URL)
	}
	want := "did:wba:vendorcorp.test:agents:a https://vendorcorp.test/a/ad.json,did:wba:vendorcorp.test:agents:b https://vendorcorp.test/b/ad.json"
	if strings.Join(got, ",") != want {
		t.Errorf("got %v", got)
	}
	if len(out.Skipped) != 8 { // 3 origins, 1 foreign DID, 1 gone, 1 bad, 1 without DID, 1 circle
		t.Errorf("skipped %v", out.Skipped)
	}
	for _, url := range asked {
		if !strings.HasPrefix(url, base+"/") {
			t.Errorf("asked %s", url)
		}
	}
}

func TestDiscoverFollowsNoForeignPage(t *testing.T) {
	const base = "https://vendorcorp.test"
	for _, next := range []string{"https://evil.test" + PathDescriptions, "http://vendorcorp.test/x", base + ".evil.test/x", base + "@evil.test/x", base + "/x#y", "/x"} {
		w := web{base + PathDescriptions: page(next)}
		out, err := Discover(context.Background(), func(ctx context.Context, url string, limit int64) ([]byte, error) {
			if url != base+PathDescriptions {
				t.Errorf("asked %s", url)
			}
			return w.get(ctx, url, limit)
		}, "vendorcorp.test")
		if err != nil || len(out.Skipped) != 1 {
			t.Errorf("%s: %+v, %v", next, out, err)
		}
	}
}

func TestDiscoverBounds(t *testing.T) {
	const base = "https://vendorcorp.test"
	endless := func(_ context.Context, url string, _ int64) ([]byte, error) {
		if strings.HasSuffix(url, "ad.json") {
			return []byte(ad("did:wba:vendorcorp.test:x")), nil
		}
		return []byte(page(url+"x", base+"/"+fmt.Sprint(len(url))+"/ad.json")), nil
	}
	out, err := Discover(context.Background(), endless, "vendorcorp.test")
	if err != nil || !out.More || len(out.Agents) != MaxPages {
		t.Errorf("%d agents, more %v, %v", len(out.Agents), out.More, err)
	}
	var ids []string
	for i := range maxPageItems {
		ids = append(ids, fmt.Sprintf("%s/%d/ad.json", base, i))
	}
	wide := func(ctx context.Context, url string, limit int64) ([]byte, error) {
		if url == base+PathDescriptions {
			return []byte(page("", ids...)), nil
		}
		return endless(ctx, url, limit)
	}
	out, err = Discover(context.Background(), wide, "vendorcorp.test")
	if err != nil || !out.More || len(out.Agents) != MaxAgents {
		t.Errorf("%d agents, more %v, %v", len(out.Agents), out.More, err)
	}
}

func TestDiscoverRefusesNames(t *testing.T) {
	for _, domain := range []string{"", "127.0.0.1", "vendorcorp.test/x", "user@vendorcorp.test", "VENDORCORP.test", "vendorcorp.test:agents", "vendorcorp.test?x", "[::1]"} {
		if _, err := Discover(context.Background(), web{}.get, domain); !errors.Is(err, ErrSpec) {
			t.Errorf("%q: %v", domain, err)
		}
	}
	// With a port the origin has it too.
	w := web{"https://vendorcorp.test:8443" + PathDescriptions: page("")}
	if _, err := Discover(context.Background(), w.get, "vendorcorp.test:8443"); err != nil {
		t.Error(err)
	}
	if _, err := Discover(context.Background(), web{}.get, "vendorcorp.test"); err == nil {
		t.Error("no first page, and no error")
	}
}

func TestSite(t *testing.T) {
	a := newAgent(t, "vendorcorp.test", 1)
	card := CardDocument(must(BuildCard(context.Background(), vendorSpec(a), a.signer)))
	pages := must(DescriptionPages("https://vendorcorp.test", []Item{{ID: "https://vendorcorp.test/1"}, {ID: "https://vendorcorp.test/2"}}, 1))
	didDoc := must(DIDDocument(a.doc.Raw()))
	adDoc := must(AgentDescriptionDocument(must(BuildAgentDescription(context.Background(), adSpec(a), a.signer))))
	s, err := NewSite(5*time.Minute, append(pages, card, didDoc, adDoc)...)
	if err != nil {
		t.Fatal(err)
	}
	if want := "/agents/steward/" + "e1_" + a.id.Fingerprint() + "/did.json"; didDoc.Path != want {
		t.Errorf("DID document at %s", didDoc.Path)
	}
	if len(s.Paths()) != 4 {
		t.Errorf("paths %v", s.Paths())
	}
	ask := func(method, target, etag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, target, nil)
		if etag != "" {
			r.Header.Set("If-None-Match", etag)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	w := ask("GET", PathAgentCard, "")
	etag := w.Header().Get("ETag")
	if w.Code != 200 || w.Body.String() != string(card.Body) || etag == "" || w.Header().Get("Cache-Control") != "public, max-age=300" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("GET: %d %v", w.Code, w.Header())
	}
	for _, test := range []struct {
		method, target, etag string
		status, length       int
	}{
		{"HEAD", PathAgentCard, "", 200, 0},
		{"GET", PathAgentCard, etag, 304, 0},
		{"GET", PathAgentCard, "W/" + etag, 304, 0},
		{"GET", PathAgentCard, `"x", ` + etag, 304, 0},
		{"GET", PathAgentCard, "*", 304, 0},
		{"GET", PathAgentCard, `"x"`, 200, len(card.Body)},
		{"GET", PathDescriptions + "?page=2", "", 200, len(pages[1].Body)},
		{"GET", PathDescriptions + "?page=1", "", 200, len(pages[0].Body)},
		{"GET", PathDescriptions + "?page=3", "", http.StatusNotFound, -1},
		{"GET", PathDescriptions + "?page=-1", "", http.StatusNotFound, -1},
		{"GET", didDoc.Path, "", 200, len(didDoc.Body)},
		{"GET", adDoc.Path, "", 200, len(adDoc.Body)},
		{"GET", "/agents/nobody/ad.json", "", http.StatusNotFound, -1},
		{"POST", PathAgentCard, "", http.StatusMethodNotAllowed, -1},
	} {
		w := ask(test.method, test.target, test.etag)
		if w.Code != test.status || test.length >= 0 && w.Body.Len() != test.length {
			t.Errorf("%s %s (%s): %d, %d bytes", test.method, test.target, test.etag, w.Code, w.Body.Len())
		}
	}
	if _, err := NewSite(time.Minute, card, card); !errors.Is(err, ErrSpec) {
		t.Errorf("two cards: %v", err)
	}
}

func FuzzParseDescriptions(f *testing.F) {
	f.Add([]byte(page("https://vendorcorp.test/x", "https://vendorcorp.test/ad.json")))
	f.Add([]byte(ad("did:wba:vendorcorp.test:agents:a")))
	f.Add([]byte(`{"@type":"CollectionPage","items":[{"@ID":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := ParseDescriptions(data); err == nil && len(p.Items) > maxPageItems {
			t.Fatal("too many items")
		}
		if ad, err := ParseAgentDescription(data); err == nil && len(ad.Interfaces) > maxADInterfaces {
			t.Fatal("too many interfaces")
		}
		// Whatever a domain publishes, only its own origin is asked and only its own DIDs are found.
		out, err := Discover(context.Background(), func(_ context.Context, url string, _ int64) ([]byte, error) {
			if !strings.HasPrefix(url, "https://vendorcorp.test/") {
				t.Fatalf("asked %q", url)
			}
			return data, nil
		}, "vendorcorp.test")
		if err != nil {
			return
		}
		for _, a := range out.Agents {
			if a.DID.Domain() != "vendorcorp.test" {
				t.Fatalf("found %s", a.DID)
			}
		}
	})
}
