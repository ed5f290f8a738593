// SPDX-License-Identifier: Apache-2.0

package canon_test

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
)

func TestDigestText(t *testing.T) {
	d := canon.Sum([]byte("abc"))
	const text = "sha-256:ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0" // FIPS 180-2 B.1
	if d.String() != text {
		t.Errorf("got %s", d)
	}
	back, err := canon.ParseDigest(text)
	if err != nil || !back.Equal(d) || back.IsZero() || !(canon.Digest{}).IsZero() || back.Equal(canon.Sum(nil)) {
		t.Errorf("round trip: %v, %v", back, err)
	}
	for name, bad := range map[string]string{
		"empty": "", "prefix alone": "sha-256:", "no prefix": text[8:], "other algorithm": strings.Replace(text, "256", "512", 1),
		"upper case prefix": strings.Replace(text, "sha", "SHA", 1), "padded": text + "=", "short": text[:len(text)-1], "long": text + "A",
		"standard alphabet": strings.Replace(text, "-pB", "+pB", 1), "trailing bits": text[:len(text)-1] + "1",
		"space": text[:20] + " " + text[21:], "line break": text[:20] + "\n" + text[21:], "line break added": text + "\n", "hex": "sha-256:" + strings.Repeat("a", 64),
	} {
		if _, err := canon.ParseDigest(bad); !errors.Is(err, canon.ErrDigest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHashSeparatesLabels(t *testing.T) {
	want := canon.Digest(sha256.Sum256([]byte("label\x00onetwo")))
	if got := canon.Hash("label", []byte("one"), []byte("two")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if canon.Hash("labe", []byte("lx")) == canon.Hash("label", []byte("x")) {
		t.Error("the label is not separated from the data")
	}
}

func TestDigestUnmarshalText(t *testing.T) {
	var d canon.Digest
	if err := d.UnmarshalText([]byte(canon.Sum(nil).String())); err != nil || d != canon.Sum(nil) {
		t.Errorf("%s, %v", d, err)
	}
	if err := d.UnmarshalText([]byte("sha-256:x")); !errors.Is(err, canon.ErrDigest) || d != canon.Sum(nil) {
		t.Errorf("%s, %v", d, err)
	}
}
