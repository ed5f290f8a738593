// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	_ "modernc.org/sqlite" // to alter the store behind the program's back

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/datatools"
)

// start serves w's folder until the test ends or stop is called, and returns when it is healthy.
func (w *world) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	type result struct {
		code   int
		stderr string
	}
	done := make(chan result, 1)
	go func() {
		code, _, stderr := command(ctx, "serve", "--dir", w.dir)
		done <- result{code, stderr}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if r := <-done; r.code != 0 {
			t.Errorf("serve ended with %d: %s", r.code, r.stderr)
		}
	})
	t.Cleanup(stop)
	client := w.client(t, company{})
	for range 200 {
		res, err := client.Get("https://data.vendorcorp.test/healthz")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return stop
			}
		}
		select {
		case r := <-done:
			done <- r
			t.Fatalf("serve ended with %d: %s", r.code, r.stderr)
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("not healthy in time")
	return stop
}

func (w *world) session(t *testing.T, c company) *mcp.ClientSession {
	t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: mcpURL, HTTPClient: w.client(t, c), MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func ask(t *testing.T, s *mcp.ClientSession, in datatools.QueryInput) (*mcp.CallToolResult, string) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: datatools.QueryRecords, Arguments: in})
	if err != nil {
		t.Fatal(err)
	}
	text, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("content %+v", res.Content)
	}
	return res, text.Text
}

func (w *world) question() datatools.QueryInput {
	return datatools.QueryInput{
		ContractID: w.contract.ID, Purpose: purpose, Dataset: "orders", GroupBy: []string{"region"},
		Aggregates: []datatools.AggregateInput{{Op: "avg", Column: "order_value"}, {Op: "median", Column: "order_value"}, {Op: "count"}},
		Filters:    []contract.Condition{{Column: "order_date", Op: "between", Values: []contract.Value{contract.TextValue("2025-07-01"), contract.TextValue("2025-09-30")}}},
		OrderBy:    []datatools.OrderInput{{By: "region"}},
	}
}

// TestServe is the data plane as a company runs it: real TLS, real signatures, DuckDB, and no vendor node anywhere.
func TestServe(t *testing.T) {
	w := newWorld(t)
	w.start(t)
	session := w.session(t, w.buyer)

	t.Run("the answer is right and its receipt holds", func(t *testing.T) {
		res, text := ask(t, session, w.question())
		if res.IsError {
			t.Fatal(text)
		}
		result, receipt := w.parse(t, res)
		want, used := thirdQuarter(t, w.csv)
		if result.UsedRows != used || result.TotalRows != 624 || len(result.Rows) != len(want) {
			t.Errorf("%d of %d rows, %d groups; want %d of 624, %d groups", result.UsedRows, result.TotalRows, len(result.Rows), used, len(want))
		}
		for _, row := range result.Rows {
			if got := fmt.Sprint(row[1:]...); got != want[fmt.Sprint(row[0])] {
				t.Errorf("%v: %s, want %s", row[0], got, want[fmt.Sprint(row[0])])
			}
		}
		if err := receipt.VerifyFor(w.contract, w.planeDocument(t)); err != nil {
			t.Error(err)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for code, change := range map[contract.Code]func(*datatools.QueryInput){
			contract.ScopeDenied: func(in *datatools.QueryInput) {
				in.Aggregates = []datatools.AggregateInput{{Op: "count", Column: "customer_email"}}
			},
			contract.UnknownColumn:   func(in *datatools.QueryInput) { in.GroupBy = []string{"Region"} },
			contract.PurposeMismatch: func(in *datatools.QueryInput) { in.Purpose = "something else" },
			contract.GroupTooSmall:   func(in *datatools.QueryInput) { in.GroupBy, in.OrderBy = []string{"order_id"}, nil },
			contract.InvalidQuery:    func(in *datatools.QueryInput) { in.Limit = -1 },
		} {
			in := w.question()
			change(&in)
			if res, text := ask(t, session, in); !res.IsError || !strings.HasPrefix(text, string(code)+": ") {
				t.Errorf("%s: %s", code, text)
			}
		}
		if res, text := ask(t, w.session(t, w.other), w.question()); !res.IsError || !strings.HasPrefix(text, "NO_CONTRACT: ") || strings.Contains(text, "region") {
			t.Errorf("stranger: %s", text)
		}
	})
	t.Run("unsigned", func(t *testing.T) {
		res, err := w.client(t, company{}).Post(mcpURL, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", res.StatusCode)
		}
	})
	t.Run("the port is taken", func(t *testing.T) {
		code, _, stderr := command(t.Context(), "serve", "--dir", w.dir)
		if code != exitUsage || !strings.Contains(stderr, "taken by another program") {
			t.Errorf("%d %s", code, stderr)
		}
	})
	t.Run("a contract altered in the store", func(t *testing.T) {
		db, err := sql.Open("sqlite", w.storePath)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), `PRAGMA busy_timeout = 5000`); err != nil {
			t.Fatal(err)
		}
		raw, err := w.contract.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		wider := bytes.Replace(raw, []byte(`"order_id"`), []byte(`"customer_email"`), 1)
		done, err := db.ExecContext(t.Context(), `UPDATE contracts SET bytes = ? WHERE id = ?`, wider, w.contract.ID)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := done.RowsAffected(); err != nil || n != 1 {
			t.Fatalf("%d records altered, %v", n, err)
		}
		if res, text := ask(t, session, w.question()); !res.IsError || !strings.HasPrefix(text, "NO_CONTRACT: ") {
			t.Errorf("answered: %s", text)
		}
	})
}

