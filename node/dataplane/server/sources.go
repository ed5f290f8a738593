// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/treaty-node/treaty/node/dataplane/csvimport"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/postgres"
	"github.com/treaty-node/treaty/node/dataplane/source/sqlitefile"
	"github.com/treaty-node/treaty/node/dataplane/source/trino"
	"github.com/treaty-node/treaty/node/dataset"
)

// sources are all engines as one: each dataset is asked of the engine that its source's kind names.
type sources struct {
	source.Tables[source.Source]
	files    Engine // CSV and Parquet
	postgres *postgres.Source
	sqlite   *sqlitefile.Source
	trino    *trino.Source
	path     func(string) string // of files that the configuration names
}

var _ Engine = (*sources)(nil)

// bounds are the limits of sources that are not the engine of files.
func (l Limits) bounds() source.Limits {
	return source.Limits{Time: l.QueryTime, Concurrent: l.Concurrent, MaxBytes: int64(l.MemoryMB) << 20 / 32}
}

func newSources(files Engine, l Limits, path func(string) string, log *slog.Logger) (*sources, error) {
	lite, err := sqlitefile.New(l.bounds(), log)
	if err != nil {
		return nil, err
	}
	return &sources{files: files, postgres: postgres.New(l.bounds(), log), sqlite: lite, trino: trino.New(l.bounds(), log), path: path}, nil
}

// Load makes a dataset known to its engine. The report has findings for CSV files only.
func (s *sources) Load(ctx context.Context, id string, d dataset.Dataset, dir string) (*csvimport.Report, error) {
	switch d.KindOf() {
	case dataset.CSVFiles, dataset.ParquetFiles:
		rep, err := s.files.Load(ctx, id, d, dir)
		if err != nil {
			return rep, err
		}
		return rep, s.put(id, s.files)
	}
	rep, engine, err := s.database(ctx, id, d, dir)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", id, err)
	}
	return &csvimport.Report{Rows: rep.Rows}, s.put(id, engine)
}

// put remembers what a dataset that an engine has loaded is, and whose.
func (s *sources) put(id string, engine source.Source) error {
	table, err := engine.Table(id)
	if err != nil {
		return err
	}
	dialect, err := engine.Dialect(id)
	if err != nil {
		return err
	}
	s.Put(id, source.Loaded[source.Source]{Table: table, Dialect: dialect, Own: engine})
	return nil
}

// database has a database load a dataset, or only look at it when the dataset has no columns.
func (s *sources) database(ctx context.Context, id string, d dataset.Dataset, dir string) (rep *source.Report, engine source.Source, err error) {
	if d.KindOf() == dataset.SQLite {
		rep, err = s.sqlite.Load(ctx, id, d, dir)
		return rep, s.sqlite, err
	}
	pw, err := password(d.Source, s.path)
	if err != nil {
		return nil, nil, err
	}
	ca := d.Source.CA
	if ca != "" {
		ca = s.path(ca)
	}
	switch d.KindOf() {
	case dataset.Postgres:
		rep, err = s.postgres.Load(ctx, id, d, ca, pw)
		return rep, s.postgres, err
	case dataset.Trino:
		rep, err = s.trino.Load(ctx, id, d, ca, pw)
		return rep, s.trino, err
	}
	return nil, nil, fmt.Errorf("unknown kind of source %q", d.KindOf())
}

func (s *sources) Lock(ctx context.Context) error { return s.files.Lock(ctx) }

func (s *sources) Close() error {
	return errors.Join(s.files.Close(), s.closeDatabases())
}

func (s *sources) closeDatabases() error {
	return errors.Join(s.postgres.Close(), s.sqlite.Close(), s.trino.Close())
}

func (s *sources) Query(ctx context.Context, st source.Statement) (source.Rows, error) {
	t, err := s.Get(st.Dataset)
	if err != nil {
		return nil, err
	}
	return t.Own.Query(ctx, st)
}

// maxPassword bounds a password's file.
const maxPassword = 4096

// password reads the source's password, or returns "" when none is configured. Errors do not hold it.
func password(src *dataset.Source, path func(string) string) (string, error) {
	switch {
	case src.PasswordEnv != "":
		pw, ok := os.LookupEnv(src.PasswordEnv)
		if !ok || pw == "" {
			return "", configError("source.password_env: %s is not in the environment", src.PasswordEnv)
		}
		return pw, nil
	case src.PasswordFile != "":
		name := path(src.PasswordFile)
		info, err := os.Stat(name)
		if err != nil {
			return "", configError("source.password_file: %w", err)
		}
		if info.Mode().Perm()&0o007 != 0 || info.Size() > maxPassword {
			return "", configError("source.password_file: %s is open to others, or not a password; run chmod 600 %s", name, name)
		}
		data, err := os.ReadFile(name) //nolint:gosec // the operator names it
		if err != nil {
			return "", configError("source.password_file: %w", err)
		}
		pw := strings.TrimRight(string(data), "\r\n")
		if pw == "" {
			return "", configError("source.password_file: %s is empty", name)
		}
		return pw, nil
	}
	return "", nil
}

// Inspect looks at a source that is no file of the engine's, for treaty-dataplane import; of SQLite also at the values of the
// configured columns. Relative paths are relative to dir.
func Inspect(ctx context.Context, d dataset.Dataset, dir string, path func(string) string) (*source.Report, error) {
	s, err := newSources(nil, Limits{}, path, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.closeDatabases() }() // idle connections

	// What is in columns of SQLite only a look at their values tells.
	if d.KindOf() != dataset.SQLite {
		d.Columns = nil
	}
	rep, _, err := s.database(ctx, "", d, dir)
	return rep, err
}
