// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/postgres"
	"github.com/treaty-node/treaty/node/dataplane/source/sourcetest"
	"github.com/treaty-node/treaty/node/dataset"
)

const secret = "s3cr3t-of-reader"

// fill makes the suite's table, a role that may read it, and what must be refused.
func fill(t *testing.T, c *pgx.Conn) {
	t.Helper()
	q := postgres.Dialect{}.Ident
	native := map[string]string{"text": "text", "integer": "bigint", "decimal(12,2)": "numeric(12,2)", "double": "double precision", "boolean": "boolean", "date": "date", "timestamp": "timestamp", "timestamptz": "timestamptz"}
	var columns []string
	for _, c := range sourcetest.Columns() {
		typ := native[c.Type]
		switch c.Name { // other types that mean the same
		case "select":
			typ = "character varying(20)"
		case "used":
			typ = "smallint"
		case "c0":
			typ = "integer"
		}
		columns = append(columns, q(c.Name)+" "+typ)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec("SET TimeZone = 'UTC'")
	exec("CREATE SCHEMA shop")
	exec("CREATE TABLE shop." + q(sourcetest.Table) + " (" + strings.Join(columns, ", ") + ")")
	for _, row := range sourcetest.Rows() {
		var holes []string
		args := make([]any, len(row))
		for i, v := range row {
			holes = append(holes, fmt.Sprintf("$%d::text::%s", i+1, native[sourcetest.Columns()[i].Type]))
			if args[i] = v; v != nil {
				args[i] = fmt.Sprint(v)
			}
		}
		exec("INSERT INTO shop."+q(sourcetest.Table)+" VALUES ("+strings.Join(holes, ", ")+")", args...)
	}
	exec("CREATE TABLE shop.odd (big numeric, far date, many numeric(12,2), list integer[], clock time, of_text citext_like, code char(3), id uuid, ok integer, secret text)")
	exec("INSERT INTO shop.odd VALUES (1, 'infinity', 'NaN', '{1}', '10:00', 'x', 'a', '00000000-0000-0000-0000-000000000001', 1, 'value-of-a-row')")
	exec("CREATE TABLE shop.empty (n bigint, who text)")
	exec("CREATE TABLE shop.mine (n bigint)")
	exec("CREATE FUNCTION shop.count() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'") // must not take the place of the aggregate
	exec("CREATE ROLE reader LOGIN PASSWORD '" + secret + "'")
	exec("CREATE ROLE writer LOGIN PASSWORD '" + secret + "'")
	exec("GRANT USAGE ON SCHEMA shop TO reader, writer")
	exec("GRANT SELECT ON ALL TABLES IN SCHEMA shop TO reader, writer")
	exec("GRANT INSERT ON shop." + q(sourcetest.Table) + " TO writer")
	exec("REVOKE SELECT ON shop.mine FROM reader")
}

func TestPostgres(t *testing.T) {
	srv := start(t)
	admin := srv.admin(t)
	if _, err := admin.Exec(t.Context(), "CREATE DOMAIN public.never AS text; CREATE SCHEMA IF NOT EXISTS shop0; CREATE TYPE public.citext_like AS ENUM ('x', 'y'); SET search_path = public"); err != nil {
		t.Fatal(err)
	}
	fill(t, admin)
	var log bytes.Buffer
	s := postgres.New(source.Limits{Time: 5 * time.Second}, slog.New(slog.NewTextHandler(&log, nil)))
	defer s.Close()
	url := func(role string) string { return "postgres://" + role + "@127.0.0.1:" + srv.port + "/postgres" }
	config := func(role, table string, columns map[string]string) dataset.Dataset {
		d := dataset.Dataset{Source: &dataset.Source{Kind: dataset.Postgres, URL: url(role), Schema: "shop", Table: table}, Columns: map[string]dataset.Column{}}
		for name, typ := range columns {
			d.Columns[name] = dataset.Column{Type: typ}
		}
		return d
	}

	suite := sourcetest.Dataset()
	suite.Source = config("reader", sourcetest.Table, nil).Source
	rep, err := s.Load(t.Context(), "orders", suite, "", secret)
	if err != nil || rep.Rows != 7 {
		t.Fatal(rep, err)
	}
	t.Run("suite", func(t *testing.T) { sourcetest.Run(t, s, "orders") })

	t.Run("refused", func(t *testing.T) {
		for name, tt := range map[string]struct {
			d    dataset.Dataset
			pw   string
			want error
			says string
		}{
			"superuser":             {config("admin", "empty", map[string]string{"n": "integer"}), "", postgres.ErrRole, "superuser"},
			"a role that may write": {config("writer", sourcetest.Table, map[string]string{"n": "integer"}), secret, postgres.ErrRole, "may write"},
			"no table":              {config("reader", "nothing", map[string]string{"n": "integer"}), secret, source.ErrSchema, "no table"},
			"no grant":              {config("reader", "mine", map[string]string{"n": "integer"}), secret, source.ErrSchema, "GRANT SELECT"},
			"no column":             {config("reader", "empty", map[string]string{"N": "integer"}), secret, source.ErrSchema, "differs by case"},
			"another type":          {config("reader", "empty", map[string]string{"n": "text"}), secret, source.ErrSchema, "bigint"},
			"unbounded":             {config("reader", "odd", map[string]string{"big": "decimal(38,0)"}), secret, source.ErrSchema, "decimal(p,s)"},
			"a list":                {config("reader", "odd", map[string]string{"list": "text"}), secret, source.ErrSchema, "integer[]"},
			"a time":                {config("reader", "odd", map[string]string{"clock": "text"}), secret, source.ErrSchema, "as text"},
		} {
			if _, err := postgres.New(source.Limits{}, nil).Load(t.Context(), "x", tt.d, "", tt.pw); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		d := config("reader", "empty", map[string]string{"n": "integer"})
		if _, err := postgres.New(source.Limits{}, nil).Load(t.Context(), "x", d, "", "not-the-password"); err == nil || strings.Contains(err.Error(), "not-the-password") {
			t.Errorf("wrong password: %v", err)
		}
		for _, u := range []string{"postgres://reader@db.example/x?sslmode=require", "postgres://reader@db.example,127.0.0.1/x?sslmode=disable"} {
			d.Source = &dataset.Source{Kind: dataset.Postgres, URL: u, Table: "t"}
			if _, err := postgres.New(source.Limits{}, nil).Load(t.Context(), "x", d, "", ""); !errors.Is(err, postgres.ErrTLS) {
				t.Errorf("%s: %v", u, err)
			}
		}
	})

	count := contract.Request{Aggregates: []contract.Aggregate{{Op: "count"}}}
	t.Run("empty", func(t *testing.T) {
		d := config("reader", "empty", map[string]string{"n": "integer", "who": "text"})
		if _, err := s.Load(t.Context(), "empty", d, "", secret); err != nil {
			t.Fatal(err)
		}
		if _, err := sourcetest.Ask(t.Context(), s, "empty", d, query.Spec{Request: count}); !errors.Is(err, query.ErrGroups) {
			t.Fatal(err)
		}
	})
	t.Run("not finite", func(t *testing.T) {
		d := config("reader", "odd", map[string]string{"far": "date", "many": "decimal(12,2)", "of_text": "text", "code": "text", "id": "text", "ok": "integer", "secret": "text"})
		if _, err := s.Load(t.Context(), "odd", d, "", secret); err != nil {
			t.Fatal(err)
		}
		for _, a := range []contract.Aggregate{{Op: "max", Column: "far"}, {Op: "sum", Column: "many"}} {
			if _, err := sourcetest.Ask(t.Context(), s, "odd", d, query.Spec{Request: contract.Request{Aggregates: []contract.Aggregate{a}}}); !errors.Is(err, source.ErrRange) {
				t.Errorf("%v: %v", a, err)
			}
		}
		a, err := sourcetest.Ask(t.Context(), s, "odd", d, query.Spec{Request: contract.Request{GroupBy: []string{"of_text", "code", "id"}, Aggregates: count.Aggregates}})
		if err != nil || a.Rows[0][0] != "x" || a.Rows[0][1] != "a" || a.Rows[0][2] != "00000000-0000-0000-0000-000000000001" {
			t.Errorf("%v, %v", a, err)
		}
		// An error that quotes the row.
		const quotes = "SELECT CAST(secret AS bigint) FROM shop.odd"
		if _, raw := admin.Exec(t.Context(), quotes); raw == nil || !strings.Contains(raw.Error(), "value-of-a-row") {
			t.Fatalf("PostgreSQL no longer quotes rows, so this proves nothing: %v", raw)
		}
		_, err = s.Query(t.Context(), source.Statement{Dataset: "odd", SQL: quotes, MaxRows: 1})
		if !errors.Is(err, source.ErrEngine) || strings.Contains(err.Error(), "value-of-a-row") {
			t.Errorf("%v", err)
		}
	})
	t.Run("time and callers that go", func(t *testing.T) {
		// The server itself knows the time limit, and that nothing is to be written.
		const settings = "SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('transaction_read_only'), current_setting('search_path')) AS c0"
		set, err := s.Query(t.Context(), source.Statement{Dataset: "empty", SQL: settings, Types: []dataset.Type{{Kind: dataset.Text}}, MaxRows: 1})
		if err != nil || set[0][0] != "5s 5s on pg_catalog" {
			t.Errorf("%v, %v", set, err)
		}
		slow := source.Statement{Dataset: "empty", SQL: "SELECT count(*) FROM generate_series(1, 1000000000)", MaxRows: 1}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		go func() {
			for { // until the server works on it
				var n int
				if err := admin.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND state = 'active' AND usename = 'reader'").Scan(&n); err != nil || n > 0 {
					break
				}
			}
			cancel(gone)
		}()
		if _, err := s.Query(ctx, slow); !errors.Is(err, gone) {
			t.Errorf("caller gone: %v", err)
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			var n int
			if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND state = 'active' AND usename = 'reader'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the server still works for a caller that is gone")
			}
		}
		short := postgres.New(source.Limits{Time: 200 * time.Millisecond}, nil)
		defer short.Close()
		if _, err := short.Load(t.Context(), "empty", config("reader", "empty", map[string]string{"n": "integer"}), "", secret); err != nil {
			t.Fatal(err)
		}
		if _, err := short.Query(t.Context(), slow); !errors.Is(err, source.ErrTime) {
			t.Errorf("out of time: %v", err)
		}
	})
	t.Run("the server dies in mid-query", func(t *testing.T) {
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				var n int
				if err := admin.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND state = 'active' AND usename = 'reader'").Scan(&n); err != nil || n > 0 {
					break
				}
			}
			srv.stop()
		}()
		if _, err := s.Query(t.Context(), source.Statement{Dataset: "empty", SQL: "SELECT pg_sleep(60)", MaxRows: 1}); !errors.Is(err, source.ErrEngine) {
			t.Errorf("%v", err)
		}
		if _, err := s.Query(t.Context(), source.Statement{Dataset: "empty", SQL: "SELECT 1", MaxRows: 1}); !errors.Is(err, source.ErrEngine) {
			t.Errorf("afterwards: %v", err)
		}
		<-stopped
	})
	for _, word := range []string{secret, "value-of-a-row", "SELECT", "127.0.0.1"} {
		if strings.Contains(log.String(), word) {
			t.Errorf("the log has %q: %s", word, log.String())
		}
	}
}
