// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/store"
)

// What the data plane of the scripts adds to the demo's: a ceiling and Cedar policies of its own, a dataset whose queries take for
// ever once [endless] has grown its tables, and one with rules about what columns of a class are granted for.
const (
	planeCeiling = "cedar: policy.cedar\nceiling:\n    deny_columns: {orders: [channel]}\n"
	planeCedar   = `@id("default")
permit (principal, action, resource);

@id("no-sums-of-values")
forbid (principal, action == Action::"sum", resource == Column::"orders.order_value");
`
	planeDatasets = `slow:
  path: slow.db
  source: {kind: sqlite, table: slow}
  columns:
    region: {type: text, class: business}
    n: {type: integer, class: business}
graded:
  path: slow.db
  source: {kind: sqlite, table: t}
  columns:
    region: {type: text, class: business}
    n: {type: integer, class: business}
`
	planePolicy = "  slow: {purposes: any, operations: [sum, count], retention_days: 90, min_group_size: 1}\n" +
		"  graded: {purposes: any, operations: [sum, count], retention_days: 90, min_group_size: 1, classes: {business: {uses: [group, aggregate]}}}\n"
)

// TestScriptDataPlane runs the scripts of testdata/plane, all of them on the same two companies and data plane, whose folders are
// $BUYER, $VENDOR and $PLANE. They have the commands of [TestScript] and
//
//	calling DIR CONTRACT NAME      waits until the data plane says to the node on the folder that a call runs; its id becomes $NAME
//	idle DIR CONTRACT              waits until none does
//
// Every script makes contracts of its own.
func TestScriptDataPlane(t *testing.T) {
	w := newWorld(t)
	edit := func(change func(string) string, path ...string) {
		data, err := os.ReadFile(w.path(path...))
		if err == nil {
			err = os.WriteFile(w.path(path...), []byte(change(string(data))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	edit(func(s string) string { return s + planeDatasets }, vendor, "datasets.yaml")
	edit(func(s string) string { return s + planePolicy }, vendor, "policy.yaml")
	edit(func(s string) string { return s + planeDatasets }, plane, "datasets.yaml")
	edit(func(s string) string { return strings.Replace(s, "ceiling:\n", planeCeiling, 1) }, plane, "dataplane.yaml")
	if err := os.WriteFile(w.path(plane, "policy.cedar"), []byte(planeCedar), 0o600); err != nil {
		t.Fatal(err)
	}
	grow := endless(t, w.path(plane, "slow.db"))
	w.start(vendor, plane, buyer)
	grow()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "plane"), RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			for name, dir := range map[string]string{"BUYER": buyer, "VENDOR": vendor, "PLANE": plane} {
				env.Setenv(name, w.path(dir))
			}
			return nil
		},
		Cmds: commands(map[string]func(*testscript.TestScript, bool, []string){"calling": calling, "idle": idle}),
	})
}

// endless makes a database with a view that is read at once. After grow, nobody lives to see its end.
func endless(t *testing.T, path string) (grow func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	exec := func(statement string) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE t AS SELECT 'North' AS region, 1 AS n")
	exec("CREATE VIEW slow AS SELECT a.region, a.n FROM t a, t b, t c, t d")
	return func() {
		exec("WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < 3000) INSERT INTO t SELECT 'North', i FROM r")
	}
}

// call asks a node for the calls under way until there is one under a contract that runs, or until there is none.
func call(ts *testscript.TestScript, dir, contractID string, there bool) (id string) {
	for end := time.Now().Add(startTime); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var c store.CallsUnderWay
		ts.Check(httpapi.NewAdminClient(ts.MkAbs(dir)).Get(context.Background(), "/calls", &c))
		i := slices.IndexFunc(c.Calls, func(u store.CallUnderWay) bool { return u.ContractID == contractID && (u.Running || !there) })
		switch {
		case i < 0 && !there:
			return ""
		case i >= 0 && there:
			return c.Calls[i].ID
		}
	}
	ts.Fatalf("%s: the calls under way are not as they should be", dir)
	return ""
}

func calling(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3)
	ts.Setenv(args[2], call(ts, args[0], args[1], true))
}

func idle(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2)
	call(ts, args[0], args[1], false)
}
