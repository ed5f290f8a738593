// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/treaty-node/treaty/node/dataplane/csvimport"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataplane/source/postgres"
	"github.com/treaty-node/treaty/node/dataplane/source/sqlitefile"
	"github.com/treaty-node/treaty/node/dataplane/source/trino"
	"github.com/treaty-node/treaty/node/dataset"
)

// sources are all engines as one: each dataset is asked of the engine that its source's kind names.
type sources struct {
	files    Engine // CSV and Parquet
	postgres *postgres.Source
	sqlite   *sqlitefile.Source
	trino    *trino.Source
	path     func(string) string // of files that the configuration names

	mu sync.RWMutex
	of map[string]source.Source
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
	return &sources{
		files: files, postgres: postgres.New(l.bounds(), log), sqlite: lite, trino: trino.New(l.bounds(), log), path: path, of: map[string]source.Source{},
	}, nil
}

// Load makes a dataset known to its engine. The report has findings for CSV files only.
func (s *sources) Load(ctx context.Context, id string, d dataset.Dataset, dir string) (*csvimport.Report, error) {
	var engine source.Source
	var rep *source.Report
	var err error
	switch d.KindOf() {
	case dataset.CSVFiles, dataset.ParquetFiles:
		rep, err := s.files.Load(ctx, id, d, dir)
		if err != nil {
			return rep, err
		}
		s.set(id, s.files)
		return rep, nil
	case dataset.SQLite:
		engine = s.sqlite
		rep, err = s.sqlite.Load(ctx, id, d, dir)
	case dataset.Postgres, dataset.Trino:
		var pw, ca string
		if pw, err = password(d.Source, s.path); err != nil {
			return nil, fmt.Errorf("dataset %s: %w", id, err)
		}
		if d.Source.CA != "" {
			ca = s.path(d.Source.CA)
		}
		if d.KindOf() == dataset.Postgres {
			engine = s.postgres
			rep, err = s.postgres.Load(ctx, id, d, ca, pw)
		} else {
			engine = s.trino
			rep, err = s.trino.Load(ctx, id, d, ca, pw)
		}
	default:
		err = fmt.Errorf("unknown kind of source %q", d.KindOf())
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", id, err)
	}
	s.set(id, engine)
	return &csvimport.Report{Rows: rep.Rows}, nil
}

func (s *sources) set(id string, engine source.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[id] = engine
}

func (s *sources) get(id string) (source.Source, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	engine, ok := s.of[id]
	if !ok {
		return nil, source.ErrNoDataset
	}
	return engine, nil
}

func (s *sources) Lock(ctx context.Context) error { return s.files.Lock(ctx) }

func (s *sources) Close() error {
	return errors.Join(s.files.Close(), s.postgres.Close(), s.sqlite.Close(), s.trino.Close())
}

func (s *sources) Query(ctx context.Context, st source.Statement) (source.Rows, error) {
	engine, err := s.get(st.Dataset)
	if err != nil {
		return nil, err
	}
	return engine.Query(ctx, st)
}

func (s *sources) Table(id string) (source.Table, error) {
	engine, err := s.get(id)
	if err != nil {
		return source.Table{}, err
	}
	return engine.Table(id)
}

func (s *sources) Dialect(id string) (source.Dialect, error) {
	engine, err := s.get(id)
	if err != nil {
		return nil, err
	}
	return engine.Dialect(id)
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

// Inspect looks at a source that is no file of the engine's, without columns, for treaty-dataplane import. Relative paths are
// relative to dir.
func Inspect(ctx context.Context, d dataset.Dataset, dir string, path func(string) string) (*source.Report, error) {
	d.Columns = nil
	switch d.KindOf() {
	case dataset.SQLite:
		s, err := sqlitefile.New(source.Limits{}, nil)
		if err != nil {
			return nil, err
		}
		return s.Load(ctx, "", d, dir)
	case dataset.Postgres, dataset.Trino:
		pw, err := password(d.Source, path)
		if err != nil {
			return nil, err
		}
		ca := d.Source.CA
		if ca != "" {
			ca = path(ca)
		}
		if d.KindOf() == dataset.Trino {
			s := trino.New(source.Limits{}, nil)
			defer func() { _ = s.Close() }() // it holds idle connections only
			return s.Load(ctx, "", d, ca, pw)
		}
		s := postgres.New(source.Limits{}, nil)
		defer func() { _ = s.Close() }() // likewise
		return s.Load(ctx, "", d, ca, pw)
	}
	return nil, fmt.Errorf("a source of kind %s is no database", d.KindOf())
}
