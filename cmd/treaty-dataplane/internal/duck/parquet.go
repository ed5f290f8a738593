// SPDX-License-Identifier: Apache-2.0

package duck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// ErrParquet: a file is not a complete Parquet file.
var ErrParquet = errors.New("duck: not a complete Parquet file")

// parquet makes a view over Parquet files. Nothing is loaded: every query reads the files, and the lock lets the engine read
// these and no others.
func (e *Engine) parquet(ctx context.Context, id string, d dataset.Dataset, dir string) (*source.Report, error) {
	rep, files, err := e.InspectParquet(ctx, d.Path, dir)
	if err != nil {
		return rep, err
	}
	types, err := source.Fit(d, rep.Columns)
	if err != nil {
		return rep, err
	}
	native := map[string]string{}
	for _, c := range rep.Columns {
		native[c.Name] = c.Native
	}
	names := d.ColumnNames()
	columns := make([]string, len(names))
	for i, n := range names {
		columns[i] = asType(quote(n), native[n], types[n]) + " AS " + quote(n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.locked {
		return rep, ErrLocked
	}
	if _, err := e.db.ExecContext(ctx, "CREATE VIEW "+quote(id)+" AS SELECT "+strings.Join(columns, ", ")+" FROM "+readParquet(files)); err != nil {
		return rep, e.failed("create view", err)
	}
	e.tables[id] = source.Table{From: quote(id), Rows: rep.Rows, Columns: types}
	e.files[id] = files
	return rep, nil
}

// readParquet names files by literals. The file names are the operator's.
func readParquet(files []source.File) string {
	list := make([]string, len(files))
	for i, f := range files {
		list[i] = literal(f.Path)
	}
	return "read_parquet([" + strings.Join(list, ", ") + "])"
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// InspectParquet looks at the files that path names: columns, types and rows. All files must have the same columns.
func (e *Engine) InspectParquet(ctx context.Context, path, dir string) (*source.Report, []source.File, error) {
	files, err := source.Files(dir, path, ".parquet")
	if err != nil {
		return nil, nil, err
	}
	rep := &source.Report{Kind: dataset.ParquetFiles, Files: len(files)}
	for i, f := range files {
		if strings.ContainsAny(f.Path, "*?[]{}") {
			return nil, nil, fmt.Errorf("%s: the engine would read * ? [ ] { } in a file's name as a pattern; rename the file", f.Path)
		}
		columns, err := e.describe(ctx, f)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		if i == 0 {
			rep.Columns = columns
		} else if !slices.Equal(columns, rep.Columns) {
			return nil, nil, fmt.Errorf("%w: %s has other columns than %s", source.ErrSchema, f.Path, files[0].Path)
		}
	}
	if err := e.db.QueryRowContext(ctx, "SELECT count(*) FROM "+readParquet(files)).Scan(&rep.Rows); err != nil {
		return nil, nil, e.failed("count", err)
	}
	if !source.Unchanged(files) {
		return nil, nil, fmt.Errorf("%s: %w", path, errFilesChanged)
	}
	return rep, files, nil
}

var errFilesChanged = errors.New("the files changed meanwhile")

func (e *Engine) describe(ctx context.Context, f source.File) (out []source.Found, err error) {
	rows, err := e.db.QueryContext(ctx, "SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM "+readParquet([]source.File{f})+")")
	if err != nil {
		_ = e.failed("describe", err)
		return nil, ErrParquet
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var c source.Found
		if err := rows.Scan(&c.Name, &c.Native); err != nil {
			return nil, e.failed("describe", err)
		}
		c.Type, c.Advice = typeOf(c.Native)
		out = append(out, c)
		if len(out) > dataset.MaxColumns*4 {
			return nil, fmt.Errorf("%w: more than %d columns", source.ErrSchema, dataset.MaxColumns*4)
		}
	}
	return out, rows.Err()
}

// typeOf is the type of a column as the engine names it; zero, and what to do, when contracts have none for it.
func typeOf(native string) (dataset.Type, string) {
	switch native {
	case "VARCHAR", "UUID":
		return dataset.Type{Kind: dataset.Text}, ""
	case "BOOLEAN":
		return dataset.Type{Kind: dataset.Boolean}, ""
	case "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER":
		return dataset.Type{Kind: dataset.Integer}, ""
	case "UBIGINT": // up to 2^64-1
		return dataset.Type{Kind: dataset.DecimalKind, Precision: 20}, ""
	case "FLOAT", "DOUBLE":
		return dataset.Type{Kind: dataset.Double}, ""
	case "DATE":
		return dataset.Type{Kind: dataset.Date}, ""
	case "TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_S":
		return dataset.Type{Kind: dataset.Timestamp}, ""
	case "TIMESTAMP WITH TIME ZONE":
		return dataset.Type{Kind: dataset.TimestampTZ}, ""
	case "TIMESTAMP_NS", "TIME", "INTERVAL", "TIME WITH TIME ZONE":
		return dataset.Type{}, source.AdviceTime
	case "HUGEINT", "UHUGEINT":
		return dataset.Type{}, source.AdviceDecimal
	}
	if strings.HasPrefix(native, "ENUM(") && !strings.HasSuffix(native, "]") {
		return dataset.Type{Kind: dataset.Text}, ""
	}
	if strings.HasPrefix(native, "DECIMAL(") {
		if t, err := dataset.ParseType(strings.ToLower(native)); err == nil {
			return t, ""
		}
	}
	return dataset.Type{}, source.AdviceText
}

// asType reads a column of a file as the engine keeps the type elsewhere. A column that already is so stays bare, so that the
// files' statistics can be used.
func asType(column, native string, t dataset.Type) string {
	switch want := sqlType(t); {
	case native == want:
		return column
	case native == "TIMESTAMP WITH TIME ZONE": // an instant: its microseconds, whatever zone is set
		return "make_timestamp(epoch_us(" + column + "))"
	default:
		return "CAST(" + column + " AS " + want + ")"
	}
}
