// SPDX-License-Identifier: Apache-2.0

// Package trino answers statements from tables of a Trino cluster: for datasets that are larger than one machine. The whole
// statement runs in the cluster.
//
// Guarantees
//
//   - HTTPS with a verified certificate (HTTP on this machine only), no redirects, no proxy from the environment; a nextUri of
//     another origin is refused, since the password would go there.
//   - Every response is bounded, so is the whole answer; the cluster ends a statement at the time limit itself, and is told to
//     when the caller goes away or the answer grows too large.
//   - Values travel as arguments of a prepared statement (EXECUTE IMMEDIATE … USING, Trino 418 and later).
//   - What the cluster says about a failure stays here: the log gets the name of the error and nothing else.
//
// What the user may do is the cluster's to say (access control): give it SELECT on the tables and no more.
package trino

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// Source is a [source.Source] over any number of clusters. It is safe for concurrent use.
type Source struct {
	source.Tables[*client]

	limits source.Limits
	log    *slog.Logger
}

var _ source.Source = (*Source)(nil)

// New makes a source without datasets. log may be nil.
func New(l source.Limits, log *slog.Logger) *Source {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Source{limits: l.WithDefaults(), log: log}
}

// Close forgets the datasets.
func (s *Source) Close() error {
	for _, c := range s.Clear() {
		c.http.CloseIdleConnections()
	}
	return nil
}

// Load asks the cluster for the table's columns and rows. ca is a PEM file or empty; password may be empty, and is kept in
// memory only. Without configured columns it only looks.
func (s *Source) Load(ctx context.Context, id string, d dataset.Dataset, ca, password string) (*source.Report, error) {
	c, err := s.client(d.Source, ca, password)
	if err != nil {
		return nil, err
	}
	rep, casts, err := s.inspect(ctx, c, d.Source)
	if err != nil || len(d.Columns) == 0 {
		return rep, err
	}
	types, err := source.Fit(d, rep.Columns)
	if err != nil {
		return rep, err
	}
	s.Put(id, source.Loaded[*client]{Table: source.Table{From: from(d.Source), Rows: rep.Rows, Columns: types}, Dialect: Dialect{casts: casts}, Own: c})
	return rep, nil
}

func from(src *dataset.Source) string {
	q := Dialect{}.Ident
	return q(src.Catalog) + "." + q(src.Schema) + "." + q(src.Table)
}

