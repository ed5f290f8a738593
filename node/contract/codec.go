// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"fmt"
	"time"

	"github.com/treaty-node/treaty/did/canon"
)

// Decode reads canonicalizable JSON into v, refuses unknown, duplicate and
// case-variant members, and then encodes v again and demands the same canonical
// bytes. The comparison catches what a decoder lets pass: a missing member, a
// null where a value belongs, a form that the encoder would not write.
// Every error matches ErrInvalid.
func Decode(data []byte, v any) error {
	lim := canon.Limits{MaxBytes: maxDocument}
	in, err := canon.Canonicalize(data, lim)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := canon.Unmarshal(in, v, lim); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	out, err := canon.Marshal(v)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if !bytes.Equal(in, out) {
		return fmt.Errorf("%w: a member is missing, null or in another form than the schema's (near %s)", ErrInvalid, Echo(divergence(in, out)))
	}
	return nil
}

// divergence returns a piece of in where it first differs from out.
func divergence(in, out []byte) string {
	i := 0
	for i < len(in) && i < len(out) && in[i] == out[i] {
		i++
	}
	return string(in[max(0, i-24):min(len(in), i+24)])
}

const timeLayout = "2006-01-02T15:04:05Z"

// FormatTime writes t as RFC 3339 in UTC with whole seconds, the only form of a
// time in these documents.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// ParseTime reads the form that FormatTime writes and nothing else: no offset,
// no fraction, no lower case, no leap second.
func ParseTime(s string) (time.Time, error) {
	if len(s) != len(timeLayout) || s[len(s)-1] != 'Z' || s[10] != 'T' {
		return time.Time{}, invalid("time", "want RFC 3339 in UTC with whole seconds, such as 2025-07-01T00:00:00Z")
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, invalid("time", "not a time: "+Echo(s))
	}
	return t, nil
}