// planeDocument is the data plane's document as it publishes it, verified.
func (w *world) planeDocument(t *testing.T) *did.Document {
	t.Helper()
	res, err := w.client(t, company{}).Get("https://data.vendorcorp.test/.well-known/did.json")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := doc.Verify(time.Now()); err != nil || doc.ID() != w.plane {
		t.Fatalf("%v, %v", doc.ID(), err)
	}
	return doc
}

// thirdQuarter computes the answer from the file, exactly and without the data plane: region to "average median count".
func thirdQuarter(t *testing.T, data []byte) (map[string]string, int64) {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	values, used := map[string][]*big.Rat{}, int64(0)
	for _, r := range rows[1:] {
		if r[2] < "2025-07-01" || r[2] > "2025-09-30" {
			continue
		}
		v, ok := new(big.Rat).SetString(r[3])
		if !ok {
			t.Fatal("no number")
		}
		at := 0
		for at < len(values[r[0]]) && values[r[0]][at].Cmp(v) < 0 {
			at++
		}
		values[r[0]] = append(values[r[0]][:at], append([]*big.Rat{v}, values[r[0]][at:]...)...)
		used++
	}
	want := map[string]string{}
	for region, v := range values {
		sum, n := new(big.Rat), len(v)
		for _, x := range v {
			sum.Add(sum, x)
		}
		median := new(big.Rat).Quo(new(big.Rat).Add(v[(n-1)/2], v[n/2]), big.NewRat(2, 1))
		want[region] = fmt.Sprint(new(big.Rat).Quo(sum, big.NewRat(int64(n), 1)).FloatString(6), median.FloatString(3), float64(n))
	}
	return want, used
}

