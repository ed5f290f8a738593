// SPDX-License-Identifier: Apache-2.0

package datatools

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/contract"
)

// TestSameDigestOnBothSides: what the buyer asks is what the data plane hears, for every member that a query can have.
func TestSameDigestOnBothSides(t *testing.T) {
	leaf := contract.Filter{Column: "region", Op: "in", Values: []contract.Value{contract.TextValue("EU"), contract.BoolValue(true)}}
	for name, r := range map[string]contract.Request{
		"plain": {ContractID: "c", Aggregates: []contract.Aggregate{{Op: "count"}}},
		"everything": {
			ContractID: "c", Purpose: "p", Dataset: "d", Limit: 3, Offset: 6,
			Aggregates:  []contract.Aggregate{{Op: "percentile", Column: "v", As: "x", P: "0.9"}},
			GroupBy:     []string{"region"},
			GroupByDate: []contract.DateGroup{{Column: "day", Unit: "week"}},
			Filters:     []contract.Condition{{Column: "v", Op: "is_null"}},
			Where:       &contract.Filter{Or: []contract.Filter{leaf, {Not: &contract.Filter{And: []contract.Filter{leaf}}}}},
			Having:      []contract.Condition{{Column: "x", Op: ">", Value: contract.TextValue("1")}},
			OrderBy:     []contract.Order{{By: "x", Desc: true}},
		},
		"rows": {ContractID: "c", Select: []string{"region", "day"}, Limit: 5, Offset: 5, Where: &leaf, OrderBy: []contract.Order{{By: "day"}}},
	} {
		var sent any = Input(r)
		asked := Input(r).Request("did:wba:b.test")
		if r.Rows() {
			sent, asked = Selection(r), Selection(r).Request("did:wba:b.test")
		}
		raw, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		var heard contract.Request
		if r.Rows() {
			var in SelectInput
			err = ParseArguments(raw, &in)
			heard = in.Request("did:wba:b.test")
		} else {
			var in QueryInput
			err = ParseArguments(raw, &in)
			heard = in.Request("did:wba:b.test")
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, raw)
		}
		want, err1 := asked.Digest()
		got, err2 := heard.Digest()
		if err1 != nil || err2 != nil || want != got {
			t.Errorf("%s: %v %v, asked %v, heard %v: %s", name, err1, err2, want, got, raw)
		}
	}
}

func TestDeepArguments(t *testing.T) {
	tree := func(depth int) []byte {
		return []byte(`{"contract_id":"c","purpose":"p","dataset":"d","aggregates":[],"where":` +
			strings.Repeat(`{"or":[`, depth) + `{"column":"a","op":"in","values":["1"]}` + strings.Repeat(`]}`, depth) + `}`)
	}
	var in QueryInput
	if err := ParseArguments(tree(contract.MaxFilterDepth-1), &in); err != nil {
		t.Errorf("the deepest that is allowed: %v", err)
	}
	for _, depth := range []int{contract.MaxFilterDepth + 2, 1000} {
		if err := ParseArguments(tree(depth), &in); !errors.Is(err, ErrArguments) {
			t.Errorf("%d levels: %v", depth, err)
		}
	}
	for _, raw := range []string{
		`{"contract_id":"c","purpose":"p","dataset":"d","aggregates":[],"where":{"Or":[]}}`,
		`{"contract_id":"c","purpose":"p","dataset":"d","aggregates":[],"where":{"or":[],"or":[]}}`,
		`{"contract_id":"c","purpose":"p","dataset":"d","aggregates":[],"where":{"sql":"1=1"}}`,
		`{"contract_id":"c","purpose":"p","dataset":"d","aggregates":[],"where":[]}`,
	} {
		if err := ParseArguments([]byte(raw), &in); !errors.Is(err, ErrArguments) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
