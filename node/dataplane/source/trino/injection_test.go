// SPDX-License-Identifier: Apache-2.0

package trino

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/query"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/sourcetest"
	"github.com/treaty-node/treaty/node/dataset"
)

// token is a piece of SQL as Trino's grammar has them: kind ' for a text, " for a delimited identifier, w for words and numbers,
// and the character itself for everything else.
type token struct {
	kind byte
	text string
}

// lex reads SQL. Comments, texts with a prefix and what does not end are errors: the builder writes none of them.
func lex(sql string) (out []token, err error) {
	for i := 0; i < len(sql); {
		c := sql[i]
		switch {
		case c == ' ' || c == '\n' || c == '\t':
			i++
		case c == '\'' || c == '"':
			if i > 0 && (sql[i-1] == '&' || sql[i-1]|0x20 >= 'a' && sql[i-1]|0x20 <= 'z') {
				return nil, errors.New("a text or name with a prefix")
			}
			var b strings.Builder
			for i++; ; i++ {
				if i == len(sql) {
					return nil, fmt.Errorf("%c does not end", c)
				}
				if sql[i] == c {
					if i++; i == len(sql) || sql[i] != c {
						break
					}
				}
				b.WriteByte(sql[i])
			}
			out = append(out, token{c, b.String()})
		case strings.HasPrefix(sql[i:], "--") || strings.HasPrefix(sql[i:], "/*"):
			return nil, errors.New("a comment")
		case c == '_' || c == '.' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z':
			from := i
			for i < len(sql) && (sql[i] == '_' || sql[i] == '.' || sql[i] >= '0' && sql[i] <= '9' || sql[i]|0x20 >= 'a' && sql[i]|0x20 <= 'z') {
				i++
			}
			out = append(out, token{'w', sql[from:i]})
		default:
			if c == ';' || c >= 0x80 || c < ' ' || c == '`' {
				return nil, fmt.Errorf("%q outside of texts and names", c)
			}
			out = append(out, token{c, string(c)})
			i++
		}
	}
	return out, nil
}

// executed takes a request apart as the cluster does: the prepared statement's tokens, and the arguments' texts.
func executed(sql string) (stmt []token, args []string, err error) {
	all, err := lex(sql)
	if err != nil {
		return nil, nil, err
	}
	if len(all) < 4 || all[0].text != "EXECUTE" || all[1].text != "IMMEDIATE" || all[2].kind != '\'' || all[3].text != "USING" {
		return nil, nil, errors.New("not EXECUTE IMMEDIATE text USING")
	}
	for _, t := range all[4:] {
		switch {
		case t.kind == '\'':
			args = append(args, t.text)
		case t.kind != ',' && t.text != "BIGINT" && t.text != "DOUBLE":
			return nil, nil, fmt.Errorf("%s among the arguments", t.text)
		}
	}
	stmt, err = lex(all[2].text)
	return stmt, args, err
}

// Every name and value is an attempt. What arrives at the cluster is the same statement but for the delimited names, each of which
// reads back the same, and arguments that are texts which read back the same.
func TestInjection(t *testing.T) {
	c, s, d := start(t, source.Limits{}, nil)
	answer := func(n int) func(string) ([]page, *failure) {
		types, row := make([]string, n), make([]any, n)
		for i := range types {
			types[i], row[i] = "bigint", json.Number("1")
		}
		return func(string) ([]page, *failure) { return []page{table2(types, row)}, nil }
	}
	last := func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.statements[len(c.statements)-1]
	}
	shape := "" // of the statement, the same for every attempt
	for _, evil := range append(sourcetest.Attempts(), sourcetest.Evil, sourcetest.Table, "plain") {
		if contract.CheckColumnName(evil) != nil {
			continue
		}
		// A catalogue, a schema, a table and two columns of that name.
		other := evil + "2"
		d.Source.Table = evil
		src := *d.Source
		src.Catalog, src.Schema = "lake", "sales" // the fake wants them in the headers; see from below
		evilSet := dataset.Dataset{Source: &src, Columns: map[string]dataset.Column{evil: {Type: "text"}, other: {Type: "integer"}}}
		c.mu.Lock()
		c.answer = func(sql string) ([]page, *failure) {
			if strings.Contains(sql, "information_schema") {
				return []page{table2([]string{"varchar", "varchar"}, []any{evil, "char(9)"}, []any{other, "integer"})}, nil
			}
			return []page{table2([]string{"bigint"}, []any{json.Number("1")})}, nil
		}
		c.statements = nil
		c.mu.Unlock()
		if _, err := s.Load(t.Context(), "evil", evilSet, c.ca, secret); err != nil {
			t.Fatalf("%q: %v", evil, err)
		}
		// What looks for the columns has the names as arguments.
		if _, args, err := executed(c.statements[0]); err != nil || !reflect.DeepEqual(args, []string{"sales", evil}) {
			t.Errorf("columns of %q: %q, %v in %s", evil, args, err, c.statements[0])
		}
		if got, err := lex(c.statements[1]); err != nil || !slices.Contains(got, token{'"', evil}) {
			t.Errorf("count of %q: %v in %s", evil, err, c.statements[1])
		}
		c.mu.Lock()
		c.answer = answer(5)
		c.mu.Unlock()
		tree := contract.Filter{Not: &contract.Filter{Or: []contract.Filter{contract.Where(sourcetest.Where(evil, "prefix", evil)), contract.Where(sourcetest.Where(evil, "in", evil, "x"))}}}
		_, err := sourcetest.Ask(t.Context(), s, "evil", evilSet, query.Spec{
			MinGroup: 2, Subject: evil, RowFilter: []contract.Condition{sourcetest.Where(evil, "!=", evil)}, Request: contract.Request{
				GroupBy: []string{other}, Aggregates: []contract.Aggregate{{Op: "max", Column: other, As: evil}, {Op: "count"}}, OrderBy: []contract.Order{{By: evil, Desc: true}},
				Filters: []contract.Condition{sourcetest.Where(evil, "between", evil, evil)}, Where: &tree, Having: []contract.Condition{sourcetest.Where(evil, ">", "-7")},
			},
		})
		if err != nil {
			t.Fatalf("%q: %v", evil, err)
		}
		stmt, args, err := executed(last())
		if want := []string{evil, evil, evil, evil, evil, "x", evil, "-7"}; err != nil || !reflect.DeepEqual(args, want) {
			t.Errorf("%q: %q, %v in %s", evil, args, err, last())
		}
		var b strings.Builder
		for _, tok := range stmt {
			switch {
			case tok.kind == '\'':
				t.Errorf("%q: the text %q in the statement", evil, tok.text)
			case tok.kind == '"' && !slices.Contains([]string{"lake", "sales", evil, other}, tok.text):
				t.Errorf("%q: the name %q", evil, tok.text)
			case tok.kind == '"' && tok.text == evil:
				b.WriteString(`"evil" `)
				continue
			case tok.kind == '"' && tok.text == other:
				b.WriteString(`"other" `)
				continue
			}
			b.WriteString(tok.text + " ")
		}
		if shape == "" {
			shape = b.String()
		}
		if b.String() != shape || strings.Count(shape, "?") != len(args) {
			t.Errorf("%q changes the statement:\n%s\n%s", evil, b.String(), shape)
		}
		// The rest of a table's name comes from the configuration and is quoted in the same way.
		if got, err := lex(from(&dataset.Source{Catalog: evil, Schema: evil, Table: evil})); err != nil || len(got) != 5 || got[0].text != evil || got[2].text != evil || got[4].text != evil {
			t.Errorf("%q: %v, %v", evil, got, err)
		}
	}
	if strings.Contains(shape, "DROP") || shape == "" {
		t.Error(shape)
	}
	// The reading above sees what it is to see.
	for _, bad := range []string{"SELECT 'x", "SELECT 1 -- x", "SELECT 1; SELECT 2", "U&'\\0027'", "/* x */", `"x`, "ʼ"} {
		if got, err := lex(bad); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
}

