// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
)

// document is one kind of document with a valid example.
type document struct {
	name  string
	bytes []byte
	parse func([]byte) ([]byte, error) // parse and encode again
	// optional lists the paths that may be absent.
	optional []string
}

func documents(tb testing.TB) []document {
	w := newWorld(tb)
	c := w.proven(tb)
	sb, err := w.schema.Canonical()
	schema := must(tb, sb, err)
	ob, err := w.offer.Canonical()
	offer := must(tb, ob, err)
	marshal := func(m interface{ Marshal() ([]byte, error) }) []byte {
		b, err := m.Marshal()
		return must(tb, b, err)
	}
	return []document{
		{"schema", schema, func(b []byte) ([]byte, error) {
			v, err := contract.ParseSchema(b)
			if err != nil {
				return nil, err
			}
			return v.Canonical()
		}, nil},
		{"offer", offer, func(b []byte) ([]byte, error) {
			v, err := contract.ParseOffer(b)
			if err != nil {
				return nil, err
			}
			return v.Canonical()
		}, nil},
		{"contract", marshal(c), func(b []byte) ([]byte, error) {
			v, err := contract.Parse(b)
			if err != nil {
				return nil, err
			}
			return v.Marshal()
		}, []string{"proofs"}},
		{"activation", marshal(w.activation(tb, c)), func(b []byte) ([]byte, error) {
			v, err := contract.ParseActivation(b)
			if err != nil {
				return nil, err
			}
			return v.Marshal()
		}, nil},
		{"receipt", marshal(w.receipt(tb, c)), func(b []byte) ([]byte, error) {
			v, err := contract.ParseReceipt(b)
			if err != nil {
				return nil, err
			}
			return v.Marshal()
		}, nil},
		{"revocation", marshal(w.revocation(tb, c)), func(b []byte) ([]byte, error) {
			v, err := contract.ParseRevocation(b)
			if err != nil {
				return nil, err
			}
			return v.Marshal()
		}, nil},
	}
}

func TestGoldenDocuments(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) {
			golden(t, d.name+".json", d.bytes)
			again, err := d.parse(d.bytes)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, d.bytes) {
				t.Errorf("parsing and encoding changed it:\n%s\n%s", d.bytes, again)
			}
			// People indent files; what is decided upon is the canonical form.
			var indented bytes.Buffer
			if err := json.Indent(&indented, d.bytes, "", "  "); err != nil {
				t.Fatal(err)
			}
			if again, err = d.parse(indented.Bytes()); err != nil || !bytes.Equal(again, d.bytes) {
				t.Errorf("indented: %v", err)
			}
		})
	}
	w := newWorld(t)
	c := w.proven(t)
	var digests strings.Builder
	for _, d := range []struct {
		name string
		of   interface{ Digest() (canon.Digest, error) }
	}{{"schema", w.schema}, {"offer", w.offer}, {"contract", c}} {
		v, err := d.of.Digest()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&digests, d.name, v)
	}
	golden(t, "digests.txt", []byte(strings.TrimSuffix(digests.String(), "\n")))
}

