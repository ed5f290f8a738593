// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden is one message of a conversation, with all that another implementation
// needs to check it.
type golden struct {
	Comment      string          `json:"comment"`
	Envelope     json.RawMessage `json:"envelope"`
	Digest       canon.Digest    `json:"digest"`
	SignerKeyHex string          `json:"signerPublicKeyHex"`
	AAD          string          `json:"aad,omitempty"`
	InfoHex      string          `json:"infoHex,omitempty"`
	RecipientHex string          `json:"recipientPrivateKeyHex,omitempty"`
	Salt         Salt            `json:"salt"`
	Body         json.RawMessage `json:"body"`
}

// Salts and encapsulated keys are random, so the file is not built again but
// read back: every byte of it is derived from its content a second time.
func TestGoldenConversation(t *testing.T) {
	buyer, vendor := newParty(t, "buyer"), newParty(t, "vendor")
	path := filepath.Join("testdata", "conversation.json")
	if *update {
		writeGolden(t, path, buyer, vendor)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []golden
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 4 {
		t.Fatalf("%d messages", len(list))
	}
	prev := FirstPrev(buyer.id, vendor.id, contextID)
	for i, g := range list {
		from, to := buyer, vendor
		if i%2 == 1 {
			from, to = vendor, buyer
		}
		e, err := Parse(g.Envelope, 0)
		if err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
		if err := e.VerifyWith(from.document(t), start); err != nil {
			t.Fatal(err)
		}
		x := Expect{Self: to.id, Caller: from.id, Seq: int64(i + 1), Prev: prev, Agreement: agreement, Now: start}
		if err := e.Check(x); err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
		o, err := Open(t.Context(), e, to.ring, to.openWith())
		if err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
		body, err := canon.Canonicalize(g.Body, canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(o.Body, body) || o.Salt != g.Salt || !e.Digest().Equal(g.Digest) {
			t.Fatalf("message %d: another content or digest", i+1)
		}
		if e.Sealed != nil {
			aad, err := e.aad()
			if err != nil || string(aad) != g.AAD {
				t.Fatalf("message %d: aad %s", i+1, aad)
			}
			if info := hex.EncodeToString(e.sealContext(e.KeyID(), to.kexID).Info()); info != g.InfoHex {
				t.Fatalf("message %d: info %s", i+1, info)
			}
		}
		// Signing what was parsed gives the file's bytes again.
		payload, err := canon.Marshal(payload{Header: e.Header, Body: e.Body, Sealed: e.Sealed})
		if err != nil {
			t.Fatal(err)
		}
		again, err := did.SignJWS(t.Context(), payload, TokenType, from.signer)
		if err != nil {
			t.Fatal(err)
		}
		want, err := canon.Canonicalize(g.Envelope, canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, want) {
			t.Fatalf("message %d does not come out as it went in", i+1)
		}
		prev = e.Digest()
	}
}

func writeGolden(t *testing.T, path string, buyer, vendor party) {
	t.Helper()
	var list []golden
	prev := FirstPrev(buyer.id, vendor.id, contextID)
	for i, m := range []struct {
		comment string
		typ     Type
		body    string
	}{
		{"a round, in the clear", TypeMetaproto, string(roundDraft(buyer, vendor).Body)},
		{"a refusal, in the clear", TypeNotice, `{"code":"UNAVAILABLE"}`},
		{"a proposal, sealed", TypeNegotiation, proposal},
		{"an answer, sealed", TypeContract, `{"step":"draft"}`},
	} {
		from, to := buyer, vendor
		if i%2 == 1 {
			from, to = vendor, buyer
		}
		d := draft(from, to)
		d.Type, d.Body, d.Seq, d.Prev, d.MessageID = m.typ, []byte(m.body), int64(i+1), prev, ""
		var seal *SealTo
		if i < 2 {
			d.Agreement = canon.Digest{}
		} else {
			seal = &SealTo{Suite: hpke.SuiteX25519, RecipientKID: to.kexID, Key: to.kex.Public()}
		}
		e, o := build1(t, d, from, seal)
		g := golden{
			Comment: m.comment, Envelope: e.Raw(), Digest: e.Digest(),
			SignerKeyHex: hex.EncodeToString(from.sign.Public().Bytes()), Salt: o.Salt, Body: o.Body,
		}
		if seal != nil {
			aad, err := e.aad()
			if err != nil {
				t.Fatal(err)
			}
			g.AAD = string(aad)
			g.InfoHex = hex.EncodeToString(e.sealContext(e.KeyID(), to.kexID).Info())
			g.RecipientHex = hex.EncodeToString(to.kex.Seed())
		}
		list, prev = append(list, g), e.Digest()
	}
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}