func TestImportCommand(t *testing.T) {
	testdata := filepath.Join("..", "..", "node", "dataplane", "csvimport", "testdata")
	code, stdout, _ := command(t.Context(), "import", "--json", filepath.Join(testdata, "plain.csv"))
	var rep struct {
		OK         bool
		Rows       int
		Suggestion string
		Columns    []struct{ Name, Type string }
	}
	if err := json.Unmarshal([]byte(stdout), &rep); err != nil || code != 0 || !rep.OK || rep.Rows != 60 || len(rep.Columns) != 3 || !strings.Contains(rep.Suggestion, "decimal(6,2)") {
		t.Errorf("%d %s %v", code, stdout, err)
	}
	code, stdout, stderr := command(t.Context(), "import", filepath.Join(testdata, "ragged.csv"))
	if code != exitImport || !strings.Contains(stdout, "error ragged_row, line 3") || !strings.Contains(stderr, "line 3") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	if code, _, _ = command(t.Context(), "import", filepath.Join(testdata, "ragged.csv"), "--ragged-rows", "skip"); code != 0 {
		t.Errorf("settled, and still %d", code)
	}
	if code, _, _ = command(t.Context(), "import"); code != exitUsage {
		t.Errorf("nothing to import: %d", code)
	}
	if code, _, _ = command(t.Context(), "import", "no-such.csv"); code != exitFailure {
		t.Errorf("missing file: %d", code)
	}
	w := newWorld(t)
	if code, stdout, stderr = command(t.Context(), "import", "--dir", w.dir, "--dataset", "orders"); code != 0 || !strings.Contains(stdout, "624 rows") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	// What a column of SQLite holds is checked, not what it was declared as: as at the start.
	db, err := sql.Open("sqlite", filepath.Join(w.dir, "tills.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE tills (price DECIMAL(10,2)); INSERT INTO tills VALUES (10.25)"); err != nil {
		t.Fatal(err)
	}
	w.edit(t, "datasets.yaml", "orders:\n", "tills:\n  path: tills.db\n  source: {kind: sqlite, table: tills}\n  columns:\n    price: {type: \"decimal(10,2)\", class: business}\norders:\n")
	if code, _, stderr = command(t.Context(), "import", "--dir", w.dir, "--dataset", "tills"); code != exitImport || !strings.Contains(stderr, "printf") {
		t.Errorf("%d %s", code, stderr)
	}
	if code, stdout, _ = command(t.Context(), "version", "--json"); code != 0 || !strings.Contains(stdout, `"version"`) {
		t.Errorf("%d %s", code, stdout)
	}
}

// What is wrong in the folder is said before anything is served.
func TestServeRefusesToStart(t *testing.T) {
	edit := func(from, to string) func(t *testing.T, w *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			path := filepath.Join(w.dir, "dataplane.yaml")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(data, []byte(from)) {
				t.Fatalf("no %q in %s", from, data)
			}
			if err := os.WriteFile(path, bytes.Replace(data, []byte(from), []byte(to), 1), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(name, data string) func(t *testing.T, w *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(w.dir, name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*testing.T, *world)
		code   int
		says   string
	}{
		"unknown key":        {edit("listen:", "lissten: x\nlisten:"), exitUsage, "lissten"},
		"unknown key deep":   {edit("min_group_size:", "min_groop_size: 1\n    min_group_size:"), exitUsage, "min_groop_size"},
		"another host's key": {edit("data.vendorcorp.test/mcp", "other.vendorcorp.test/mcp"), exitUsage, "want a receipt key"},
		"not https":          {edit("https://", "http://"), exitUsage, "url"},
		"missing vendor":     {write("vendor-did.json", "{}"), exitUsage, "vendors"},
		"altered vendor": {func(t *testing.T, w *world) {
			write("vendor-did.json", strings.Replace(string(w.vendor.doc.Raw()), "Multikey", "MultikeY", 1))(t, w)
		}, exitUsage, "vendors"},
		"misspelt ceiling": {edit("deny_classes:", "deny_columns: {orders: [custommer]}\n    deny_classes:"), exitUsage, "custommer"},
		"ragged file":      {write("orders.csv", "region,order_id\nx\n"), exitFailure, "code=ragged_row line=2"},
		"value of another type": {func(t *testing.T, w *world) {
			write("orders.csv", strings.Replace(string(w.csv), "100001", "A-s3cr3t", 1))(t, w)
		}, exitFailure, "does not fit the declared type integer"},
		"no store":               {edit("store: treaty.db", "store: nothing.db"), exitFailure, "treaty init"},
		"key open to others":     {func(t *testing.T, w *world) { chmod(t, filepath.Join(w.dir, "identity.txt")) }, exitFailure, "chmod 600"},
		"dataset file gone":      {edit("datasets: datasets.yaml", "datasets: gone.yaml"), exitUsage, "gone.yaml"},
		"certificate not there":  {edit("cert: tls.pem", "cert: gone.pem"), exitUsage, "tls"},
		"listen without a port":  {edit("listen: 127.0.0.1:", "listen: 127.0.0.1#"), exitUsage, "listen"},
		"authority is no PEM":    {write("ca.pem", "hello"), exitUsage, "ca"},
		"store of another maker": {write("treaty.db", "not a database"), exitFailure, "store"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(t, w)
			code, _, stderr := command(t.Context(), "serve", "--dir", w.dir)
			if code != tt.code || !strings.Contains(stderr, tt.says) || strings.Contains(stderr, "s3cr3t") {
				t.Errorf("%d %s", code, stderr)
			}
			if c, err := net.Dial("tcp", w.addr); err == nil {
				c.Close()
				t.Error("something listens")
			}
		})
	}
	code, _, stderr := command(t.Context(), "init", "--dir", t.TempDir(), "--url", "https://x.test/other", "--listen", "x", "--cert", "x", "--key", "x", "--store", "x", "--datasets", "x", "--vendor-document", "x")
	if code != exitUsage {
		t.Errorf("init: %d %s", code, stderr)
	}
}

func chmod(t *testing.T, path string) {
	t.Helper()
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
}
