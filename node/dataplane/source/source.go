// SPDX-License-Identifier: Apache-2.0

// Package source is the border between the data plane's decisions and the engine that holds the rows.
//
// A Statement carries SQL whose identifiers come from the published schema, and values only as arguments. An engine runs it
// and returns typed cells. What an engine says when it fails may quote rows and paths, so its words end here: implementations
// return an error of this package, and keep a description without values for the local log.
package source

import (
	"context"
	"errors"
	"time"

	"github.com/treaty-node/treaty/node/dataset"
)

var (
	// ErrEngine: the engine failed. Nothing about why crosses this border.
	ErrEngine = errors.New("source: the engine could not run the query")
	// ErrTime: the time limit for one query passed.
	ErrTime = errors.New("source: time limit exceeded")
	// ErrMemory: the memory limit was reached.
	ErrMemory = errors.New("source: memory limit exceeded")
	// ErrTooManyRows: the answer has more rows than the limit.
	ErrTooManyRows = errors.New("source: the answer has too many rows")
	// ErrRange: an exact number left the range of the engine's decimals.
	ErrRange = errors.New("source: a number is out of range")
	// ErrNoDataset: the dataset is not loaded.
	ErrNoDataset = errors.New("source: no such dataset")
)

// Statement is one query. Args are string, int64, float64 or bool, as [Dialect.Arg] gives them, one for each parameter.
type Statement struct {
	Dataset string
	SQL     string
	Args    []any
	Types   []dataset.Type // of the columns of its rows; a sum has [SumType]
	MaxRows int            // more rows are ErrTooManyRows
}

// Rows is a whole answer. Cells are nil, string, int64, *big.Int, [dataset.Decimal], float64, bool or time.Time.
type Rows [][]any

// Source runs statements over loaded datasets. Implementations are safe for concurrent use, never change data, and return
// promptly when ctx ends, with an error that matches context.Cause(ctx) or ErrTime.
type Source interface {
	Query(ctx context.Context, s Statement) (Rows, error)
	// Table returns a loaded dataset's row count, and ErrNoDataset when there is none.
	Table(dataset string) (Table, error)
	// Dialect returns what statements over a dataset are built with, and ErrNoDataset when there is none.
	Dialect(dataset string) (Dialect, error)
}

// Table describes a loaded dataset.
type Table struct {
	From    string                  // what names it in a statement: quoted identifiers
	Rows    int64                   // -1: not counted
	Columns map[string]dataset.Type // as loaded
}

// Limits bound the queries of a source. Zero fields take the defaults.
type Limits struct {
	Time       time.Duration // of one query; default 30 s
	Concurrent int           // queries at a time; default 4
	MaxBytes   int64         // of one answer's cells; default 32 MiB
}

// WithDefaults fills what is zero.
func (l Limits) WithDefaults() Limits {
	if l.Time <= 0 {
		l.Time = 30 * time.Second
	}
	if l.Concurrent <= 0 {
		l.Concurrent = 4
	}
	if l.MaxBytes <= 0 {
		l.MaxBytes = 32 << 20
	}
	return l
}

// Collector takes the rows of one answer within its limits.
type Collector struct {
	maxRows int
	left    int64
	rows    Rows
}

// Collect makes a collector for the answer to s.
func (l Limits) Collect(s Statement) *Collector {
	return &Collector{maxRows: s.MaxRows, left: l.MaxBytes}
}

// Add takes a row, or returns ErrTooManyRows, ErrMemory, or ErrRange for an instant outside of the years 0 to 9999, which
// contracts cannot write.
func (c *Collector) Add(cells []any) error {
	if len(c.rows) >= c.maxRows {
		return ErrTooManyRows
	}
	for _, v := range cells {
		c.left -= 16
		switch x := v.(type) {
		case string:
			c.left -= int64(len(x))
		case time.Time:
			if y := x.UTC().Year(); y < 0 || y > 9999 {
				return ErrRange
			}
		}
	}
	if c.left < 0 {
		return ErrMemory
	}
	c.rows = append(c.rows, cells)
	return nil
}

// Rows are the rows that were taken.
func (c *Collector) Rows() Rows { return c.rows }
