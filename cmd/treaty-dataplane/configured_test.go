// SPDX-License-Identifier: Apache-2.0

package main

import (
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane"
	"github.com/treaty-node/treaty/node/dataset/sample"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

// archive has the orders in a SQLite file as well, as a dataset of that name. Each is there as often as the table times says, which can
// be changed while the data plane runs: a query can be made to take as long as a test likes.
func (w *world) archive(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.dir, "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	rows, err := csv.NewReader(strings.NewReader(string(w.csv))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	exec := func(statement string, args ...any) {
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("CREATE TABLE kept (region TEXT, order_id INTEGER, order_date TEXT, order_value TEXT, customer_name TEXT, customer_email TEXT, channel TEXT)")
	exec("CREATE TABLE times (n INTEGER)")
	exec("INSERT INTO times VALUES (1)")
	exec("CREATE VIEW orders AS WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < (SELECT n FROM times)) SELECT kept.* FROM kept, r")
	exec("BEGIN")
	for _, r := range rows[1:] {
		exec("INSERT INTO kept VALUES (?, ?, ?, ?, ?, ?, ?)", r[0], r[1], r[2], r[3], r[4], r[5], r[6])
	}
	exec("COMMIT")
	second := strings.NewReplacer("orders:\n", "archive:\n", "  path: orders.csv\n", "  path: orders.db\n  source: {kind: sqlite, table: orders}\n").Replace(sample.Config)
	w.edit(t, "datasets.yaml", "orders:\n", second+"orders:\n")
	return db
}

// edit changes a file of the data plane's folder.
func (w *world) edit(t *testing.T, name, from, to string) {
	t.Helper()
	path := filepath.Join(w.dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), from) {
		t.Fatalf("no %q in %s", from, data)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// store is the vendor's node's hold on the store, which it shares with the data plane.
func (w *world) store(t *testing.T) *sqlite.DB {
	t.Helper()
	db, err := sqlite.OpenExisting(t.Context(), w.storePath, sqlite.Options{Process: "node"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestConfigured: what dataplane.yaml says reaches the calls: files and a database side by side, Cedar, rows, noise, an operator's
// word, revocations that the store has lost since.
func TestConfigured(t *testing.T) {
	w := newWorld(t)
	orders := w.archive(t)
	w.edit(t, "dataplane.yaml", "ceiling:\n", "noise_secret: noise\ncedar: rules.cedar\nceiling:\n    allow_rows: true\n")
	rules := "@id(\"default\") permit (principal, action, resource);\n" +
		`@id("no-sums") forbid (principal in Domain::"buyercorp.test", action == Action::"sum", resource == Column::"orders.order_value");`
	if err := os.WriteFile(filepath.Join(w.dir, "rules.cedar"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	db := w.store(t)
	archived := w.agree(t, db, "archive", func(o *contract.Offer) { o.Dataset = "archive" })
	rows := w.agree(t, db, "rows", func(o *contract.Offer) {
		o.Dataset, o.Columns = "archive", []string{"order_id", "order_value"}
		o.Version, o.Rows = contract.Version3, contract.RowGrant{RowBudget: 10}
		o.ColumnGrants = []contract.ColumnGrant{{Column: "order_id", Uses: []string{contract.UseRead}, Operations: []string{}}, {Column: "order_value", Uses: []string{contract.UseRead}, Operations: []string{}}}
		o.RowFilter = []contract.Condition{{Column: "region", Op: contract.OpEqual, Value: contract.TextValue("West")}}
	})
	noisy := w.agree(t, db, "noise", func(o *contract.Offer) {
		o.Version, o.Operations = contract.Version3, []string{"count"}
		o.Noise = &contract.Noise{EpsilonPerQuery: "0.5", EpsilonTotal: "2", Bounds: []contract.Bound{}}
	})
	stop := w.start(t)
	session := w.session(t, w.buyer)
	refused := func(code contract.Code, says string) {
		t.Helper()
		in := w.question()
		if code == contract.ScopeDenied {
			in.Aggregates = []datatools.AggregateInput{{Op: "sum", Column: "order_value"}}
		}
		if res, text := ask(t, session, in); !res.IsError || !strings.HasPrefix(text, string(code)+": ") || !strings.Contains(text, says) {
			t.Errorf("want %s: %s", code, text)
		}
	}
	count := datatools.QueryInput{ContractID: noisy.ID, Purpose: purpose, Dataset: "orders", Aggregates: []datatools.AggregateInput{{Op: "count"}}}

	there := w.question()
	there.ContractID, there.Dataset = archived.ID, "archive"
	res, text := ask(t, session, there)
	if res.IsError {
		t.Fatal(text)
	}
	result, _ := w.parse(t, res)
	want, used := thirdQuarter(t, w.csv)
	if result.UsedRows != used || result.TotalRows != 624 || len(result.Rows) != len(want) {
		t.Errorf("of the database: %+v", result)
	}
	for _, row := range result.Rows {
		if got := fmt.Sprint(row[1:]...); got != want[fmt.Sprint(row[0])] {
			t.Errorf("%v: %s, want %s", row[0], got, want[fmt.Sprint(row[0])])
		}
	}
	refused(contract.ScopeDenied, "no-sums")
	w.selectRows(t, session, rows)

	first, text := ask(t, session, count)
	if first.IsError {
		t.Fatal(text)
	}
	result, _ = w.parse(t, first)
	if result.Noise == nil || result.Noise.Epsilon != "0.5" || result.TotalRows != 0 {
		t.Errorf("%+v", result)
	}

	w.cancelled(t, session, there, db, orders)

	// A revocation that was seen once stays, though the store and the process forget it.
	r, err := contract.Revoke(t.Context(), w.contract, w.vendor.id(), "over", time.Now(), w.vendor.signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := r.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		return tx.PutRevocation(store.Revocation{ContractID: w.contract.ID, By: w.vendor.id(), Bytes: raw, Created: time.Now()})
	}); err != nil {
		t.Fatal(err)
	}
	refused(contract.ContractRevoked, "revoked")
	stop()
	forged, err := sql.Open("sqlite", w.storePath)
	if err != nil {
		t.Fatal(err)
	}
	defer forged.Close()
	for _, s := range []string{"DROP TRIGGER revocations_once_d", "DELETE FROM revocations"} {
		if _, err := forged.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	w.start(t)
	session = w.session(t, w.buyer)
	refused(contract.ContractRevoked, "revoked")
	// And the noise has the same seed as before.
	again, text := ask(t, session, count)
	if again.IsError {
		t.Fatal(text)
	}
	if other, _ := w.parse(t, again); !reflect.DeepEqual(other, result) {
		t.Errorf("%+v before the restart, %+v after it", result, other)
	}
}

// parse verifies an answer's receipt.
func (w *world) parse(t *testing.T, res *mcp.CallToolResult) (*datatools.Result, *contract.Receipt) {
	t.Helper()
	structured, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	result, receipt, err := datatools.ParseOutput(structured)
	if err != nil {
		t.Fatal(err)
	}
	if err := receipt.Verify(w.planeDocument(t)); err != nil {
		t.Error(err)
	}
	return result, receipt
}

// selectRows reads what a contract grants of rows, and not around its row filter.
func (w *world) selectRows(t *testing.T, session *mcp.ClientSession, c *contract.Contract) {
	t.Helper()
	of := map[string]string{}
	all, err := csv.NewReader(strings.NewReader(string(w.csv))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r[0] == "West" {
			of[r[1]] = r[3]
		}
	}
	in := datatools.SelectInput{ContractID: c.ID, Purpose: purpose, Dataset: "archive", Columns: []string{"order_id", "order_value"}, OrderBy: []datatools.OrderInput{{By: "order_id"}}, Limit: 4}
	call := func() (*mcp.CallToolResult, string) {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: datatools.SelectRecords, Arguments: in})
		if err != nil {
			t.Fatal(err)
		}
		return res, res.Content[0].(*mcp.TextContent).Text
	}
	res, text := call()
	if res.IsError {
		t.Fatal(text)
	}
	result, receipt := w.parse(t, res)
	if len(result.Rows) != 4 || receipt.Rows != 4 || result.TotalRows != int64(len(of)) {
		t.Errorf("%+v, %+v, want 4 of %d", result, receipt, len(of))
	}
	for _, row := range result.Rows {
		if id := fmt.Sprintf("%.0f", row[0]); of[id] == "" || of[id] != row[1] {
			t.Errorf("order %s of %v, want %s", id, row[1], of[id])
		}
	}
	for code, change := range map[contract.Code]func(){
		contract.BudgetExhausted: func() { in.Limit = 7 }, // 6 are left
		contract.ScopeDenied:     func() { in.Columns, in.OrderBy = []string{"region"}, nil },
	} {
		kept := in
		change()
		if res, text := call(); !res.IsError || !strings.HasPrefix(text, string(code)+": ") {
			t.Errorf("want %s: %s", code, text)
		}
		in = kept
	}
}

// cancelled: a query that takes too long is in the store for the vendor's operator, whose word there ends it.
func (w *world) cancelled(t *testing.T, session *mcp.ClientSession, in datatools.QueryInput, db *sqlite.DB, orders *sql.DB) {
	t.Helper()
	if _, err := orders.ExecContext(t.Context(), "UPDATE times SET n = 1000000000"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: datatools.QueryRecords, Arguments: in})
		ended <- err
	}()
	var call store.CallUnderWay
	for call.ID == "" {
		select {
		case err := <-ended:
			t.Fatalf("it ended by itself: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		err := db.Update(t.Context(), func(tx store.Tx) error {
			c, err := store.GetCallsUnderWay(tx)
			if err != nil || len(c.Calls) == 0 {
				return err
			}
			call = c.Calls[0]
			return store.CancelCall(tx, call.ID)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !call.Running || call.Buyer != w.buyer.id() || call.ContractID != in.ContractID || call.Dataset != "archive" {
		t.Errorf("%+v", call)
	}
	var wire *jsonrpc.Error
	if err := <-ended; !errors.As(err, &wire) || wire.Code != dataplane.CodeLimit || !strings.Contains(wire.Message, "operator") {
		t.Errorf("err = %v", err)
	}
	if _, err := orders.ExecContext(t.Context(), "UPDATE times SET n = 1"); err != nil {
		t.Fatal(err)
	}
	if res, text := ask(t, session, in); res.IsError {
		t.Errorf("afterwards: %s", text)
	}
}
