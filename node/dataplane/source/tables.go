// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"database/sql"
	"sync"
)

// Loaded is a dataset as a source keeps it: what everybody may know of it, and what its own queries need.
type Loaded[T any] struct {
	Table
	Dialect Dialect
	Own     T
}

// Tables are the datasets that a source has loaded. A source embeds them for [Source.Table] and [Source.Dialect]. The zero value is
// ready, and safe for concurrent use.
type Tables[T any] struct {
	mu sync.RWMutex
	m  map[string]Loaded[T]
}

// Put adds or replaces a dataset.
func (t *Tables[T]) Put(id string, l Loaded[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = map[string]Loaded[T]{}
	}
	t.m[id] = l
}

// Get returns a dataset, and ErrNoDataset when there is none.
func (t *Tables[T]) Get(id string) (Loaded[T], error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l, ok := t.m[id]
	if !ok {
		return l, ErrNoDataset
	}
	return l, nil
}

// Table implements [Source].
func (t *Tables[T]) Table(id string) (Table, error) {
	l, err := t.Get(id)
	return l.Table, err
}

// Dialect implements [Source].
func (t *Tables[T]) Dialect(id string) (Dialect, error) {
	l, err := t.Get(id)
	return l.Dialect, err
}

// Clear forgets all datasets and returns what they had of their own.
func (t *Tables[T]) Clear() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := make([]T, 0, len(t.m))
	for _, l := range t.m {
		own = append(own, l.Own)
	}
	t.m = nil
	return own
}

// Within runs a query within the time limit. An error after the limit, or after ctx has ended, is the cause of that.
func (l Limits) Within(ctx context.Context, query func(context.Context) (Rows, error)) (Rows, error) {
	limited, cancel := context.WithTimeoutCause(ctx, l.Time, ErrTime)
	defer cancel()
	rows, err := query(limited)
	if err != nil && limited.Err() != nil {
		return nil, context.Cause(limited)
	}
	return rows, err
}

// Scan reads the row that rows stands at, of n columns, as the driver gives its cells.
func Scan(rows *sql.Rows, n int) ([]any, error) {
	cells, into := make([]any, n), make([]any, n)
	for i := range cells {
		into[i] = &cells[i]
	}
	return cells, rows.Scan(into...)
}
