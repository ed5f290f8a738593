// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

// ErrSchema: a source does not have what is configured, or has it in a type that no contract knows.
var ErrSchema = errors.New("source: schema")

// Found is a column as a source has it.
type Found struct {
	Name   string
	Native string       // the source's name for its type
	Type   dataset.Type // zero when there is none
	Advice string       // what to do about a column without a type
}

// Report is what a look at a source found, for treaty-dataplane import.
type Report struct {
	Kind    string
	Files   int   // of sources that have files
	Rows    int64 // -1: not counted
	Columns []Found
}

// maxEcho bounds a source's own words in a message.
const maxEcho = 80

// Fit checks the configured columns against those of a source. Every name and type must be exactly what is there: a column
// that differs by case, white space or a look-alike letter is another one.
func Fit(d dataset.Dataset, found []Found) (map[string]dataset.Type, error) {
	byName := map[string]Found{}
	for _, f := range found {
		byName[f.Name] = f
	}
	types := map[string]dataset.Type{}
	for _, name := range slices.Sorted(maps.Keys(d.Columns)) {
		want, err := dataset.ParseType(d.Columns[name].Type)
		if err != nil {
			return nil, fmt.Errorf("%w: column %s: %w", ErrSchema, contract.Echo(name), err)
		}
		f, ok := byName[name]
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: there is no column %s%s", ErrSchema, contract.Echo(name), similar(name, found))
		case f.Type == dataset.Type{}:
			return nil, fmt.Errorf("%w: column %s has type %s: %s", ErrSchema, contract.Echo(name), contract.Echo(short(f.Native)), f.Advice)
		case f.Type != want:
			return nil, fmt.Errorf("%w: column %s is configured as %s and is %s in the source (%s)", ErrSchema, contract.Echo(name),
				dataset.TypeName(want), dataset.TypeName(f.Type), contract.Echo(short(f.Native)))
		}
		types[name] = want
	}
	return types, nil
}

func short(s string) string {
	if len(s) > maxEcho {
		return s[:maxEcho]
	}
	return s
}

// similar names a column that was probably meant.
func similar(name string, found []Found) string {
	fold := func(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), "")) }
	for _, f := range found {
		if fold(f.Name) == fold(name) {
			return fmt.Sprintf("; there is %s, which differs by case or white space", contract.Echo(f.Name))
		}
	}
	return ""
}

// Advice for columns that no contract can have.
const (
	AdviceText    = "leave the column out, or make a view that writes it as text"
	AdviceDecimal = "leave the column out, or make a view that casts it to decimal(p,s) with p up to 38"
	AdviceTime    = "leave the column out, or make a view that casts it to a timestamp with microseconds"
)
