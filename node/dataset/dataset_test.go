// SPDX-License-Identifier: Apache-2.0

package dataset_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/dataset/sample"
)

func TestParseConfig(t *testing.T) {
	c, err := dataset.ParseConfig([]byte(sample.Config))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Schema("orders")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Columns) != 7 || s.Columns[0].Name != "channel" || s.Dataset != "orders" {
		t.Fatalf("schema %+v", s)
	}
	// Another order of the same configuration publishes the same schema.
	other, err := dataset.ParseConfig([]byte("orders: {description: 'Orders of 2025, one row per order', path: x, columns: {channel: {type: text}, customer_name: {type: text}, customer_email: {type: text}, order_value: {type: 'decimal(10,2)'}, order_id: {type: integer}, order_date: {type: date}, region: {type: text}}}"))
	if err != nil {
		t.Fatal(err)
	}
	s2, err := other.Schema("orders")
	if err != nil {
		t.Fatal(err)
	}
	d1, err1 := s.Digest()
	d2, err2 := s2.Digest()
	if err1 != nil || err2 != nil || d1 != d2 {
		t.Fatalf("digests %v %v (%v, %v)", d1, d2, err1, err2)
	}
	if _, err := c.Schema("nope"); !errors.Is(err, dataset.ErrConfig) {
		t.Fatalf("unknown dataset: %v", err)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ yaml, says string }{
		"unknown key":         {"o: {path: x, colums: {}}", "colums"},
		"no columns":          {"o: {path: x}", "at least one column"},
		"no type":             {"o: {columns: {a: {class: public}}}", "datasets.o.columns.a.type"},
		"unknown type":        {"o: {columns: {a: {type: varchar}}}", "varchar"},
		"time is no type":     {"o: {columns: {a: {type: time}}}", "time"},
		"decimal too wide":    {"o: {columns: {a: {type: 'decimal(39,2)'}}}", "decimal(39,2)"},
		"case twins":          {"o: {columns: {a: {type: text}, A: {type: text}}}", "case"},
		"duplicate key":       {"o: {columns: {a: {type: text}, a: {type: text}}}", "already defined"},
		"class in capitals":   {"o: {columns: {a: {type: text, class: PII}}}", "class"},
		"subject not there":   {"o: {subject: b, columns: {a: {type: text}}}", "subject"},
		"bad id":              {"'o o': {columns: {a: {type: text}}}", "o o"},
		"unprintable column":  {"o: {columns: {\"a\\u200b\": {type: text}}}", "columns"},
		"delimiter":           {"o: {columns: {a: {type: text}}, csv: {delimiter: ab}}", "delimiter"},
		"quoted_empty":        {"o: {columns: {a: {type: text}}, csv: {quoted_empty: zero}}", "quoted_empty"},
		"ragged_rows":         {"o: {columns: {a: {type: text}}, csv: {ragged_rows: pad}}", "ragged_rows"},
		"thousands is point":  {"o: {columns: {a: {type: text}}, csv: {thousands_separator: .}}", "thousands"},
		"unknown source":      {"o: {source: {kind: oracle}, columns: {a: {type: text}}}", "oracle"},
		"unknown source key":  {"o: {source: {kind: csv, passwd: x}, columns: {a: {type: text}}}", "passwd"},
		"password in the url": {"o: {source: {kind: postgres, url: 'postgres://u:s3cr3t@h/d', table: t}, columns: {a: {type: text}}}", "change the password"},
		"password in a query": {"o: {source: {kind: postgres, url: 'postgres://u@h/d?password=s3cr3t', table: t}, columns: {a: {type: text}}}", "change the password"},
		"no user":             {"o: {source: {kind: postgres, url: 'postgres://h/d', table: t}, columns: {a: {type: text}}}", "user"},
		"no table":            {"o: {path: x.db, source: {kind: sqlite}, columns: {a: {type: text}}}", "table"},
		"path of a server":    {"o: {path: x, source: {kind: postgres, url: 'postgres://u@h/d', table: t}, columns: {a: {type: text}}}", "path"},
		"url of a file":       {"o: {path: x, source: {kind: parquet, url: 'https://h'}, columns: {a: {type: text}}}", "url"},
		"http elsewhere":      {"o: {source: {kind: trino, url: 'http://h', user: u, catalog: c, schema: s, table: t}, columns: {a: {type: text}}}", "https"},
		"http and a password": {"o: {source: {kind: trino, url: 'http://localhost', user: u, password_env: P, catalog: c, schema: s, table: t}, columns: {a: {type: text}}}", "https"},
		"no catalog":          {"o: {source: {kind: trino, url: 'https://h', user: u, table: t}, columns: {a: {type: text}}}", "catalog"},
		"two passwords":       {"o: {source: {kind: postgres, url: 'postgres://u@h/d', table: t, password_env: P, password_file: f}, columns: {a: {type: text}}}", "not both"},
		"no header names":     {"o: {columns: {a: {type: text}}, csv: {no_header: true}}", "header"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dataset.ParseConfig([]byte(tt.yaml))
			if err != nil && strings.Contains(err.Error(), "s3cr3t") {
				t.Fatalf("the error has the password: %v", err)
			}
			if !errors.Is(err, dataset.ErrConfig) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("err = %v, want one that says %q", err, tt.says)
			}
		})
	}
}

