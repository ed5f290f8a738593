// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"fmt"
	"strings"
)

// Markdown renders a report for people. What the other side wrote is shown in code spans, without control characters.
func (r *Report) Markdown() string {
	var b strings.Builder
	verdict := "every promise that was looked at held"
	if !r.Passed() {
		verdict = fmt.Sprintf("%d of %d promises BROKEN", r.Broken, len(r.Checks))
	}
	fmt.Fprintf(&b, "# Drill %s: %s, %s\n\n**%s**: %d held, %d broken, %d not checked.\n\n", code(r.ID), r.Terms.Kind, r.Terms.Mode, verdict, r.Held, r.Broken, r.NotChecked)
	digest, err := r.Digest()
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n| subject | %s |\n| identity | %s |\n", code(r.Subject), code(r.Identity))
	if r.Successor != "" {
		fmt.Fprintf(&b, "| moved to | %s |\n", code(r.Successor))
	}
	fmt.Fprintf(&b, "| counterparty | %s |\n| grace of the drill's messages | %d s |\n", code(r.Counterparty), r.GraceSeconds)
	if r.Contract != "" {
		fmt.Fprintf(&b, "| contract | %s, queries by the %s |\n", code(r.Contract), r.Terms.Buyer)
	}
	if err == nil {
		fmt.Fprintf(&b, "| digest | %s, %d signatures |\n", code(digest.String()), len(r.Proofs))
	}
	fmt.Fprintf(&b, "\n%s\n\n## Promises\n\n| phase | seen by | promise | result | observed |\n| --- | --- | --- | --- | --- |\n", r.Proves)
	for _, c := range r.Checks {
		result := string(c.Result)
		if c.Result == Broken {
			result = "**BROKEN**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.Phase, c.Side, Text(c.Name), result, code(c.Observed))
	}
	if l := r.Load; l != nil {
		fmt.Fprintf(&b, "\n## Load\n\n%d queries a second; %d in all, %d repeated, **lost: %d**\n\n| phase | queries | p50 | p99 | max |\n| --- | ---: | ---: | ---: | ---: |\n", l.PerSecond, l.Requests, l.Repeated, l.Lost)
		for _, x := range l.Latencies {
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s |\n", x.Phase, x.Count, millis(x.P50), millis(x.P99), millis(x.Max))
		}
	}
	b.WriteString("\n## Timeline\n\n| at | side | what |\n| --- | --- | --- |\n")
	for _, m := range r.Timeline {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", code(m.At), m.Side, code(m.What))
	}
	return b.String()
}

func millis(us int64) string { return fmt.Sprintf("%.1f ms", float64(us)/1000) }

// code is s as a code span in a table cell.
func code(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '`' || r == '|':
			return '\''
		case r < ' ' || r == 0x7f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r >= 0x80 && r < 0xa0:
			return '?'
		}
		return r
	}, s)
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
