// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/negotiation/message"
)

// Two DIDs of one subject, and one of another.
const (
	oldDID   = "did:wba:buyercorp.test:agents:steward:e1_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	newDID   = "did:wba:buyercorp.test:agents:steward:e1_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA"
	otherDID = "did:wba:buyercorp.test:agents:clerk:e1_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA"
)

func moved() message.Moved {
	return message.Moved{
		Type: message.MovedType, Old: oldDID, Document: canon.Sum([]byte("document")), KeyAgreementKID: newDID + "#kex-1",
		Carries: message.CarriesNegotiation, Body: json.RawMessage(`{"intent":"withdraw"}`),
	}
}

func id(tb testing.TB, text string) did.DID {
	tb.Helper()
	d, err := did.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestMoved(t *testing.T) {
	from, good := id(t, newDID), moved()
	raw, err := good.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	m, err := message.ParseMoved(raw, from)
	if err != nil || m.Old != oldDID || string(m.Body) != string(good.Body) {
		t.Fatalf("%+v, %v", m, err)
	}
	for name, change := range map[string]func(*message.Moved){
		"another type":        func(m *message.Moved) { m.Type = "TreatyNotice" },
		"no DID":              func(m *message.Moved) { m.Old = "BuyerCorp" },
		"not moved":           func(m *message.Moved) { m.Old = newDID },
		"from a bare domain":  func(m *message.Moved) { m.Old = buyerDID },
		"of another subject":  func(m *message.Moved) { m.Old = otherDID },
		"of another company":  func(m *message.Moved) { m.Old = strings.Replace(oldDID, "buyercorp", "vendorcorp", 1) },
		"no document":         func(m *message.Moved) { m.Document = canon.Digest{} },
		"the old one's key":   func(m *message.Moved) { m.KeyAgreementKID = oldDID + "#kex-1" },
		"a key of nobody":     func(m *message.Moved) { m.KeyAgreementKID = "#kex-1" },
		"a notice":            func(m *message.Moved) { m.Carries = "notice" },
		"a move in a move":    func(m *message.Moved) { m.Carries = "moved" },
		"carries nothing":     func(m *message.Moved) { m.Body = nil },
		"carries no object":   func(m *message.Moved) { m.Body = json.RawMessage(`["x"]`) },
		"carries only a text": func(m *message.Moved) { m.Body = json.RawMessage(`"{}"`) },
	} {
		bad := moved()
		change(&bad)
		if _, err := bad.Marshal(from); !errors.Is(err, message.ErrBody) {
			t.Errorf("%s: written with %v", name, err)
		}
		text, err := json.Marshal(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := message.ParseMoved(text, from); !errors.Is(err, message.ErrBody) {
			t.Errorf("%s: read with %v", name, err)
		}
	}
	deep := []byte(strings.Repeat(`{"body":`, 10_000) + "1" + strings.Repeat("}", 10_000))
	for _, data := range [][]byte{nil, []byte("null"), []byte("[]"), deep, make([]byte, 10<<20), bytes.Replace(raw, []byte(`"old"`), []byte(`"Old"`), 1)} {
		if _, err := message.ParseMoved(data, from); !errors.Is(err, message.ErrBody) {
			t.Errorf("%.20q: %v", data, err)
		}
	}
}

// FuzzParseMoved: what is accepted is of a sender that can be the successor, and encodes to the canonical form of the input.
func FuzzParseMoved(f *testing.F) {
	from, good := id(f, newDID), moved()
	raw, err := good.Marshal(from)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(bytes.Replace(raw, []byte("negotiation"), []byte("contract"), 1))
	f.Add(bytes.Replace(raw, []byte(oldDID), []byte(otherDID), 1))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := message.ParseMoved(data, from)
		if err != nil {
			if !errors.Is(err, message.ErrBody) {
				t.Fatal(err)
			}
			return
		}
		if old := id(t, m.Old); old == from || !did.SameSubject(old, from) {
			t.Fatalf("from %s", m.Old)
		}
		out, err := m.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		if in, err := canon.Canonicalize(data, canon.Limits{}); err != nil || !bytes.Equal(in, out) {
			t.Fatalf("%v\n in %s\nout %s", err, in, out)
		}
	})
}
