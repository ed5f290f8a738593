// SPDX-License-Identifier: Apache-2.0

// Package postgres answers statements from tables and views of PostgreSQL. The whole statement runs in the database.
//
// Guarantees
//
//   - Every statement runs in a READ ONLY transaction that is rolled back, as a role that is no superuser and may not write the
//     table; [Source.Load] refuses any other role. Names resolve in pg_catalog only, so that no function of the database's
//     own can take the place of one that a statement uses.
//   - The database ends a statement at the time limit itself, and is told to when the caller goes away.
//   - Connections to other machines use TLS with a verified certificate and host name.
//   - What the database says about a failure stays here: the log gets the SQLSTATE and nothing else.
//
// Memory is the server's to bound (work_mem, and a limit of the role's connections).
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

var (
	// ErrRole: the role may do more than read.
	ErrRole = errors.New("postgres: the role may do more than read")
	// ErrTLS: the connection would not be protected.
	ErrTLS = errors.New("postgres: the connection is not protected")
)

// Source is a [source.Source] over any number of databases. It is safe for concurrent use.
type Source struct {
	source.Tables[*pgxpool.Pool]

	limits source.Limits
	log    *slog.Logger

	mu    sync.Mutex
	pools map[string]*pgxpool.Pool // by url
}

var _ source.Source = (*Source)(nil)

// New makes a source without datasets. log may be nil.
func New(l source.Limits, log *slog.Logger) *Source {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Source{limits: l.WithDefaults(), log: log, pools: map[string]*pgxpool.Pool{}}
}

// Close ends all connections.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools {
		p.Close()
	}
	s.pools = map[string]*pgxpool.Pool{}
	s.Clear()
	return nil
}

// Load connects, checks the role and the table's columns, and counts the rows. ca is a PEM file or empty; password may be
// empty, and is kept in memory only.
func (s *Source) Load(ctx context.Context, id string, d dataset.Dataset, ca, password string) (*source.Report, error) {
	pool, err := s.pool(ctx, d.Source.URL, ca, password)
	if err != nil {
		return nil, err
	}
	schema := d.Source.Schema
	if schema == "" {
		schema = "public"
	}
	if err := s.checkRole(ctx, pool, schema, d.Source.Table); err != nil {
		return nil, err
	}
	rep, casts, err := s.inspect(ctx, pool, schema, d.Source.Table)
	if err != nil {
		return rep, err
	}
	if len(d.Columns) == 0 {
		return rep, nil
	}
	types, err := source.Fit(d, rep.Columns)
	if err != nil {
		return rep, err
	}
	from := Dialect{}.Ident(schema) + "." + Dialect{}.Ident(d.Source.Table)
	s.Put(id, source.Loaded[*pgxpool.Pool]{Table: source.Table{From: from, Rows: rep.Rows, Columns: types}, Dialect: Dialect{casts: casts}, Own: pool})
	return rep, nil
}

func (s *Source) pool(ctx context.Context, raw, ca, password string) (*pgxpool.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.pools[raw]; ok {
		return p, nil
	}
	cfg, err := s.config(raw, ca, password)
	if err != nil {
		return nil, err
	}
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if err := p.Ping(ctx); err != nil {
		p.Close()
		return nil, fmt.Errorf("postgres: connecting: %w", err) // names host, user and database, no secret
	}
	s.pools[raw] = p
	return p, nil
}

func (s *Source) config(raw, ca, password string) (*pgxpool.Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("postgres: the url cannot be read")
	}
	q := u.Query()
	if ca != "" {
		q.Set("sslrootcert", ca)
	}
	if q.Get("sslmode") == "" {
		q.Set("sslmode", "verify-full")
		if here(u) {
			q.Set("sslmode", "disable")
		}
	}
	if q.Get("sslmode") != "verify-full" && !here(u) {
		return nil, fmt.Errorf("%w: want sslmode=verify-full to another machine", ErrTLS)
	}
	u.RawQuery = q.Encode()
	cfg, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, errors.New("postgres: the url cannot be used (postgres://user@host:port/database?sslmode=verify-full)")
	}
	c := cfg.ConnConfig
	if password != "" {
		c.Password = password
	}
	c.ConnectTimeout = 10 * time.Second
	c.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	for name, value := range map[string]string{
		"application_name": "treaty-dataplane", "default_transaction_read_only": "on", "TimeZone": "UTC", "DateStyle": "ISO, YMD",
		"search_path": "pg_catalog", "client_encoding": "UTF8", "standard_conforming_strings": "on",
		"statement_timeout":                   strconv.FormatInt(s.limits.Time.Milliseconds(), 10),
		"lock_timeout":                        strconv.FormatInt(s.limits.Time.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": "60000",
	} {
		c.RuntimeParams[name] = value
	}
	// When the context ends the server is asked to cancel, so that it does not go on working for nobody.
	c.BuildContextWatcherHandler = func(pc *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: pc, DeadlineDelay: 2 * time.Second}
	}
	cfg.MaxConns, cfg.MinConns = int32(s.limits.Concurrent), 0 //nolint:gosec // small
	cfg.MaxConnIdleTime, cfg.MaxConnLifetime = 5*time.Minute, time.Hour
	return cfg, nil
}

