// SPDX-License-Identifier: Apache-2.0

package trino

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/sourcetest"
	"github.com/treaty-node/treaty/node/dataset"
)

const secret = "s3cr3t-of-trino"

// coordinator is a fake that speaks the client protocol: a statement is queued, runs, and gives its rows in pages, each at an
// address of its own that is used up when it has been read.
type coordinator struct {
	t   *testing.T
	srv *httptest.Server
	ca  string

	mu         sync.Mutex
	answer     func(sql string) ([]page, *failure) // pages of a statement
	queries    map[string]*running
	statements []string
	cancelled  int
	busy       int // answers of 503 to come
	hang       bool
	next       string // what nextUri is instead
}

type running struct {
	pages []page
	err   *failure
	at    int
}

func newCoordinator(t *testing.T) *coordinator {
	c := &coordinator{t: t, queries: map[string]*running{}}
	c.srv = httptest.NewTLSServer(c)
	t.Cleanup(c.srv.Close)
	c.ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(c.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *coordinator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	for name, want := range map[string]string{"X-Trino-User": "treaty", "X-Trino-Catalog": "lake", "X-Trino-Schema": "sales", "X-Trino-Time-Zone": "UTC"} {
		if got := r.Header.Get(name); got != want {
			c.t.Errorf("%s %s: %s is %q", r.Method, r.URL.Path, name, got)
		}
	}
	if user != "treaty" || password != secret || !strings.HasPrefix(r.Header.Get("X-Trino-Session"), "query_max_run_time=") {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	c.mu.Lock()
	hang := c.hang && r.Method == http.MethodGet
	defer c.mu.Unlock()
	if hang { // the cluster is at work until the client goes
		c.mu.Unlock()
		<-r.Context().Done()
		c.mu.Lock()
		return
	}
	if c.busy > 0 {
		c.busy--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/statement":
		body, _ := io.ReadAll(r.Body)
		id := fmt.Sprintf("q%d", len(c.queries))
		pages, err := c.answer(string(body))
		c.statements = append(c.statements, string(body))
		c.queries[id] = &running{pages: pages, err: err}
		c.write(w, page{ID: id}, id, "queued", 0)
	case len(parts) == 5 && c.queries[parts[3]] != nil:
		q, id := c.queries[parts[3]], parts[3]
		if r.Method == http.MethodDelete {
			c.cancelled++
			w.WriteHeader(http.StatusNoContent)
			return
		}
		switch {
		case parts[2] == "queued":
			c.write(w, page{ID: id}, id, "executing", 0) // no columns yet, no rows
		case q.at < len(q.pages):
			p := q.pages[q.at]
			q.at++
			c.write(w, p, id, "executing", q.at)
		case q.err != nil:
			p := page{ID: id, Error: q.err}
			p.Stats.State = "FAILED"
			_ = json.NewEncoder(w).Encode(struct {
				page
				Error map[string]any `json:"error"`
			}{p, map[string]any{"message": "line 1: cannot cast 'value-of-a-row'", "errorName": q.err.Name, "errorType": q.err.Type, "errorCode": 1}})
		default:
			p := page{ID: id}
			p.Stats.State = "FINISHED"
			_ = json.NewEncoder(w).Encode(p)
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (c *coordinator) write(w http.ResponseWriter, p page, id, where string, token int) {
	p.NextURI = fmt.Sprintf("%s/v1/statement/%s/%s/%d", c.srv.URL, where, id, token)
	if c.next != "" {
		p.NextURI = c.next
	}
	p.Stats.State = "RUNNING"
	_ = json.NewEncoder(w).Encode(p)
}

func table2(types []string, rows ...[]any) page {
	var p page
	for i, typ := range types {
		p.Columns = append(p.Columns, struct {
			Name string `json:"name"`
			Type string `json:"type"`
		}{fmt.Sprintf("c%d", i), typ})
	}
	p.Data = rows
	return p
}

var lake = map[string]string{
	"region": "varchar(20)", "n": "bigint", "small": "integer", "m": "decimal(12, 2)", "x": "double", "r": "real", "flag": "boolean", "day": "date", "at": "timestamp(3)",
	"instant": "timestamp(6) with time zone", "nano": "timestamp(9)", "list": "array(bigint)", "code": "char(3)",
}

// start makes a coordinator with a table, and a source that has loaded some of its columns.
func start(t *testing.T, l source.Limits, log *slog.Logger) (*coordinator, *Source, dataset.Dataset) {
	t.Helper()
	c := newCoordinator(t)
	c.answer = func(sql string) ([]page, *failure) {
		if strings.Contains(sql, "information_schema") {
			p := table2([]string{"varchar", "varchar"})
			for name, typ := range lake {
				p.Data = append(p.Data, []any{name, typ})
			}
			return []page{p}, nil
		}
		return []page{table2([]string{"bigint"}, []any{json.Number("624")})}, nil
	}
	d := dataset.Dataset{
		Source:  &dataset.Source{Kind: dataset.Trino, URL: c.srv.URL, User: "treaty", Catalog: "lake", Schema: "sales", Table: `or"ders`},
		Columns: map[string]dataset.Column{},
	}
	for name, typ := range map[string]string{"region": "text", "n": "integer", "small": "integer", "m": "decimal(12,2)", "x": "double", "r": "double", "flag": "boolean", "day": "date", "at": "timestamp", "instant": "timestamptz", "code": "text"} {
		d.Columns[name] = dataset.Column{Type: typ}
	}
	s := New(l, log)
	t.Cleanup(func() { _ = s.Close() })
	rep, err := s.Load(t.Context(), "d", d, c.ca, secret)
	if err != nil || rep.Rows != 624 {
		t.Fatal(rep, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statements, c.cancelled = nil, 0
	return c, s, d
}

func TestQuery(t *testing.T) {
	c, s, d := start(t, source.Limits{}, nil)
	c.answer = func(string) ([]page, *failure) {
		types := []string{"varchar(20)", "decimal(38,0)", "decimal(38,2)", "bigint", "timestamp(6)", "bigint", "bigint"}
		return []page{
			table2(types, []any{"N'", "9223372036854775808", "1.50", json.Number("9007199254740993"), "2025-01-01 10:00:00.000001", json.Number("3"), json.Number("9")}),
			{},
			table2(types, []any{nil, nil, "-0.01", json.Number("1"), nil, json.Number("4"), json.Number("9")}),
		}, nil
	}
	c.busy = 2
	a, err := sourcetest.Ask(t.Context(), s, "d", d, query.Spec{MinGroup: 5, RowFilter: []contract.Condition{{Column: "n", Op: ">", Value: contract.TextValue("-9223372036854775808")}}, Request: contract.Request{
		GroupBy: []string{"region"}, Aggregates: []contract.Aggregate{{Op: "sum", Column: "n"}, {Op: "sum", Column: "m"}, {Op: "max", Column: "n"}, {Op: "max", Column: "instant"}},
		Filters: []contract.Condition{
			{Column: "region", Op: "in", Values: []contract.Value{contract.TextValue(`'; DROP TABLE x --`), contract.TextValue("é\\'")}}, {Column: "x", Op: "<", Value: contract.TextValue("0.5")},
			{Column: "flag", Op: "=", Value: contract.BoolValue(true)}, {Column: "instant", Op: ">=", Value: contract.TextValue("2025-01-01T00:00:00Z")}, {Column: "m", Op: "=", Value: contract.TextValue("1.50")},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := [][]any{{"N'", "9223372036854775808", "1.50", "9007199254740993", "2025-01-01T10:00:00.000001Z"}, {nil, nil, "-0.01", int64(1), nil}}; !reflect.DeepEqual(a.Rows, want) || a.UsedRows != 7 || a.TotalRows != 9 {
		t.Errorf("%v, want %v", a, want)
	}
	// The whole statement as the cluster gets it: prepared, its quotes doubled, and nothing of a value within it.
	sql := c.statements[len(c.statements)-1]
	stmt, using, ok := strings.Cut(strings.TrimPrefix(sql, "EXECUTE IMMEDIATE '"), "' USING ")
	if !ok || strings.Contains(stmt, "DROP") || strings.Contains(strings.ReplaceAll(stmt, "''", ""), "'") || strings.Count(stmt, "?") != 8 {
		t.Errorf("statement %s", sql)
	}
	if want := `BIGINT '-9223372036854775808', '''; DROP TABLE x --', 'é\''', DOUBLE '0.5', true, '2025-01-01 00:00:00', '1.50', BIGINT '-9223372036854775808'`; using != want {
		t.Errorf("arguments %s\nwant %s", using, want)
	}
	for _, part := range []string{`FROM "lake"."sales"."or""ders" AS t`, `CAST(t."instant" AT TIME ZONE ''UTC'' AS timestamp(6))`, `sum(CAST(t."n" AS decimal(38,0)))`, "LIMIT 101"} {
		if !strings.Contains(stmt, part) {
			t.Errorf("no %s in %s", part, stmt)
		}
	}
	if c.cancelled != 0 {
		t.Errorf("%d cancelled", c.cancelled)
	}
}

func TestFailures(t *testing.T) {
	var log bytes.Buffer
	c, s, _ := start(t, source.Limits{MaxBytes: 4096}, slog.New(slog.NewTextHandler(&log, nil)))
	ask := func(ctx context.Context) (source.Rows, error) {
		return s.Query(ctx, source.Statement{Dataset: "d", SQL: "SELECT 1", MaxRows: 3})
	}
	set := func(pages []page, f *failure) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.answer, c.cancelled = func(string) ([]page, *failure) { return pages, f }, 0
	}
	one := []any{json.Number("1")}
	for name, tt := range map[string]struct {
		pages     []page
		f         *failure
		want      error
		cancelled int
	}{
		"quotes a row":   {nil, &failure{Name: "INVALID_CAST_ARGUMENT", Type: "USER_ERROR"}, source.ErrEngine, 0},
		"after a page":   {[]page{table2([]string{"bigint"}, one)}, &failure{Name: "REMOTE_TASK_ERROR", Type: "INTERNAL_ERROR"}, source.ErrEngine, 0},
		"time":           {nil, &failure{Name: "EXCEEDED_TIME_LIMIT"}, source.ErrTime, 0},
		"memory":         {nil, &failure{Name: "EXCEEDED_GLOBAL_MEMORY_LIMIT"}, source.ErrMemory, 0},
		"range":          {nil, &failure{Name: "NUMERIC_VALUE_OUT_OF_RANGE"}, source.ErrRange, 0},
		"too many rows":  {[]page{table2([]string{"bigint"}, one, one, one, one)}, nil, source.ErrTooManyRows, 1},
		"too many bytes": {[]page{table2([]string{"varchar"}, []any{strings.Repeat("x", 5000)})}, nil, source.ErrMemory, 1},
		"not a number":   {[]page{table2([]string{"double"}, []any{"NaN"})}, nil, source.ErrRange, 1},
		"infinity":       {[]page{table2([]string{"real"}, []any{"-Infinity"})}, nil, source.ErrRange, 1},
		"year 10000":     {[]page{table2([]string{"date"}, []any{"+10000-01-01"})}, nil, source.ErrRange, 1},
		"2^63":           {[]page{table2([]string{"bigint"}, []any{json.Number("9223372036854775808")})}, nil, source.ErrEngine, 1},
		"other type":     {[]page{table2([]string{"array(bigint)"}, []any{[]any{}})}, nil, source.ErrEngine, 1},
		"short row":      {[]page{table2([]string{"bigint", "bigint"}, one)}, nil, source.ErrEngine, 1},
	} {
		set(tt.pages, tt.f)
		if _, err := ask(t.Context()); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		} else if strings.Contains(err.Error(), "value-of-a-row") {
			t.Errorf("%s: the cluster's words: %v", name, err)
		}
		c.mu.Lock()
		if c.cancelled != tt.cancelled {
			t.Errorf("%s: cancelled %d times", name, c.cancelled)
		}
		c.mu.Unlock()
	}
	set([]page{table2([]string{"date", "timestamp(3)", "boolean", "decimal(5,2)"}, []any{"9999-12-31", "0000-01-01 00:00:00.000", true, "-1.00"})}, nil)
	rows, err := ask(t.Context())
	want := []any{time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), true, dataset.Decimal{Unscaled: big.NewInt(-100), Scale: 2}}
	if err != nil || !reflect.DeepEqual(rows[0], want) {
		t.Errorf("%v, %v", rows, err)
	}
	c.mu.Lock()
	c.next = "https://elsewhere.example/v1/statement/queued/q/1"
	c.mu.Unlock()
	if _, err := ask(t.Context()); !errors.Is(err, source.ErrEngine) {
		t.Errorf("nextUri elsewhere: %v", err)
	}
	c.mu.Lock()
	c.next, c.busy = "", attempts
	c.mu.Unlock()
	if _, err := ask(t.Context()); !errors.Is(err, source.ErrEngine) {
		t.Errorf("busy for too long: %v", err)
	}
	// The caller goes while the cluster works: it is told.
	c.mu.Lock()
	c.hang, c.busy, c.cancelled = true, 0, 0
	c.mu.Unlock()
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(gone) })
	if _, err := ask(ctx); !errors.Is(err, gone) {
		t.Errorf("caller gone: %v", err)
	}
	c.mu.Lock()
	if c.cancelled != 1 {
		t.Errorf("cancelled %d times", c.cancelled)
	}
	c.mu.Unlock()
	c.srv.CloseClientConnections()
	c.srv.Listener.Close()
	if _, err := ask(t.Context()); !errors.Is(err, source.ErrEngine) {
		t.Errorf("a cluster that is gone: %v", err)
	}
	for _, w := range []string{secret, "value-of-a-row", "elsewhere"} {
		if strings.Contains(log.String(), w) {
			t.Errorf("the log has %s: %s", w, log.String())
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	c, s, d := start(t, source.Limits{}, nil)
	for name, tt := range map[string]struct{ column, typ, says string }{
		"nanoseconds": {"nano", "timestamp", "microseconds"}, "an array": {"list", "text", "as text"}, "another type": {"n", "text", "bigint"}, "case": {"Region", "text", "differs by case"},
	} {
		d.Columns = map[string]dataset.Column{tt.column: {Type: tt.typ}}
		if _, err := s.Load(t.Context(), "x", d, c.ca, secret); !errors.Is(err, source.ErrSchema) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Load(t.Context(), "x", d, c.ca, "not-the-password"); !errors.Is(err, source.ErrEngine) {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := s.Load(t.Context(), "x", d, "", secret); !errors.Is(err, source.ErrEngine) {
		t.Errorf("unknown authority: %v", err)
	}
}

// The spellings of functions that only some requests use.
func TestDialect(t *testing.T) {
	d, date := Dialect{casts: map[string]string{"code": "varchar"}}, dataset.Type{Kind: dataset.Date}
	for got, want := range map[string]string{
		d.Quantile("x", "0.95", false, date):                              "element_at(array_sort(array_agg(x) FILTER (WHERE x IS NOT NULL)), CAST(ceil(0.95 * count(x)) AS bigint))",
		d.Quantile("x", "0.5", true, date):                                "element_at(array_sort(array_agg(x) FILTER (WHERE x IS NOT NULL)), count(x) + 1 - CAST(ceil(0.5 * count(x)) AS bigint))",
		d.Truncate("month", "x", date):                                    "date_trunc('month', x)",
		d.Prefix("x", "?"):                                                "starts_with(x, ?)",
		d.Limit(5, 10):                                                    "OFFSET 10 LIMIT 5",
		d.Limit(5, 0):                                                     "LIMIT 5",
		d.Column("code", dataset.Type{Kind: dataset.Text}):                `CAST(t."code" AS varchar)`,
		d.Column(`a"; --`, date):                                          `t."a""; --"`,
		d.Sum("x", dataset.Type{Kind: dataset.Double}):                    "sum(x ORDER BY x)",
		d.Stddev("x", dataset.Type{Kind: dataset.Double}):                 "stddev_samp(CAST(x AS double) ORDER BY CAST(x AS double))",
		d.Param(3, dataset.Type{Kind: dataset.DecimalKind, Precision: 9}): "CAST(? AS decimal(9,0))",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if _, err := literal(time.Now()); err == nil {
		t.Error("a literal of an unknown type")
	}
}

// FuzzPage: whatever a coordinator answers, the client ends and does not panic.
func FuzzPage(f *testing.F) {
	f.Add([]byte(`{"id":"q","columns":[{"name":"a","type":"bigint"}],"data":[[1]],"stats":{"state":"FINISHED"}}`))
	f.Add([]byte(`{"error":{"errorName":"X","errorType":"USER_ERROR"}}`))
	f.Add([]byte(`{"data":[[null,{}]],"columns":[{"type":"decimal(1,1)"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
		defer srv.Close()
		s := New(source.Limits{Time: time.Second}, nil)
		c, err := s.client(&dataset.Source{URL: srv.URL, User: "u"}, "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.http.CloseIdleConnections()
		_, _ = s.run(t.Context(), c, source.Statement{SQL: "SELECT 1", MaxRows: 10})
	})
}
