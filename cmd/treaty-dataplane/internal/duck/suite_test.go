// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/dataplane/source/sourcetest"
	"github.com/treaty-node/treaty/node/dataset"
)

// values writes the suite's rows as SQL for this engine.
func values() string {
	var rows []string
	for _, row := range sourcetest.Rows() {
		var cells []string
		for i, c := range sourcetest.Columns() {
			typ, _ := dataset.ParseType(c.Type)
			cell := "NULL"
			switch v := row[i].(type) {
			case bool:
				cell = "true"
				if !v {
					cell = "false"
				}
			case string:
				cell = literal(strings.TrimSuffix(v, "Z"))
				if typ.Kind == dataset.Text {
					cell = literal(v)
				}
			}
			cells = append(cells, "CAST("+cell+" AS "+sqlType(typ)+") AS "+quote(c.Name))
		}
		rows = append(rows, "SELECT "+strings.Join(cells, ", "))
	}
	return strings.Join(rows, " UNION ALL ")
}

func TestSuite(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.parquet", "SELECT * REPLACE (make_timestamptz(epoch_us(instant)) AS instant) FROM ("+values()+")")
	d := sourcetest.Dataset()
	d.Path, d.Source = "a.parquet", &dataset.Source{Kind: dataset.ParquetFiles}
	e := open(t, Limits{})
	const id = "orders"
	if _, err := e.Load(t.Context(), id, d, dir); err != nil {
		t.Fatal(err)
	}
	if err := e.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	sourcetest.Run(t, e, id)
}