// TestC2_NoBestEffort removes, renames, nulls, retypes and adds a member at
// every place of every document: each must be refused.
func TestC2_NoBestEffort(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) {
			var root any
			if err := json.Unmarshal(d.bytes, &root); err != nil {
				t.Fatal(err)
			}
			tried := 0
			refuse := func(what string) {
				t.Helper()
				tried++
				b, err := json.Marshal(root)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.parse(b); !errors.Is(err, contract.ErrInvalid) {
					t.Errorf("%s: got %v, want ErrInvalid", what, err)
				}
			}
			var walk func(path string, v any)
			walk = func(path string, v any) {
				switch v := v.(type) {
				case map[string]any:
					v["unknown"] = "x"
					refuse(path + ": unknown member")
					delete(v, "unknown")
					for _, k := range slices.Sorted(maps.Keys(v)) {
						at, old := strings.TrimPrefix(path+"."+k, "."), v[k]
						delete(v, k)
						if !slices.Contains(d.optional, at) {
							refuse(at + ": missing")
						}
						v[strings.ToUpper(k)] = old
						refuse(at + ": another case")
						delete(v, strings.ToUpper(k))
						for _, wrong := range []any{nil, 1.5, map[string]any{}, []any{[]any{}}} {
							v[k] = wrong
							refuse(fmt.Sprintf("%s: %v", at, wrong))
						}
						v[k] = old
						walk(at, old)
					}
				case []any:
					for i, e := range v {
						walk(fmt.Sprintf("%s[%d]", path, i), e)
						v[i] = nil
						refuse(fmt.Sprintf("%s[%d]: null", path, i))
						v[i] = e
					}
				}
			}
			walk("", root)
			if tried < 20 {
				t.Fatalf("only %d variants were tried", tried)
			}
			dup := append([]byte(`{"type":"x",`), d.bytes[1:]...)
			if _, err := d.parse(dup); !errors.Is(err, contract.ErrInvalid) {
				t.Errorf("duplicate member: %v", err)
			}
			if _, err := d.parse(append(slices.Clone(d.bytes), '0')); !errors.Is(err, contract.ErrInvalid) {
				t.Errorf("trailing data: %v", err)
			}
		})
	}
}