// A result is the same again, to the byte, and so is its digest, however the cluster cuts it into pages.
func TestRecomputed(t *testing.T) {
	c, s, d := start(t, source.Limits{}, nil)
	types := []string{"varchar(20)", "double", "decimal(38,2)", "bigint", "bigint", "bigint"}
	one := []any{"é<&>\"\\'", json.Number("1e300"), "0.10", json.Number("9007199254740993"), json.Number("3"), json.Number("9")}
	two := []any{nil, json.Number("0.30000000000000004"), nil, json.Number("1"), json.Number("4"), json.Number("9")}
	var first []byte
	for _, pages := range [][]page{{table2(types, one, two)}, {table2(types, one), {}, table2(types, two)}} {
		c.mu.Lock()
		c.answer = func(string) ([]page, *failure) { return pages, nil }
		c.mu.Unlock()
		a, err := sourcetest.Ask(t.Context(), s, "d", d, query.Spec{Request: contract.Request{
			GroupBy: []string{"region"}, Aggregates: []contract.Aggregate{{Op: "sum", Column: "x"}, {Op: "sum", Column: "m"}, {Op: "max", Column: "n"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got := sourcetest.CheckDigest(t, a)
		if first != nil && string(got) != string(first) {
			t.Errorf("%s\n%s", first, got)
		}
		first = got
	}
}

// The cluster dies in the middle of a page. When it answers again, no row is there twice; when it does not, nothing is an answer.
func TestDiesInMidQuery(t *testing.T) {
	for _, deaths := range []int{1, attempts} {
		died := 0
		var srv *httptest.Server
		srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p := table2([]string{"bigint"}, []any{json.Number("7")}, []any{json.Number("8")})
			switch {
			case r.Method == http.MethodDelete:
			case r.Method == http.MethodPost:
				p.NextURI = srv.URL + "/v1/statement/executing/q/1"
				_ = json.NewEncoder(w).Encode(p)
			case died < deaths:
				died++
				w.Header().Set("Content-Length", "100000")
				_, _ = w.Write([]byte(`{"columns":[{"name":"c0","type":"bigint"}],"data":[[9],[`))
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			default:
				p.Data = [][]any{{json.Number("9")}}
				_ = json.NewEncoder(w).Encode(p)
			}
		}))
		defer srv.Close()
		s := New(source.Limits{}, nil)
		c, err := s.client(&dataset.Source{URL: srv.URL, User: "u"}, "", "")
		if err != nil {
			t.Fatal(err)
		}
		rows, err := s.run(t.Context(), c, source.Statement{SQL: "SELECT 1", MaxRows: 10})
		if deaths == attempts {
			if !errors.Is(err, source.ErrEngine) || rows != nil {
				t.Errorf("gone: %v, %v", rows, err)
			}
		} else if want := (source.Rows{{int64(7)}, {int64(8)}, {int64(9)}}); err != nil || !reflect.DeepEqual(rows, want) {
			t.Errorf("%v, %v", rows, err)
		}
	}
}
