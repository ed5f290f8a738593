// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// row is one line of the table. A note says why the expected result is not what one would
// wish for.
type row struct{ direction, profile, feature, want, got, note string }

// table is what one test has seen. In the documentation it stands between two marks that carry
// its name.
type table struct {
	name  string
	peers map[string]string // direction → the other side and its version
	rows  []row
}

func (w *table) row(direction, profile, feature, want, got, note string) {
	w.rows = append(w.rows, row{direction, profile, feature, want, got, note})
}

const document = "../../docs/interop.md"

// report prints every row, fails on those that are not as expected, and compares the
// documentation with what was seen.
func (w *table) report(t *testing.T, least int) {
	begin := "<!-- " + w.name + " table: begin (make test-interop ARGS=-update writes it) -->\n"
	end := "<!-- " + w.name + " table: end -->\n"
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(out, "\nPEER\tDIRECTION\tPROFILE\tFEATURE\tRESULT\t\n")
	failed := 0
	for _, r := range w.rows {
		verdict := "as expected"
		if r.note != "" {
			verdict = "known"
		}
		if r.got != r.want {
			verdict = "FAILED, want " + r.want
			failed++
			t.Errorf("%s, %s, %s:\n got %s\nwant %s", r.direction, r.profile, r.feature, r.got, r.want)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", w.peers[r.direction], r.direction, r.profile, r.feature, r.got, verdict)
	}
	out.Flush()
	fmt.Printf("\n%d rows, %d not as expected\n", len(w.rows), failed)
	for i, n := range w.notes() {
		if i == 0 {
			fmt.Println("\nKnown:")
		}
		fmt.Println(" -", n)
	}
	if len(w.rows) < least {
		t.Errorf("only %d rows ran", len(w.rows))
	}
	if failed > 0 {
		return
	}
	old, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", document)
	}
	current := head + begin + w.markdown() + end + tail
	if *update {
		if err := os.WriteFile(document, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if current != string(old) {
		t.Errorf("%s does not say what was seen: run make test-interop ARGS=-update", document)
	}
}

func (w *table) notes() (notes []string) {
	for _, r := range w.rows {
		if r.note != "" && !slices.Contains(notes, r.note) {
			notes = append(notes, r.note)
		}
	}
	return notes
}

// markdown is one table for each direction, features by profiles. A cell is "yes", or the
// number of a note.
func (w *table) markdown() string {
	var b strings.Builder
	notes := w.notes()
	var directions []string
	for _, r := range w.rows {
		if !slices.Contains(directions, r.direction) {
			directions = append(directions, r.direction)
		}
	}
	for _, direction := range directions {
		var profiles, features []string
		cells := map[[2]string]string{}
		for _, r := range w.rows {
			if r.direction != direction {
				continue
			}
			if !slices.Contains(profiles, r.profile) {
				profiles = append(profiles, r.profile)
			}
			if !slices.Contains(features, r.feature) {
				features = append(features, r.feature)
			}
			cell := "yes"
			if r.note != "" {
				cell = fmt.Sprintf("[%d]", slices.Index(notes, r.note)+1)
			}
			cells[[2]string{r.feature, r.profile}] = cell
		}
		fmt.Fprintf(&b, "\n**%s** (%s)\n\n| | %s |\n|---|%s\n", direction, w.peers[direction], strings.Join(profiles, " | "), strings.Repeat("---|", len(profiles)))
		for _, feature := range features {
			fmt.Fprintf(&b, "| %s |", feature)
			for _, profile := range profiles {
				fmt.Fprintf(&b, " %s |", cells[[2]string{feature, profile}])
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\n")
	for i, note := range notes {
		fmt.Fprintf(&b, "%d. %s\n", i+1, note)
	}
	return b.String()
}