func (s *Source) client(src *dataset.Source, ca, password string) (*client, error) {
	base, err := url.Parse(src.URL)
	if err != nil {
		return nil, errors.New("trino: the url cannot be read")
	}
	var roots *x509.CertPool
	if ca != "" {
		pem, err := os.ReadFile(ca) //nolint:gosec // the operator names it
		if err != nil {
			return nil, fmt.Errorf("trino: ca: %w", err)
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("trino: %s holds no certificate", ca)
		}
	}
	return &client{
		http: &http.Client{
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, ForceAttemptHTTP2: true,
				TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: s.limits.Concurrent, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 1 << 20,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		base: base, user: src.User, password: password, catalog: src.Catalog, schema: src.Schema, maxTime: s.limits.Time,
	}, nil
}

func (s *Source) inspect(ctx context.Context, c *client, src *dataset.Source) (*source.Report, map[string]string, error) {
	rep, casts := &source.Report{Kind: dataset.Trino, Rows: -1}, map[string]string{}
	rows, err := s.run(ctx, c, source.Statement{
		SQL:  "SELECT column_name, data_type FROM " + Dialect{}.Ident(src.Catalog) + ".information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position",
		Args: []any{src.Schema, src.Table}, MaxRows: dataset.MaxColumns * 4,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("trino: reading the columns: %w", err)
	}
	for _, row := range rows {
		if len(row) != 2 {
			return nil, nil, source.ErrEngine
		}
		var f source.Found
		f.Name, _ = row[0].(string)
		f.Native, _ = row[1].(string)
		var cast string
		if f.Type, cast, f.Advice = typeOf(f.Native); cast != "" {
			casts[f.Name] = cast
		}
		rep.Columns = append(rep.Columns, f)
	}
	if len(rep.Columns) == 0 {
		return nil, nil, fmt.Errorf("%w: there is no table %s (Trino writes names in lower case)", source.ErrSchema, contract.Echo(src.Table))
	}
	rows, err = s.run(ctx, c, source.Statement{SQL: "SELECT count(*) FROM " + from(src), MaxRows: 1})
	switch {
	case errors.Is(err, source.ErrTime): // too many to be counted in the time of a query
	case err != nil:
		return nil, nil, fmt.Errorf("trino: counting the rows: %w", err)
	case len(rows) == 1 && len(rows[0]) == 1:
		rep.Rows, _ = rows[0][0].(int64)
	}
	return rep, casts, nil
}

// types that need no look at their arguments, and what they are cast to when they are read.
var types = map[string]struct {
	kind contract.Kind
	cast string
}{
	"bigint": {dataset.Integer, ""}, "integer": {dataset.Integer, "bigint"}, "smallint": {dataset.Integer, "bigint"}, "tinyint": {dataset.Integer, "bigint"},
	"varchar": {dataset.Text, ""}, "char": {dataset.Text, "varchar"}, "uuid": {dataset.Text, "varchar"},
	"boolean": {dataset.Boolean, ""}, "double": {dataset.Double, ""}, "real": {dataset.Double, "double"}, "date": {dataset.Date, ""},
}

// typeOf maps a column's type and says what to cast it to when it is read.
func typeOf(native string) (t dataset.Type, cast, advice string) {
	base, args, _ := strings.Cut(native, "(")
	args, rest, _ := strings.Cut(args, ")")
	base += rest
	if t, ok := types[base]; ok {
		return dataset.Type{Kind: t.kind}, t.cast, ""
	}
	switch base {
	case "timestamp", "timestamp with time zone":
		if len(args) != 1 || args > "6" {
			return dataset.Type{}, "", source.AdviceTime
		}
		if base == "timestamp" {
			return dataset.Type{Kind: dataset.Timestamp}, "", ""
		}
		return dataset.Type{Kind: dataset.TimestampTZ}, "", ""
	case "decimal":
		if t, err := dataset.ParseType("decimal(" + strings.ReplaceAll(args, " ", "") + ")"); err == nil {
			return t, "", ""
		}
		return dataset.Type{}, "", source.AdviceDecimal
	}
	return dataset.Type{}, "", source.AdviceText
}

// Query implements [source.Source].
func (s *Source) Query(ctx context.Context, st source.Statement) (source.Rows, error) {
	t, err := s.Get(st.Dataset)
	if err != nil {
		return nil, err
	}
	return s.run(ctx, t.Own, st)
}

func (s *Source) run(ctx context.Context, c *client, st source.Statement) (source.Rows, error) {
	sql, err := prepared(st)
	if err != nil {
		return nil, s.failed(err)
	}
	return s.limits.Within(ctx, func(ctx context.Context) (source.Rows, error) { return s.collect(ctx, c, sql, st) })
}

func (s *Source) collect(ctx context.Context, c *client, sql string, st source.Statement) (source.Rows, error) {
	answer := s.limits.Collect(st)
	err := c.each(ctx, sql, func(p *page) error {
		for _, row := range p.Data {
			if len(row) != len(p.Columns) {
				return source.ErrEngine
			}
			for i, v := range row {
				x, err := cell(v, p.Columns[i].Type)
				if err != nil {
					return err
				}
				row[i] = x
			}
			if err := answer.Add(row); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err() // whose cause is told
	case errors.Is(err, source.ErrTooManyRows) || errors.Is(err, source.ErrMemory) || errors.Is(err, source.ErrRange):
		return nil, err
	case err != nil:
		return nil, s.failed(err)
	}
	return answer.Rows(), nil
}

// cell gives a value of the protocol's JSON the type that [source.Rows] names.
func cell(v any, typ string) (any, error) {
	if v == nil {
		return nil, nil
	}
	base, _, _ := strings.Cut(typ, "(")
	text, isText := v.(string)
	switch base {
	case "bigint", "integer", "smallint", "tinyint":
		if n, ok := v.(json.Number); ok {
			if i, err := n.Int64(); err == nil {
				return i, nil
			}
		}
	case "double", "real":
		if isText { // NaN, Infinity, -Infinity
			return nil, source.ErrRange
		}
		if n, ok := v.(json.Number); ok {
			if f, err := n.Float64(); err == nil && !math.IsInf(f, 0) {
				return f, nil
			}
		}
	case "decimal":
		if d, err := dataset.ParseDecimal(text); isText && err == nil {
			return d, nil
		}
	case "varchar", "char":
		if isText {
			return text, nil
		}
	case "boolean":
		if b, ok := v.(bool); ok {
			return b, nil
		}
	case "date":
		return parse(time.DateOnly, text)
	case "timestamp":
		if !strings.Contains(typ, "zone") {
			return parse(time.DateTime, text)
		}
	}
	return nil, source.ErrEngine
}

// parse reads what years 0 to 9999 look like; Trino writes others with a sign or more digits.
func parse(layout, text string) (any, error) {
	t, err := time.Parse(layout, text)
	if err != nil {
		return nil, source.ErrRange
	}
	return t, nil
}

// failed keeps the cluster's words here.
func (s *Source) failed(err error) error {
	out, name := source.ErrEngine, ""
	var f *failure
	if errors.As(err, &f) {
		name = f.Name
		switch {
		case name == "EXCEEDED_TIME_LIMIT":
			out = source.ErrTime
		case strings.HasSuffix(name, "MEMORY_LIMIT") || name == "CLUSTER_OUT_OF_MEMORY":
			out = source.ErrMemory
		case name == "NUMERIC_VALUE_OUT_OF_RANGE":
			out = source.ErrRange
		}
	}
	s.log.Error("engine error", "engine", "trino", "name", word(name), "class", fmt.Sprintf("%T", err))
	return out
}

// word keeps a name of the protocol's and drops everything that does not look like one.
func word(s string) string {
	if len(s) > 64 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return "?"
	}
	return s
}
