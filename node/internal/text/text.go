// SPDX-License-Identifier: Apache-2.0

// Package text bounds texts of others before they enter a log, a message or a report.
package text

import "strings"

// Clip returns s as valid UTF-8 of at most limit bytes. One that is cut ends with "…"; limit leaves room for that.
func Clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len("…")], "") + "…"
}
