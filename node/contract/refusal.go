// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"strconv"
	"strings"
)

// shownNames bounds how many names a refusal lists.
const shownNames = 20

// Refusal makes a decision that denies. With a contract, the text names it, what
// it grants and the purpose of record; c is nil unless the caller is its buyer.
// why is a bounded clause without a full stop. The text ends by saying that
// nothing was read or, for GroupTooSmall, that nothing was released.
func Refusal(code Code, c *Contract, why string) Decision {
	var b strings.Builder
	b.Grow(512)
	b.WriteString(why)
	b.WriteString(". ")
	if c != nil {
		b.WriteString("Contract ")
		b.WriteString(c.ID)
		b.WriteString(" grants ")
		b.WriteString(c.Grants())
		b.WriteString(". ")
	}
	if code == GroupTooSmall {
		b.WriteString("Nothing was released.")
	} else {
		b.WriteString("Nothing was read.")
	}
	return Decision{Code: code, Text: b.String()}
}

// Grants describes the scope in one bounded line: dataset, columns, operations,
// row filter, group size, retention and the purpose of record.
func (s *Scope) Grants() string {
	var b strings.Builder
	b.WriteString("on dataset " + Echo(s.Dataset))
	b.WriteString(" the columns " + listed(s.Columns, shownNames))
	b.WriteString(" with the operations " + strings.Join(s.Operations, ", "))
	if len(s.RowFilter) > 0 {
		b.WriteString(", limited to rows where " + s.RowFilter[0].String())
		if n := len(s.RowFilter) - 1; n > 0 {
			b.WriteString(" and " + strconv.Itoa(n) + " more conditions hold")
		}
	}
	if s.MinGroupSize > 1 {
		b.WriteString(", in groups of at least " + strconv.Itoa(s.MinGroupSize))
	}
	s.writeTerms(&b)
	b.WriteString("; purpose of record: " + quotePurpose(s.Purpose))
	return b.String()
}

// writeTerms describes what later versions add.
func (s *Scope) writeTerms(b *strings.Builder) {
	if n := len(s.ColumnGrants); n > 0 {
		b.WriteString(", with uses of their own for " + strconv.Itoa(n) + " of the columns")
	}
	if !s.Rows.IsZero() {
		b.WriteString(", and " + strconv.FormatInt(s.Rows.RowBudget, 10) + " rows of " + listed(s.Readable(), shownNames))
	}
	if !s.Rate.IsZero() {
		b.WriteString(", at most " + s.Rate.String())
	}
	if s.Noise != nil {
		b.WriteString(", with noise of epsilon " + s.Noise.EpsilonPerQuery + " per query and " + s.Noise.EpsilonTotal + " in all")
	}
}

// quotePurpose quotes without cutting: the purpose of record is bounded and
// printable since the contract was parsed.
func quotePurpose(s string) string { return strconv.Quote(s) }

// strangerRefusal tells a caller without a contract nothing but its own words.
// What the log should know is in the note.
func strangerRefusal(c *Contract, id, caller string) Decision {
	d := Refusal(NoContract, nil, "you have no contract "+Echo(id)+" here")
	switch {
	case c == nil:
		d.Note = "no such contract"
	case c.ID != id:
		d.Note = "the contract looked up is another one, " + c.ID
	case caller == c.Parties.Vendor:
		d.Note = "the caller is the vendor; only the buyer may query"
	default:
		d.Note = "the contract is somebody else's: its buyer is " + Echo(c.Parties.Buyer)
	}
	return d
}

// unknownText explains a name that is not published. A party is pointed to one
// that differs only by case, since names are compared exactly.
func unknownText(name string, s *Schema, party bool) string {
	text := "column " + Echo(name) + " is not in the published schema of dataset " + Echo(s.Dataset)
	if party && len(name) <= MaxName {
		for i := range s.Columns {
			if strings.EqualFold(s.Columns[i].Name, name) {
				return text + " (names are compared exactly; there is " + Echo(s.Columns[i].Name) + ")"
			}
		}
	}
	return text
}
