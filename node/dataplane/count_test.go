// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
)

// TestCeiling_CedarCountsOfRows: a bare count uses no column, and is asked about all the same.
func TestCeiling_CedarCountsOfRows(t *testing.T) {
	f := newFixture(t)
	bare := func(in *datatools.QueryInput) {
		in.GroupBy, in.Aggregates = nil, []datatools.AggregateInput{{Op: "count"}}
	}
	for name, tt := range map[string]struct {
		rules string
		want  bool
	}{
		"nobody may":          {`@id("nobody") forbid (principal, action, resource);`, false},
		"no count":            {`@id("no-count") forbid (principal, action == Action::"count", resource);`, false},
		"of one column":       {`@id("one") forbid (principal, action == Action::"count", resource) unless { resource == Column::"orders.region" };`, true},
		"of none in scope":    {`@id("other") forbid (principal, action == Action::"count", resource) unless { resource == Column::"orders.channel" };`, false},
		"another may not":     {`forbid (principal == Company::"did:wba:rival.test", action, resource);`, true},
		"the buyer's domain":  {`@id("rival") forbid (principal in Domain::"buyercorp.test", action, resource);`, false},
		"for another purpose": {`forbid (principal, action == Action::"count", resource) unless { context.purpose == "another" };`, false},
	} {
		t.Run(name, func(t *testing.T) {
			withCedar(t, f, tt.rules)
			reads := f.src.count()
			f.src.rows = [][]any{{int64(60), int64(60), int64(624)}}
			_, err := f.svc.Query(t.Context(), f.buyer.caller(), f.input(bare))
			if tt.want {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if r := refused(t, err, contract.ScopeDenied); !strings.Contains(r.Error(), "rows may not be counted") || f.src.count() != reads {
				t.Errorf("%v, %d reads", r, f.src.count()-reads)
			}
			req := f.input(bare).Request(f.buyer.id())
			if steps := f.opts.Ceiling.Explain(f.opts.Datasets, &req, f.contract); !anyDenied(steps) {
				t.Errorf("explained otherwise: %+v", steps)
			}
		})
	}
}