// here reports whether every host of the url is this machine.
func here(u *url.URL) bool {
	hosts := []string{u.Hostname()}
	if h := u.Query().Get("host"); h != "" {
		hosts = strings.Split(h, ",")
	} else if strings.Contains(u.Host, ",") {
		return false
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); h != "localhost" && !strings.HasPrefix(h, "/") && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

const roleSQL = `SELECT r.rolsuper OR r.rolbypassrls, c.oid IS NOT NULL, coalesce(c.relkind::text, ''),
  coalesce(has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'), false),
  coalesce(has_table_privilege(c.oid, 'INSERT') OR has_table_privilege(c.oid, 'UPDATE') OR has_table_privilege(c.oid, 'DELETE')
    OR has_table_privilege(c.oid, 'TRUNCATE') OR pg_has_role(c.relowner, 'USAGE'), false)
FROM pg_roles r LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) ON n.nspname = $1 AND c.relname = $2
WHERE r.rolname = current_user`

func (s *Source) checkRole(ctx context.Context, pool *pgxpool.Pool, schema, name string) error {
	var super, there, read, write bool
	var kind string
	if err := pool.QueryRow(ctx, roleSQL, schema, name).Scan(&super, &there, &kind, &read, &write); err != nil {
		return s.failed("role", err)
	}
	switch {
	case super:
		return fmt.Errorf("%w: it is a superuser or bypasses row security; make one with LOGIN and SELECT on the table, and no more", ErrRole)
	case !there:
		return fmt.Errorf("%w: there is no table %s.%s", source.ErrSchema, schema, name)
	case !strings.Contains("rpvmf", kind):
		return fmt.Errorf("%w: %s.%s is neither a table nor a view", source.ErrSchema, schema, name)
	case write:
		return fmt.Errorf("%w: it owns or may write %s.%s; make a role with SELECT alone", ErrRole, schema, name)
	case !read:
		return fmt.Errorf("%w: the role may not read %s.%s: GRANT SELECT on it, and USAGE on the schema", source.ErrSchema, schema, name)
	}
	return nil
}

const columnsSQL = `SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typtype::text
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = a.atttypid
WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

func (s *Source) inspect(ctx context.Context, pool *pgxpool.Pool, schema, name string) (*source.Report, map[string]string, error) {
	rep, casts := &source.Report{Kind: dataset.Postgres, Rows: -1}, map[string]string{}
	rows, err := pool.Query(ctx, columnsSQL, schema, name)
	if err != nil {
		return nil, nil, s.failed("columns", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c source.Found
		var kind string
		if err := rows.Scan(&c.Name, &c.Native, &kind); err != nil {
			return nil, nil, s.failed("columns", err)
		}
		var cast string
		if c.Type, cast, c.Advice = typeOf(c.Native, kind); cast != "" {
			casts[c.Name] = cast
		}
		rep.Columns = append(rep.Columns, c)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, s.failed("columns", err)
	}
	count := "SELECT count(*) FROM " + Dialect{}.Ident(schema) + "." + Dialect{}.Ident(name)
	if err := pool.QueryRow(ctx, count).Scan(&rep.Rows); err != nil {
		if err = s.failed("count", err); !errors.Is(err, source.ErrTime) {
			return nil, nil, err
		}
		rep.Rows = -1 // too many to be counted in the time of a query
	}
	return rep, casts, nil
}

// types that need no look at their arguments, and what they are cast to when they are read.
var types = map[string]struct {
	kind contract.Kind
	cast string
}{
	"smallint": {dataset.Integer, ""}, "integer": {dataset.Integer, ""}, "bigint": {dataset.Integer, ""},
	"text": {dataset.Text, ""}, "character varying": {dataset.Text, ""},
	"character": {dataset.Text, "text"}, "uuid": {dataset.Text, "text"}, "name": {dataset.Text, "text"},
	"boolean": {dataset.Boolean, ""}, "real": {dataset.Double, "double precision"}, "double precision": {dataset.Double, ""},
	"date": {dataset.Date, ""}, "timestamp without time zone": {dataset.Timestamp, ""}, "timestamp with time zone": {dataset.TimestampTZ, ""},
}

// typeOf maps a column's type, as format_type writes it, and says what to cast it to when it is read.
func typeOf(native, kind string) (t dataset.Type, cast, advice string) {
	base, args, _ := strings.Cut(native, "(")
	args, rest, _ := strings.Cut(args, ")")
	base += rest // timestamp(3) with time zone
	if t, ok := types[base]; ok {
		return dataset.Type{Kind: t.kind}, t.cast, ""
	}
	switch {
	case base == "numeric":
		if t, err := dataset.ParseType("decimal(" + args + ")"); err == nil {
			return t, "", ""
		}
		return dataset.Type{}, "", source.AdviceDecimal
	case kind == "e": // an enumeration
		return dataset.Type{Kind: dataset.Text}, "text", ""
	}
	return dataset.Type{}, "", source.AdviceText
}

// Query implements [source.Source].
func (s *Source) Query(ctx context.Context, st source.Statement) (source.Rows, error) {
	t, err := s.Get(st.Dataset)
	if err != nil {
		return nil, err
	}
	return s.limits.Within(ctx, func(ctx context.Context) (source.Rows, error) { return s.run(ctx, t.Own, st) })
}

func (s *Source) run(ctx context.Context, pool *pgxpool.Pool, st source.Statement) (_ source.Rows, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, s.failed("begin", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(end) // a connection that cannot is closed by the pool
	}()
	// What is left of a large answer is not read to its end: the context ends it in the server.
	reading, stop := context.WithCancel(ctx)
	defer stop()
	rows, err := tx.Query(reading, st.SQL, st.Args...)
	if err != nil {
		return nil, s.failed("query", err)
	}
	defer rows.Close()
	answer := s.limits.Collect(st)
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, s.failed("values", err)
		}
		for i, v := range values {
			if values[i], err = cell(v); err != nil {
				stop()
				return nil, err
			}
		}
		if err := answer.Add(values); err != nil {
			stop()
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, s.failed("rows", err)
	}
	return answer.Rows(), nil
}

// cell gives a driver's value the type that [source.Rows] names. Not-a-number and the infinities of decimals and dates are
// out of range.
func cell(v any) (any, error) {
	switch x := v.(type) {
	case nil, string, int64, float64, bool:
		return x, nil
	case int32:
		return int64(x), nil
	case int16:
		return int64(x), nil
	case time.Time:
		return x.UTC(), nil
	case pgtype.Numeric:
		if x.NaN || x.InfinityModifier != pgtype.Finite || x.Int == nil {
			return nil, source.ErrRange
		}
		if x.Exp <= 0 {
			return dataset.Decimal{Unscaled: x.Int, Scale: int(-x.Exp)}, nil
		}
		d, ok := dataset.Decimal{Unscaled: x.Int}.Rescale(int(x.Exp)) // Int × 10^Exp
		if !ok {
			return nil, source.ErrRange
		}
		return dataset.Decimal{Unscaled: d.Unscaled}, nil
	case pgtype.InfinityModifier:
		return nil, source.ErrRange
	}
	return nil, source.ErrEngine
}

// failed keeps the database's words here.
func (s *Source) failed(step string, err error) error {
	var pe *pgconn.PgError
	out, state := source.ErrEngine, ""
	if errors.As(err, &pe) {
		state = pe.Code
		switch {
		case state == "57014": // query_canceled: the statement's time, or our own request
			out = source.ErrTime
		case strings.HasPrefix(state, "53"): // insufficient resources
			out = source.ErrMemory
		case state == "22003" || state == "22008" || state == "22012": // out of range, datetime overflow, division by zero
			out = source.ErrRange
		}
	}
	s.log.Error("engine error", "engine", "postgres", "step", step, "sqlstate", state, "class", fmt.Sprintf("%T", err))
	return out
}
