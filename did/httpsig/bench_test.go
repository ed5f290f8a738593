// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

// The benchmarks run our operation and its floor in turn and report the median
// of both, the floor as floor_ns/op, and their quotient as ratio. What else the
// machine does strikes both alike, and a median forgets the calls that it
// interrupted.

func alternate(b *testing.B, ours, floor func(i int)) {
	b.Helper()
	times := [2][]time.Duration{make([]time.Duration, b.N), make([]time.Duration, b.N)}
	b.ResetTimer()
	for i := range b.N {
		for which, run := range [2]func(int){ours, floor} {
			start := time.Now()
			run(i)
			times[which][i] = time.Since(start)
		}
	}
	b.StopTimer()
	var median [2]float64
	for which := range times {
		slices.Sort(times[which])
		median[which] = float64(times[which][b.N/2].Nanoseconds())
	}
	b.ReportMetric(median[0], "ns/op")
	b.ReportMetric(median[1], "floor_ns/op")
	b.ReportMetric(median[0]/median[1], "ratio")
}

func benchRequest(b *testing.B, s *stage, body []byte) *http.Request {
	b.Helper()
	r := httptest.NewRequest("POST", "/orders/12345?expand=lines", bytes.NewReader(body))
	out, err := http.NewRequest("POST", s.origin+"/orders/12345?expand=lines", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header = out.Header
	if err := SignRequest(b.Context(), out, body, fixtureSigner(b, s.callerName, s.caller, "root"), SignOptions{Created: fixedTime}); err != nil {
		b.Fatal(err)
	}
	return r
}

// benchStage is a stage without the table test's closures.
func benchStage(b *testing.B, nonces NonceStore) *stage {
	b.Helper()
	ids := identities(b)
	s := &stage{docs: fixtureDocuments(b), callerName: "alice-wba", origin: "https://api.example", now: fixedTime.Add(time.Second)}
	s.caller = ids[s.callerName].DID
	var err error
	s.verifier, err = NewVerifier(Options{Origins: []string{s.origin}, Resolver: s.docs, Nonces: nonces, Now: at(s.now)})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// freshNonces lets one request be verified again and again: each use goes to
// the store under a nonce of its own.
type freshNonces struct {
	*MemoryNonces
	n int
}

func (f *freshNonces) Use(ctx context.Context, keyid, nonce string, expires time.Time) (bool, error) {
	f.n++
	return f.MemoryNonces.Use(ctx, keyid, fmt.Sprintf("%s%08d", nonce, f.n), expires)
}

func newBenchNonces(b *testing.B, live int) *freshNonces {
	b.Helper()
	f := &freshNonces{MemoryNonces: NewMemoryNonces(MemoryNonceOptions{Max: 1 << 30, Now: at(fixedTime)})}
	for i := range live {
		keyid := fmt.Sprintf("did:wba:caller-%d.example:agent:e1_b8XJsb3PGSZJ_VB9WMw3OkBvsxpN3I2BVKEpWVdgKcU#root", i%1000)
		if _, err := f.Use(b.Context(), keyid, "n", fixedTime.Add(time.Duration(60+i%300)*time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	return f
}

func benchmarkVerify(b *testing.B, live, size int) {
	nonces := newBenchNonces(b, live)
	s := benchStage(b, nonces)
	body := bytes.Repeat([]byte("x"), size)
	r := benchRequest(b, s, body)

	seed := sha256.Sum256([]byte("a key of the floor"))
	key := ed25519.NewKeyFromSeed(seed[:])
	public := key.Public().(ed25519.PublicKey)
	message := bytes.Repeat([]byte("m"), 400)
	sig := ed25519.Sign(key, message)

	b.ReportAllocs()
	alternate(b, func(int) {
		if _, err := s.verifier.Verify(context.Background(), r, body); err != nil {
			b.Fatal(err)
		}
	}, func(int) {
		sum := sha256.Sum256(body)
		if !ed25519.Verify(public, message, sig) || sum[0] == 0 && sum[1] == 0 && sum[2] == 0 && sum[3] == 0 {
			b.Fatal("floor")
		}
	})
}

// Floor: one Ed25519 verification and the SHA-256 of the content. Goal: 1.25.
func BenchmarkVerify(b *testing.B) {
	for _, live := range []int{0, 100_000} {
		for _, size := range []int{512, 64 << 10} {
			b.Run(fmt.Sprintf("live=%d/body=%d", live, size), func(b *testing.B) { benchmarkVerify(b, live, size) })
		}
	}
}

// Floor: one Ed25519 signature and the SHA-256 of the content. Goal: 1.3.
func BenchmarkSign(b *testing.B) {
	for _, size := range []int{512, 64 << 10} {
		b.Run(fmt.Sprintf("body=%d", size), func(b *testing.B) {
			s := benchStage(b, newBenchNonces(b, 0))
			body := bytes.Repeat([]byte("x"), size)
			r, err := http.NewRequest("POST", s.origin+"/orders/12345?expand=lines", nil)
			if err != nil {
				b.Fatal(err)
			}
			signer := fixtureSigner(b, s.callerName, s.caller, "root")
			seed := sha256.Sum256([]byte("a key of the floor"))
			key := ed25519.NewKeyFromSeed(seed[:])
			message := bytes.Repeat([]byte("m"), 400)
			b.ReportAllocs()
			alternate(b, func(int) {
				if err := SignRequest(context.Background(), r, body, signer, SignOptions{Created: fixedTime}); err != nil {
					b.Fatal(err)
				}
			}, func(int) {
				sum := sha256.Sum256(body)
				if sig := ed25519.Sign(key, message); sig[0] == 0 && sum[0] == 0 && sum[1] == 0 && sum[2] == 0 {
					b.Fatal("floor")
				}
			})
		})
	}
}

// The same for a k1_ caller, beside the raw verification by the did package.
func BenchmarkVerifyK1(b *testing.B) {
	s := benchStage(b, newBenchNonces(b, 100_000))
	binding, raw := k1Document(b)
	s.docs.byDID[binding.KeyID()[:len(binding.KeyID())-len("#binding")]] = parseDocument(b, raw)
	body := bytes.Repeat([]byte("x"), 512)
	r := httptest.NewRequest("POST", "/orders", nil)
	out, err := http.NewRequest("POST", s.origin+"/orders", nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := SignRequest(b.Context(), out, body, binding, SignOptions{Created: fixedTime}); err != nil {
		b.Fatal(err)
	}
	r.Header = out.Header
	message := bytes.Repeat([]byte("m"), 400)
	sig, err := binding.Sign(b.Context(), message)
	if err != nil {
		b.Fatal(err)
	}
	public := binding.PublicKey()
	b.ReportAllocs()
	alternate(b, func(int) {
		if _, err := s.verifier.Verify(context.Background(), r, body); err != nil {
			b.Fatal(err)
		}
	}, func(int) {
		sum := sha256.Sum256(body)
		if public.Verify(message, sig) != nil || sum[0] == 0 && sum[1] == 0 && sum[2] == 0 {
			b.Fatal("floor")
		}
	})
}

func BenchmarkNonces(b *testing.B) {
	for _, live := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			nonces := newBenchNonces(b, live)
			nonce := rand.Text()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := nonces.Use(context.Background(), "did:wba:a.example:agent:e1_b8XJsb3PGSZJ_VB9WMw3OkBvsxpN3I2BVKEpWVdgKcU#root", nonce, fixedTime.Add(150*time.Second)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
