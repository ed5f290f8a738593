// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/wellknown"
)

// One exchange over TLS on loopback, JSON-RPC, an envelope of 4 KiB each way: ours with signature, checks and rendering, beside
// the bare library with the same message. The negotiator does nothing in either.

var benchEnvelope = bytes.Repeat([]byte("x"), 4<<10)

func BenchmarkA2ASigned(b *testing.B) {
	s := newBench(b)
	reply := Reply{TaskID: "t", ContextID: "c", State: InputRequired, Envelope: benchEnvelope, Updated: start}
	c := s.client(b, &buyer, wellknown.BindingJSONRPC)
	s.answer = func(did.DID, []byte) (Reply, error) { s.received = nil; return reply, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.SendEnvelope(b.Context(), "c", "t", benchEnvelope); err != nil {
			b.Fatal(err)
		}
	}
}

// echo answers with a message, the library's cheapest path.
type echo struct{ a2asrv.AgentExecutor }

func (echo) Execute(context.Context, *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		yield(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewRawPart(benchEnvelope)), nil)
	}
}

// bareTask skips the library's executor, as the gateway does for envelopes.
type bareTask struct{ a2asrv.RequestHandler }

func (bareTask) SendMessage(context.Context, *sdk.SendMessageRequest) (sdk.SendMessageResult, error) {
	return render(Reply{TaskID: "t", ContextID: "c", State: InputRequired, Envelope: benchEnvelope, Updated: start})
}

func benchBare(b *testing.B, h a2asrv.RequestHandler) {
	server := httptest.NewUnstartedServer(a2asrv.NewJSONRPCHandler(h))
	server.StartTLS()
	b.Cleanup(server.Close)
	c, err := a2aclient.NewFromEndpoints(b.Context(), []*sdk.AgentInterface{sdk.NewAgentInterface(origin+"/a2a", sdk.TransportProtocolJSONRPC)},
		a2aclient.WithJSONRPCTransport(bareClient(server)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.SendMessage(b.Context(), &sdk.SendMessageRequest{Message: envelopeMessage(sdk.MessageRoleUser, benchEnvelope)}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkA2ABareMessage(b *testing.B) { benchBare(b, a2asrv.NewHandler(echo{})) }
func BenchmarkA2ABareTask(b *testing.B)    { benchBare(b, bareTask{}) }

// What the gateway adds above the library and below the signature.
func BenchmarkA2AUnsignedHandler(b *testing.B) {
	s := newBench(b)
	body := sendBody("/a2a", envelopeJSON)
	b.ReportAllocs()
	for b.Loop() {
		s.received = nil
		if w := s.ask(&buyer, "POST", "/a2a", body, declared); w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}

func bareClient(server *httptest.Server) *http.Client {
	return &http.Client{Transport: dialing(server)}
}
