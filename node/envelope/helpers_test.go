// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	contextID = "AAECAwQFBgcICQoLDA0ODw"
	messageID = "EBESExQVFhcYGRobHB0eHw"
)

// party is a company with keys from a seed, so that files are stable.
type party struct {
	id     did.DID
	sign   did.PrivateKey
	kex    did.PrivateKey
	signer did.Signer
	kexID  string
	ring   *hpke.Keyring
}

func newParty(t testing.TB, name string) party {
	t.Helper()
	key := func(typ did.KeyType, role string) did.PrivateKey {
		seed := sha256.Sum256([]byte(name + " " + role))
		k, err := did.NewPrivateKey(typ, seed[:])
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	p := party{sign: key(did.Ed25519, "signing"), kex: key(did.X25519, "kex")}
	var err error
	if p.id, err = did.Parse("did:wba:" + name + ".example:agents:steward:e1_" + p.sign.Public().Thumbprint()); err != nil {
		t.Fatal(err)
	}
	if p.signer, err = did.NewSigner(did.KeyID(p.id, "signing", p.sign.Public()), p.sign); err != nil {
		t.Fatal(err)
	}
	p.kexID = did.KeyID(p.id, "kex", p.kex.Public())
	p.ring = hpke.NewKeyring(map[string]did.PrivateKey{p.kexID: p.kex})
	return p
}

func (p party) document(t testing.TB) *did.Document {
	t.Helper()
	raw, err := did.BuildDocument(did.DocumentSpec{
		ID: p.id, Binding: did.MethodSpec{Key: p.sign.Public()}, KeyAgreement: []did.MethodSpec{{Key: p.kex.Public()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := did.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func (p party) sealTo() *SealTo {
	return &SealTo{Suite: hpke.SuiteX25519, RecipientKID: p.kexID, Key: p.kex.Public()}
}

func (p party) openWith() OpenWith {
	return OpenWith{Suite: hpke.SuiteX25519, RecipientKID: p.kexID}
}

var agreement = canon.Sum([]byte("an agreement"))

const proposal = `{"intent":"propose","rationale":"Q3 report","scope":{"columns":["region","order_value"]}}`

func draft(from, to party) Draft {
	return Draft{
		Type: TypeNegotiation, To: to.id, ContextID: contextID, Seq: 3, MessageID: messageID,
		CreatedAt: start, Prev: FirstPrev(from.id, to.id, contextID), Agreement: agreement, Body: []byte(proposal),
	}
}

func roundDraft(from, to party) Draft {
	d := draft(from, to)
	d.Type, d.Seq, d.Agreement = TypeMetaproto, 1, canon.Digest{}
	d.Body = []byte(`{"action":"protocolNegotiation","candidateProtocols":"","modificationSummary":"","sequenceId":0,"status":"negotiating"}`)
	return d
}

func build1(t testing.TB, d Draft, from party, seal *SealTo) (*Envelope, Opened) {
	t.Helper()
	e, o, err := Build(t.Context(), d, from.signer, seal)
	if err != nil {
		t.Fatal(err)
	}
	return e, o
}

func expect(from, to party) Expect {
	return Expect{
		Self: to.id, Caller: from.id, KeyID: from.signer.KeyID(), Seq: 3, Prev: FirstPrev(from.id, to.id, contextID),
		Agreement: agreement, Now: start.Add(time.Second), Skew: 30 * time.Second,
	}
}

// payloadOf decodes an envelope for tampering.
func payloadOf(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	var jws struct{ Payload string }
	if err := json.Unmarshal(raw, &jws); err != nil {
		t.Fatal(err)
	}
	b, err := base64.RawURLEncoding.DecodeString(jws.Payload)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// signAny signs whatever it is given.
func signAny(t testing.TB, p party, payload []byte) []byte {
	t.Helper()
	raw, err := did.SignJWS(t.Context(), payload, TokenType, p.signer)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// resign changes the payload of an envelope and signs it anew.
func resign(t testing.TB, p party, raw []byte, change func(map[string]any)) []byte {
	t.Helper()
	m := payloadOf(t, raw)
	change(m)
	b, err := canon.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return signAny(t, p, b)
}
