// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/treaty-node/treaty/node/contract"
)

// Every member of a request in which a column can stand is one that ColumnUses looks at.
func TestColumnUsesLooksEverywhere(t *testing.T) {
	looked := []string{"Select", "Aggregates", "GroupBy", "GroupByDate", "Filters", "Where"}
	none := []string{"ContractID", "Caller", "Purpose", "Dataset", "OrderBy", "Having", "Limit", "Offset"}
	typ := reflect.TypeFor[contract.Request]()
	for i := range typ.NumField() {
		if name := typ.Field(i).Name; !slices.Contains(looked, name) && !slices.Contains(none, name) {
			t.Errorf("ColumnUses does not look at Request.%s", name)
		}
	}
	r := contract.Request{
		Select: []string{"s"}, GroupByDate: []contract.DateGroup{{Column: "d"}}, Where: &contract.Filter{Not: &contract.Filter{Column: "w", Op: contract.OpIsNull}},
		Aggregates: []contract.Aggregate{{Op: "avg", Column: "a"}, {Op: "count"}}, GroupBy: []string{"g"},
		Filters: []contract.Condition{{Column: "f"}}, OrderBy: []contract.Order{{By: "g"}},
	}
	want := []contract.ColumnUse{
		{Use: "read", Column: "s"}, {Use: "avg", Column: "a"}, {Use: "group", Column: "g"}, {Use: "group", Column: "d"}, {Use: "filter", Column: "f"}, {Use: "filter", Column: "w"},
	}
	if got := r.ColumnUses(); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
