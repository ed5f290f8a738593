// SPDX-License-Identifier: Apache-2.0

package canon_test

import (
	"crypto/sha256"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/testvectors"
)

// benchDocument returns a DID document of several kilobytes, as indented by its publisher.
func benchDocument(b *testing.B) []byte {
	b.Helper()
	data, err := testvectors.Read("anp-authentication/identities.json")
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func BenchmarkCanonicalize(b *testing.B) {
	spaced := benchDocument(b)
	canonical, err := canon.Canonicalize(spaced, canon.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, data []byte, f func([]byte) ([]byte, error)) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	ours := func(data []byte) ([]byte, error) { return canon.Canonicalize(data, canon.Limits{}) }
	run("canonical", canonical, ours)
	run("spaced", spaced, ours)
	run("check", canonical, func(data []byte) ([]byte, error) { return nil, canon.Check(data, canon.Limits{}) })
	run("floor-sha256", canonical, func(data []byte) ([]byte, error) { sha256.Sum256(data); return nil, nil })
	run("oracle-jcs", canonical, jcs.Transform)
}