// TestInvariant11_BoundsAndForms changes single fields of an otherwise valid
// contract.
func TestInvariant11_BoundsAndForms(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 5000)
	for name, change := range map[string]func(c *contract.Contract){
		"other type":             func(c *contract.Contract) { c.Type = contract.OfferType },
		"version 2":              func(c *contract.Contract) { c.Version = 4 },
		"own id":                 func(c *contract.Contract) { c.ID = contract.ID(canon.Sum(nil)) },
		"one party":              func(c *contract.Contract) { c.Parties.Buyer = c.Parties.Vendor },
		"buyer is no DID":        func(c *contract.Contract) { c.Parties.Buyer = "buyercorp" },
		"buyer has a fragment":   func(c *contract.Contract) { c.Parties.Buyer += "#signing" },
		"long DID":               func(c *contract.Contract) { c.Parties.Vendor = "did:wba:" + long },
		"http data plane":        func(c *contract.Contract) { c.Parties.DataPlane.URL = "http://data.vendorcorp.test/mcp" },
		"data plane userinfo":    func(c *contract.Contract) { c.Parties.DataPlane.URL = "https://a:b@data.vendorcorp.test/mcp" },
		"data plane fragment":    func(c *contract.Contract) { c.Parties.DataPlane.URL += "#x" },
		"data plane no host":     func(c *contract.Contract) { c.Parties.DataPlane.URL = "https:///mcp" },
		"long URL":               func(c *contract.Contract) { c.Parties.DataPlane.URL += long },
		"zero schema digest":     func(c *contract.Contract) { c.SchemaDigest = canon.Digest{} },
		"zero agreement":         func(c *contract.Contract) { c.Agreement = canon.Digest{} },
		"offset":                 func(c *contract.Contract) { c.ValidFrom = "2026-11-30T12:00:00+00:00" },
		"fraction":               func(c *contract.Contract) { c.ValidFrom = "2026-11-30T12:00:00.5Z" },
		"lower-case zone":        func(c *contract.Contract) { c.ValidFrom = "2026-11-30T12:00:00z" },
		"no such day":            func(c *contract.Contract) { c.ValidFrom = "2026-02-30T12:00:00Z" },
		"leap second":            func(c *contract.Contract) { c.ValidFrom = "2016-12-31T23:59:60Z" },
		"until before from":      func(c *contract.Contract) { c.ValidUntil = c.ValidFrom },
		"acceptBy after until":   func(c *contract.Contract) { c.AcceptBy = "2027-03-01T00:00:00Z" },
		"no columns":             func(c *contract.Contract) { c.Columns = []string{} },
		"column twice":           func(c *contract.Contract) { c.Columns = []string{"region", "region"} },
		"long column":            func(c *contract.Contract) { c.Columns[0] = strings.Repeat("x", contract.MaxName+1) },
		"control character":      func(c *contract.Contract) { c.Columns[0] = "a\x00b" },
		"direction override":     func(c *contract.Contract) { c.Columns[0] = "a\u202eb" },
		"zero-width space":       func(c *contract.Contract) { c.Columns[0] = "a\u200bb" },
		"space around":           func(c *contract.Contract) { c.Columns[0] = "region " },
		"too many columns":       func(c *contract.Contract) { c.Columns = make([]string, contract.MaxColumns+1) },
		"no operations":          func(c *contract.Contract) { c.Operations = []string{} },
		"unknown operation":      func(c *contract.Contract) { c.Operations[0] = "mode" },
		"operation twice":        func(c *contract.Contract) { c.Operations = []string{"avg", "avg"} },
		"condition twice":        func(c *contract.Contract) { c.RowFilter = append(c.RowFilter, c.RowFilter[0]) },
		"between one":            func(c *contract.Contract) { c.RowFilter[0].Values = c.RowFilter[0].Values[:1] },
		"unknown operator":       func(c *contract.Contract) { c.RowFilter[0].Op = "like" },
		"value and values":       func(c *contract.Contract) { c.RowFilter[0].Value = contract.TextValue("x") },
		"no value":               func(c *contract.Contract) { c.RowFilter[1].Value = contract.Value{} },
		"long value":             func(c *contract.Contract) { c.RowFilter[1].Value = contract.TextValue(long) },
		"too many conditions":    func(c *contract.Contract) { c.RowFilter = make([]contract.Condition, contract.MaxConditions+1) },
		"no purpose":             func(c *contract.Contract) { c.Purpose = "" },
		"purpose of two lines":   func(c *contract.Contract) { c.Purpose = "a\nb" },
		"long purpose":           func(c *contract.Contract) { c.Purpose = long },
		"negative retention":     func(c *contract.Contract) { c.RetentionDays = -1 },
		"retention of centuries": func(c *contract.Contract) { c.RetentionDays = contract.MaxRetention + 1 },
		"group of none":          func(c *contract.Contract) { c.MinGroupSize = 0 },
		"no budget":              func(c *contract.Contract) { c.CallBudget = 0 },
		"huge budget":            func(c *contract.Contract) { c.CallBudget = contract.MaxCallBudget + 1 },
		"an approval":            func(c *contract.Contract) { c.Approvals = []contract.Approval{{}} },
		"path in dataset":        func(c *contract.Contract) { c.Dataset = "../orders" },
	} {
		t.Run(name, func(t *testing.T) {
			c := w.proven(t)
			change(c)
			b, err := c.Marshal()
			if err != nil {
				return // not even an encoding, such as a condition without a value
			}
			if _, err := contract.Parse(b); !errors.Is(err, contract.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			} else if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestSchemaRefusesAmbiguousNames(t *testing.T) {
	for name, columns := range map[string][]contract.Column{
		"twice":               {{Name: "a", Type: "text"}, {Name: "a", Type: "text"}},
		"by case":             {{Name: "Region", Type: "text"}, {Name: "region", Type: "text"}},
		"by case, not ASCII":  {{Name: "STRAẞE", Type: "text"}, {Name: "straße", Type: "text"}},
		"Kelvin sign":         {{Name: "\u212a", Type: "text"}, {Name: "k", Type: "text"}},
		"unknown type":        {{Name: "a", Type: "blob"}},
		"spaces in decimal":   {{Name: "a", Type: "decimal(10, 2)"}},
		"decimal out of form": {{Name: "a", Type: "decimal(39,2)"}},
		"scale too large":     {{Name: "a", Type: "decimal(2,3)"}},
		"leading zero":        {{Name: "a", Type: "decimal(09,2)"}},
		"none":                {},
	} {
		if _, err := contract.NewSchema("orders", "", columns); !errors.Is(err, contract.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := contract.NewSchema("orders", "", []contract.Column{{Name: "Umsatz (€)", Type: contract.DecimalType(38, 0)}}); err != nil {
		t.Errorf("an ordinary header was refused: %v", err)
	}
}

func TestBuildIsDeterministicAndProofsDoNotChangeTheDigest(t *testing.T) {
	w := newWorld(t)
	a := w.build(t)
	// The other side knows the offer from its bytes.
	ob, err := w.offer.Canonical()
	offer, err2 := contract.ParseOffer(must(t, ob, err))
	if err2 != nil {
		t.Fatal(err2)
	}
	p := w.parties
	p.DataPlane = offer.DataPlane
	b, err := contract.Build(offer, p, w.agreement, w.transcript)
	if err != nil {
		t.Fatal(err)
	}
	ab, err := a.Canonical()
	bb, err2 := b.Canonical()
	if !bytes.Equal(must(t, ab, err), must(t, bb, err2)) {
		t.Errorf("two builds differ:\n%s\n%s", ab, bb)
	}
	before, err := a.Digest()
	if err != nil {
		t.Fatal(err)
	}
	after, err := w.proven(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	if before != after {
		t.Error("proofs changed the digest")
	}
	// Building shares no memory with the offer.
	a.Columns[0], a.RowFilter[0].Values[0] = "changed", contract.TextValue("changed")
	if w.offer.Columns[0] == "changed" || w.offer.RowFilter[0].Values[0] == contract.TextValue("changed") {
		t.Error("the contract aliases the offer")
	}
	p.DataPlane.URL = "https://elsewhere.test/mcp"
	if _, err := contract.Build(offer, p, w.agreement, w.transcript); !errors.Is(err, contract.ErrInvalid) {
		t.Errorf("another data plane than the offer's: %v", err)
	}
	if _, err := contract.Build(offer, w.parties, w.agreement, canon.Digest{}); !errors.Is(err, contract.ErrInvalid) {
		t.Errorf("no transcript: %v", err)
	}
}

func TestOfferExpires(t *testing.T) {
	w := newWorld(t)
	end, err := contract.ParseTime(w.offer.ExpiresAt)
	if err != nil {
		t.Fatal(err)
	}
	if w.offer.Expired(end.Add(-1)) || !w.offer.Expired(end) {
		t.Error("an offer ends with the second it names")
	}
	w.offer.ExpiresAt = "never"
	if !w.offer.Expired(now) {
		t.Error("an unreadable time must count as past")
	}
	w.offer.ExpiresAt = "2026-11-30T12:15:01Z"
	if err := w.offer.Validate(); !errors.Is(err, contract.ErrInvalid) {
		t.Errorf("expires after acceptBy: %v", err)
	}
}

func TestC7_Within(t *testing.T) {
	w := newWorld(t)
	ask := w.offer.Scope
	for name, tc := range map[string]struct {
		change func(s *contract.Scope)
		within bool
	}{
		"equal":           {func(*contract.Scope) {}, true},
		"fewer columns":   {func(s *contract.Scope) { s.Columns = s.Columns[:1] }, true},
		"other order":     {func(s *contract.Scope) { slices.Reverse(s.Columns) }, true},
		"another column":  {func(s *contract.Scope) { s.Columns[0] = "customer_email" }, false},
		"more operations": {func(s *contract.Scope) { s.Operations = append(s.Operations, "max") }, false},
		"another filter":  {func(s *contract.Scope) { s.RowFilter[1].Value = contract.BoolValue(true) }, false},
		"more conditions": {func(s *contract.Scope) {
			s.RowFilter = append(s.RowFilter, contract.Condition{Column: "region", Op: "is_not_null"})
		}, true},
		"fewer conditions": {func(s *contract.Scope) { s.RowFilter = s.RowFilter[:1] }, false},
		"other purpose":    {func(s *contract.Scope) { s.Purpose += "s" }, false},
		"longer":           {func(s *contract.Scope) { s.RetentionDays++ }, false},
		"shorter":          {func(s *contract.Scope) { s.RetentionDays-- }, true},
		"smaller groups":   {func(s *contract.Scope) { s.MinGroupSize-- }, false},
		"larger groups":    {func(s *contract.Scope) { s.MinGroupSize++ }, true},
		"more calls":       {func(s *contract.Scope) { s.CallBudget++ }, false},
		"other dataset":    {func(s *contract.Scope) { s.Dataset = "Orders" }, false},
	} {
		s := ask.Clone()
		tc.change(&s)
		if got := s.Within(&ask); got != tc.within {
			t.Errorf("%s: within = %v", name, got)
		}
	}
}
