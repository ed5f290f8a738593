// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// Much of what verbs print was written by somebody else: refusals, offers, column names, the data itself. A terminal acts on
// some of it.

// plainWriter writes text without anything that a terminal would act on, or that would show something else than there is:
// control and formatting characters but line ends and tabs are written as \u and their number, which JSON takes for the same
// text, and bytes that are no UTF-8 as U+FFFD.
type plainWriter struct {
	out  io.Writer
	rest []byte // of a character that is not whole yet
}

func (w *plainWriter) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	var b bytes.Buffer
	for len(text) > 0 && (utf8.FullRune(text)) {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		if r == '\n' || r == '\t' || !acts(r) {
			b.WriteRune(r)
			continue
		}
		escape(&b, r)
	}
	w.rest = bytes.Clone(text)
	_, err := w.out.Write(b.Bytes())
	return len(p), err
}

// acts says whether r is a control or formatting character, or another that has no look of its own.
func acts(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}

func escape(b *bytes.Buffer, r rune) {
	const surrogate, low10 = 0x10000, 0x3ff
	if r >= surrogate {
		fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(r-surrogate)>>10, 0xdc00+(r-surrogate)&low10)
		return
	}
	fmt.Fprintf(b, `\u%04x`, r)
}

// line is somebody else's text for a place within a line: without line ends and tabs.
func line(s string) string {
	var b bytes.Buffer
	for _, r := range s {
		if acts(r) {
			escape(&b, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
