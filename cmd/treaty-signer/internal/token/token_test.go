// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/signer/softhsmtest"
)

func pin(s string) func() (string, error) { return func() (string, error) { return s, nil } }

func openToken(t *testing.T) *Token {
	t.Helper()
	hsm := softhsmtest.New(t)
	k, err := Open(hsm.Module, softhsmtest.Label, pin(softhsmtest.PIN))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// TestToken_SignsEd25519: what the token signs verifies under the key that it names, for every size.
func TestToken_SignsEd25519(t *testing.T) {
	k := openToken(t)
	public, err := k.Generate(t.Context(), Ref{Label: "binding", ID: []byte{1, 2}})
	if err != nil || public.Type() != did.Ed25519 {
		t.Fatalf("%v, %v", public, err)
	}
	for _, ref := range []Ref{{Label: "binding"}, {ID: []byte{1, 2}}, {Label: "binding", ID: []byte{1, 2}}} {
		s, err := k.Signer(t.Context(), "did:wba:a.test#signing-x", ref)
		if err != nil || !s.PublicKey().Equal(public) || s.KeyID() != "did:wba:a.test#signing-x" {
			t.Fatalf("%s: %v", ref, err)
		}
		for _, size := range []int{1, 64, 1000, 1 << 20} {
			message := []byte(strings.Repeat("m", size))
			sig, err := s.Sign(t.Context(), message)
			if err != nil || public.Verify(message, sig) != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
		}
	}
	s, err := k.Signer(t.Context(), "", Ref{Label: "binding"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if sig, err := s.Sign(t.Context(), []byte("at once")); err != nil || public.Verify([]byte("at once"), sig) != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	<-k.turn // somebody else is signing
	if _, err := s.Sign(ctx, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	k.turn <- struct{}{}
}

// TestToken_BrokenSession: a session that the token ended is opened again, with the PIN read anew.
func TestToken_BrokenSession(t *testing.T) {
	k := openToken(t)
	public, err := k.Generate(t.Context(), Ref{Label: "binding"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.Signer(t.Context(), "", Ref{Label: "binding"})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	k.pin = func() (string, error) { asked++; return softhsmtest.PIN, nil }
	slot, err := k.slot()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := k.ctx.CloseAllSessions(slot); err != nil {
			t.Fatal(err)
		}
		if sig, err := s.Sign(t.Context(), []byte("again")); err != nil || public.Verify([]byte("again"), sig) != nil || asked != i+1 {
			t.Fatalf("%v after asking %d times", err, asked)
		}
	}
	// The PIN was changed behind our back: tried once, and never again.
	k.pin = func() (string, error) { asked++; return "not-the-pin-5519", nil }
	if err := k.ctx.CloseAllSessions(slot); err != nil {
		t.Fatal(err)
	}
	before := asked
	for range 3 {
		if _, err := s.Sign(t.Context(), []byte("x")); !errors.Is(err, ErrPIN) || strings.Contains(err.Error(), "5519") {
			t.Fatalf("wrong PIN: %v", err)
		}
	}
	if asked != before+1 {
		t.Fatalf("the PIN was tried %d times", asked-before)
	}
}

// TestToken_Refuses: what is missing, ambiguous, or could leave the token is refused, each with what to do.
func TestToken_Refuses(t *testing.T) {
	hsm := softhsmtest.New(t)
	for name, tc := range map[string]struct {
		module, label, pin string
		want               error
	}{
		"no library":  {hsm.Dir + "/none.so", softhsmtest.Label, softhsmtest.PIN, ErrModule},
		"no token":    {hsm.Module, "other", softhsmtest.PIN, ErrToken},
		"wrong PIN":   {hsm.Module, softhsmtest.Label, "wrong-pin-4711", ErrPIN},
		"no such PIN": {hsm.Module, softhsmtest.Label, "1", ErrPIN},
	} {
		k, err := Open(tc.module, tc.label, pin(tc.pin))
		if !errors.Is(err, tc.want) || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			k.Close()
		}
	}
	k, err := Open(hsm.Module, softhsmtest.Label, pin(softhsmtest.PIN))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if _, err := k.Signer(t.Context(), "", Ref{Label: "none"}); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "none") {
		t.Errorf("no key: %v", err)
	}
	if _, err := k.Generate(t.Context(), Ref{}); !errors.Is(err, ErrKey) {
		t.Errorf("no label: %v", err)
	}
	if _, err := k.Generate(t.Context(), Ref{Label: "one", ID: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Generate(t.Context(), Ref{Label: "one", ID: []byte{2}}); !errors.Is(err, ErrKey) {
		t.Errorf("label taken: %v", err)
	}
	if err := k.generate(Ref{Label: "one", ID: []byte{2}}); err != nil { // by another program, say
		t.Fatal(err)
	}
	if _, err := k.Signer(t.Context(), "", Ref{Label: "one"}); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "several") {
		t.Errorf("ambiguous: %v", err)
	}
	if _, err := k.Signer(t.Context(), "", Ref{Label: "one", ID: []byte{2}}); err != nil {
		t.Errorf("label and id: %v", err)
	}

	extractable(t, k, "loose")
	if _, err := k.Signer(t.Context(), "", Ref{Label: "loose"}); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "can be taken out") {
		t.Errorf("extractable: %v", err)
	}
	mismatched(t, k)
	if _, err := k.Signer(t.Context(), "", Ref{Label: "mixed"}); !errors.Is(err, ErrKey) {
		t.Errorf("the public key of another: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := k.Signer(t.Context(), "", Ref{Label: "one", ID: []byte{2}}); err == nil {
		t.Error("signs after it was closed")
	}
}

// pair makes a key pair with different labels.
func pair(t *testing.T, k *Token, public, private string, extractable bool) {
	t.Helper()
	_, _, err := k.ctx.GenerateKeyPair(k.session, []*pkcs11.Mechanism{pkcs11.NewMechanism(mechanismKeyPair, nil)},
		[]*pkcs11.Attribute{
			pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, curves[0]), pkcs11.NewAttribute(pkcs11.CKA_VERIFY, true),
			pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true), pkcs11.NewAttribute(pkcs11.CKA_LABEL, public),
		}, []*pkcs11.Attribute{
			pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true), pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, !extractable),
			pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, extractable), pkcs11.NewAttribute(pkcs11.CKA_SIGN, true),
			pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true), pkcs11.NewAttribute(pkcs11.CKA_LABEL, private),
		})
	if err != nil {
		t.Fatal(err)
	}
}

func extractable(t *testing.T, k *Token, label string) {
	t.Helper()
	pair(t, k, label, label, true)
}

// mismatched leaves a public and a private key of two pairs under one label.
func mismatched(t *testing.T, k *Token) {
	t.Helper()
	pair(t, k, "mixed", "a", false)
	pair(t, k, "b", "mixed", false)
}
