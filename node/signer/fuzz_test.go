// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"errors"
	"testing"

	"github.com/treaty-node/treaty/did/canon"
)

const seedKID = "did:wba:a.test:e1_x#signing-x"

// FuzzSignRequest: whatever is accepted is within its bounds and has one spelling.
func FuzzSignRequest(f *testing.F) {
	for _, s := range []string{
		`{"kid":"did:wba:a.test#signing-x","message":"AAAA"}`, `{"kid":"k","message":"AA=="}`, `{"message":"AAAA","kid":"k"}`, `{}`, `[]`, `{"kid":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kid, message, err := parseSign(data)
		if err != nil {
			if !errors.Is(err, ErrProtocol) || kid != "" || message != nil {
				t.Fatalf("%q %x %v", kid, message, err)
			}
			return
		}
		if kid == "" || len(kid) > maxKID || len(message) == 0 || len(message) > MaxMessage {
			t.Fatalf("accepted %q with %d bytes", kid, len(message))
		}
		again, err := canon.Marshal(signJSON{kid, b64.EncodeToString(message)})
		if err != nil {
			t.Fatal(err)
		}
		kid2, message2, err := parseSign(again)
		if err != nil || kid2 != kid || !bytes.Equal(message2, message) {
			t.Fatalf("%q %v", again, err)
		}
	})
}

// FuzzAnswers: a signer's answers never break the client.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"keys":[]}`, `{"keys":[{"kid":"did:wba:a.test#signing-x","role":"signing","type":"Ed25519","publicKey":"AAAA"}]}`,
		`{"signature":"AAAA"}`, `{"code":"form","message":"no"}`, `{"code":"","message":""}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if keys, err := parseKeys(data); err == nil {
			for _, k := range keys {
				if checkKID(k.KID, k.Role, k.Public) != nil {
					t.Fatalf("accepted %+v", k)
				}
			}
		}
		if _, err := parseSigned(data); err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatal(err)
		}
		if parseError(data) == nil {
			t.Fatal("an error that is none")
		}
	})
}

// FuzzForm: a message has at most one form, and another key is never named by it.
func FuzzForm(f *testing.F) {
	for _, s := range []string{
		"\"@method\": GET\n\"@signature-params\": (\"@method\");keyid=\"" + seedKID + "\"",
		b64.EncodeToString([]byte(`{"alg":"EdDSA","kid":"`+seedKID+`"}`)) + ".e30", "text", "",
	} {
		f.Add([]byte(s))
	}
	f.Add(make([]byte, objectBytes))
	f.Fuzz(func(t *testing.T, message []byte) {
		form, err := FormOf(seedKID, message)
		if err != nil {
			if !errors.Is(err, ErrForm) {
				t.Fatal(err)
			}
			return
		}
		if _, err := FormOf(seedKID+"x", message); form != FormObject && err == nil {
			t.Fatalf("%q is signed by two keys", message)
		}
	})
}

// FuzzConfig: the configuration's parser.
func FuzzConfig(f *testing.F) {
	f.Add([]byte("module: m\ntoken: t\npin: {file: pin}\nkeys:\n- {kid: 'did:wba:a.test#signing-x', role: signing, label: l}\n"))
	f.Add([]byte("module: m\npin: 1234\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig(data)
		if err == nil && (c.Module == "" || c.Token == "" || c.Socket == "" || len(c.Keys) > MaxKeys || (c.PIN.File == "") == (c.PIN.Credential == "")) {
			t.Fatalf("accepted %+v", c)
		}
	})
}