func TestDecimal(t *testing.T) {
	for in, want := range map[string]string{
		"1.50": "1.50", "-0.05": "-0.05", ".5": "0.5", "5.": "5", "0": "0", "1e3": "1000", "1.5e1": "15", "2E-3": "0.002", "-12e-1": "-1.2", "007.10": "7.10",
	} {
		d, err := dataset.ParseDecimal(in)
		if err != nil || d.String() != want {
			t.Errorf("%q: %v, %v, want %s", in, d, err, want)
		}
	}
	for _, in := range []string{"", ".", "-", "+1", "1.2.3", "1e", "e1", "1e1234", "0x1", "1_0", "NaN", "Inf", "１", strings.Repeat("1", 200)} {
		if d, err := dataset.ParseDecimal(in); err == nil {
			t.Errorf("%q accepted as %v", in, d)
		}
	}
}

// Quo rounds half away from zero, as big.Rat.FloatString does.
func TestDecimalQuo(t *testing.T) {
	for _, u := range []int64{0, 1, -1, 5, -5, 999, -12345, 100001} {
		for _, n := range []int64{1, 2, 3, 7, 8, 1000} {
			for scale := range 8 {
				d := dataset.Decimal{Unscaled: big.NewInt(u), Scale: 2}
				want := big.NewRat(u, 100*n).FloatString(scale)
				got := d.Quo(n, scale).String()
				if strings.Trim(want, "-0.") == "" { // FloatString writes -0.00
					want = strings.TrimPrefix(want, "-")
				}
				if got != want {
					t.Fatalf("%s / %d at %d: %s, want %s", d, n, scale, got, want)
				}
			}
		}
	}
}

// The demonstration's rows are part of its story: they must not change by accident.
func TestSample(t *testing.T) {
	var b bytes.Buffer
	if err := sample.Write(&b, sample.Seed); err != nil {
		t.Fatal(err)
	}
	const want = "sha-256:DUL9RoGXtuIVgshwo7ZzMha7z5mobWTSyAV65Asaft4"
	if got := canon.Sum(b.Bytes()).String(); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != sample.Orders+1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	q3, people := map[string]int{}, map[string]map[string]bool{}
	for _, r := range rows[1:] {
		if r[2] >= "2025-07-01" && r[2] < "2025-10-01" {
			q3[r[0]]++
			if people[r[0]] == nil {
				people[r[0]] = map[string]bool{}
			}
			people[r[0]][r[5]] = true
		}
	}
	for _, region := range []string{"North", "South", "East", "West"} {
		if q3[region] < 40 || len(people[region]) < 20 {
			t.Errorf("%s: %d orders of %d people in the third quarter", region, q3[region], len(people[region]))
		}
	}
}
