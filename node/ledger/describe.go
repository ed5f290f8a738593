// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/treaty-node/treaty/did/canon"
)

// Bounds of what one line shows.
const (
	maxShown    = 240  // runes of one text
	maxSentence = 1000 // runes of a refusal, which is to be read in full
	maxItems    = 12   // items of one list
)

// Describe says e in one readable line, without time and sequence number.
//
// Much in an event was written by the other party. Such text is shown bare only when it consists of letters, digits, spaces
// and a few harmless marks; anything else is quoted with control and formatting characters escaped, and everything is cut
// to a bounded length: it cannot start a line of its own, move the cursor, or look like words of this node.
func Describe(e Event) string {
	b := &line{}
	d, ok := e.decode()
	if !ok {
		b.put(text(e.Type), ": ", strconv.Itoa(len(e.Data)), " bytes of data that this version does not know")
		return b.String()
	}
	d.line(b, &e)
	return b.String()
}

// line collects one description.
type line struct{ strings.Builder }

func (b *line) put(parts ...string) {
	for _, p := range parts {
		b.WriteString(p)
	}
}

// when writes the parts when cond holds.
func (b *line) when(cond bool, parts ...string) {
	if cond {
		b.put(parts...)
	}
}

// text is s, bare if it is harmless, quoted if not, bounded in any case.
func text(s string) string {
	if s == "" {
		return `""`
	}
	short, cut := clip(s, maxShown)
	for _, r := range short {
		if !plain(r) {
			return quote(short, cut)
		}
	}
	if short[0] == ' ' || strings.HasSuffix(short, " ") {
		return quote(short, cut)
	}
	if cut {
		short += "…"
	}
	return short
}

// quoted is s in quotes, always: for what the other party says.
func quoted(s string) string { return quote(clip(s, maxShown)) }

// sentence is a refusal's text.
func sentence(s string) string { return quote(clip(s, maxSentence)) }

// quote escapes as strconv.Quote does and puts the marks “ and ” around, so that quotes inside, which refusals are full of,
// stay readable. The two marks themselves are escaped: a text cannot close its own quotation.
func quote(s string, cut bool) string {
	inner := strconv.Quote(s)
	inner = marks.Replace(inner[1 : len(inner)-1])
	if cut {
		inner += "…"
	}
	return "“" + inner + "”"
}

var marks = strings.NewReplacer(`\\`, `\\`, `\"`, `"`, "“", `\u201c`, "”", `\u201d`)

// plain leaves out what structures a line: commas, parentheses, quotes, semicolons. strconv.Quote escapes what cannot be
// seen, and the letters here are the visible ones.
func plain(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.:/#@+%*<>=", r)
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '…'
}

func clip(s string, n int) (string, bool) {
	for i := range s {
		if n--; n < 0 {
			return s[:i], true
		}
	}
	return s, false
}

// call is text that may have the one pair of parentheses of an aggregate, avg(order_value).
func call(s string) string {
	if name, rest, ok := strings.Cut(s, "("); ok {
		if arg, ok := strings.CutSuffix(rest, ")"); ok && text(name) == name && (arg == "" || text(arg) == arg) {
			return s
		}
	}
	return text(s)
}

// list joins items; sep is "; " where items may hold commas of their own.
func list(items []string, sep string, show func(string) string) string {
	if len(items) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, s := range items {
		if i == maxItems {
			fmt.Fprintf(&b, " and %d more", len(items)-i)
			break
		}
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(show(s))
	}
	return b.String()
}

// short is enough of a digest to recognise it by.
func short(d canon.Digest) string {
	if s := d.String(); len(s) > 20 {
		return s[:20] + "…"
	}
	return d.String()
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

func days(n int) string  { return plural(int64(n), "day", "days") }
func num(n int64) string { return strconv.FormatInt(n, 10) }

// party is a DID that was named in full before: its fingerprint is cut to what it is recognised by.
func party(id string) string {
	i := strings.LastIndexByte(id, ':')
	if i < 0 || len(id)-i <= 20 {
		return text(id)
	}
	return text(id[:i+12] + "…")
}

// refusal is a refusal's text, which begins with its code; a text that does not gets it in front.
func refusal(code, words string) string {
	if strings.HasPrefix(words, code+":") {
		return sentence(words)
	}
	return text(code) + ": " + sentence(words)
}

// fragment is the part of a key id after the DID that was just named.
func fragment(keyid string) string {
	if i := strings.LastIndexByte(keyid, '#'); i >= 0 {
		return text(keyid[i:])
	}
	return text(keyid)
}
