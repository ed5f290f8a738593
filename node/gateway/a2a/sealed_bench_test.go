// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/wellknown"
)

// end is one side of an exchange of sealed envelopes.
type end struct {
	party
	kid  string
	kex  did.PrivateKey
	ring *hpke.Keyring
}

func newEnd(p party, kind did.KeyType) end {
	e := end{party: p, kex: must(did.GenerateKey(kind))}
	e.kid = did.KeyID(p.id, "kex", e.kex.Public())
	e.ring = hpke.NewKeyring(map[string]did.PrivateKey{e.kid: e.kex})
	return e
}

// BenchmarkA2ASealed is a message there and one back: signed, sealed, sent over TLS on loopback in a signed request, verified, opened and
// answered likewise. Measured in turn with it: the same bytes over the bare library, and the cryptography that nobody can leave
// out (of each envelope: to sign, verify, seal, open, two digests; of the request: to sign, verify, one digest on either side). The
// floor is what the goal allows: the bare cost and 1.25 times that. Medians are reported.
func BenchmarkA2ASealed(b *testing.B) {
	for _, c := range []struct {
		name  string
		suite hpke.Suite
		kind  did.KeyType
	}{{"x25519", hpke.SuiteX25519, did.X25519}, {"xwing", hpke.SuiteXWing, did.XWing}} {
		b.Run(c.name, func(b *testing.B) { benchSealed(b, c.suite, c.kind) })
	}
}

func benchSealed(b *testing.B, suite hpke.Suite, kind did.KeyType) {
	ctx := context.Background()
	asker, answerer := newEnd(buyer, kind), newEnd(vendor, kind)
	contextID := envelope.NewID()
	agreement := canon.Sum([]byte("agreement"))
	body := []byte(`{"rationale":"` + string(bytes.Repeat([]byte("x"), 2000)) + `"}`)
	build := func(from, to end, seq int64, prev canon.Digest) *envelope.Envelope {
		d := envelope.Draft{Type: envelope.TypeNegotiation, To: to.id, ContextID: contextID, Seq: seq, CreatedAt: time.Now(), Prev: prev, Agreement: agreement, Body: body}
		e, _, err := envelope.Build(ctx, d, from.signer, &envelope.SealTo{Suite: suite, RecipientKID: to.kid, Key: to.kex.Public()})
		if err != nil {
			b.Fatal(err)
		}
		return e
	}
	take := func(raw []byte, from, to end, seq int64, prev canon.Digest) *envelope.Envelope {
		e, err := envelope.Parse(raw, 0)
		if err == nil {
			err = e.VerifyWith(from.doc, time.Now())
		}
		if err == nil {
			err = e.Check(envelope.Expect{Self: to.id, Caller: from.id, KeyID: from.signer.KeyID(), Seq: seq, Prev: prev, Agreement: agreement, Now: time.Now(), Skew: time.Minute})
		}
		if err == nil {
			_, err = envelope.Open(ctx, e, to.ring, envelope.OpenWith{Suite: suite, RecipientKID: to.kid})
		}
		if err != nil {
			b.Fatal(err)
		}
		return e
	}

	s := newBench(b, func(c *Config) { c.Now = time.Now })
	first := envelope.FirstPrev(buyer.id, vendor.id, contextID)
	var reply []byte
	s.answer = func(_ did.DID, raw []byte) (Reply, error) {
		s.received = nil
		e := take(raw, asker, answerer, 1, first)
		reply = build(answerer, asker, 2, e.Digest()).Raw()
		return Reply{TaskID: "t", ContextID: contextID, State: InputRequired, Envelope: reply, Updated: start}, nil
	}
	client := s.client(b, &buyer, wellknown.BindingJSONRPC)

	server := httptest.NewUnstartedServer(a2asrv.NewJSONRPCHandler(bareReply{bytes: &reply}))
	server.StartTLS()
	b.Cleanup(server.Close)
	bare := must(a2aclient.NewFromEndpoints(ctx, []*sdk.AgentInterface{sdk.NewAgentInterface(origin+"/a2a", sdk.TransportProtocolJSONRPC)}, a2aclient.WithJSONRPCTransport(bareClient(server))))

	key, public := must(did.NewPrivateKey(did.Ed25519, bytes.Repeat([]byte{2}, 32))), buyer.doc.Methods()[0].Key
	signer := must(did.NewSigner(buyer.signer.KeyID(), key))
	var ours, theirs, crypto []time.Duration
	for range b.N {
		var sent *envelope.Envelope
		ours = append(ours, clocked(func() {
			sent = build(asker, answerer, 1, first)
			got, err := client.SendEnvelope(ctx, contextID, "", sent.Raw())
			if err != nil {
				b.Fatal(err)
			}
			take(got.Envelope, answerer, asker, 2, sent.Digest())
		}))
		theirs = append(theirs, clocked(func() {
			if _, err := bare.SendMessage(ctx, &sdk.SendMessageRequest{Message: envelopeMessage(sdk.MessageRoleUser, sent.Raw())}); err != nil {
				b.Fatal(err)
			}
		}))
		crypto = append(crypto, clocked(func() {
			for range 3 { // two envelopes and the request
				sum := sha256.Sum256(sent.Raw())
				sig, err := signer.Sign(ctx, sum[:])
				if err == nil {
					err = public.Verify(sum[:], sig)
				}
				if sum2 := sha256.Sum256(sent.Raw()); err != nil || sum2 != sum {
					b.Fatal(err)
				}
			}
			for range 2 {
				c := hpke.Context{Protocol: "bench", Version: 1, From: buyer.id, To: vendor.id, SenderKID: buyer.signer.KeyID(), RecipientKID: answerer.kid}
				sealed, err := hpke.Seal(suite, answerer.kex.Public(), c, nil, body)
				if err == nil {
					_, err = answerer.ring.Open(ctx, suite, sealed, c, nil)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		}))
	}
	our, floor := middle(ours), middle(theirs)+1.25*middle(crypto)
	b.ReportMetric(our, "ns/op")
	b.ReportMetric(floor, "floor_ns/op")
	b.ReportMetric(our/floor, "ratio")
	b.ReportMetric(middle(theirs), "bare_ns")
	b.ReportMetric(middle(crypto), "crypto_ns")
}

// bareReply answers with the same bytes through the library alone.
type bareReply struct {
	a2asrv.RequestHandler
	bytes *[]byte
}

func (r bareReply) SendMessage(context.Context, *sdk.SendMessageRequest) (sdk.SendMessageResult, error) {
	return render(Reply{TaskID: "t", ContextID: "c", State: InputRequired, Envelope: *r.bytes, Updated: start})
}

func clocked(f func()) time.Duration {
	at := time.Now()
	f()
	return time.Since(at)
}

func middle(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2])
}
