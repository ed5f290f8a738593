// SPDX-License-Identifier: Apache-2.0

package query

import (
	"testing"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// TestNoiseOverChangedRows: the difference of two noisy answers, between which rows came, is not the exact number of them.
func TestNoiseOverChangedRows(t *testing.T) {
	p := &Plan{
		columns: []output{{name: "count", typ: "integer", op: contract.OpCount, col: dataset.Type{Kind: dataset.Integer}, n: 1}},
		noise:   &Noise{Terms: &contract.Noise{EpsilonPerQuery: "0.001", EpsilonTotal: "1"}, Seed: [32]byte{1}},
	}
	ask := func(n int64) int64 {
		a, err := p.Answer(source.Rows{{n, n, n}})
		if err != nil {
			t.Fatal(err)
		}
		return a.Rows[0][0].(int64)
	}
	before := ask(100)
	if again := ask(100); again != before {
		t.Errorf("the same rows: %d and %d", before, again)
	}
	exact := 0
	for n := range int64(20) {
		if ask(101+n)-before == 1+n {
			exact++
		}
	}
	if exact > 2 {
		t.Errorf("%d of 20 differences are exact", exact)
	}
}
