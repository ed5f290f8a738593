// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"encoding/json"
	"net/http"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/treaty-node/treaty/wellknown"
)

// response holds back what the library writes until it is whole, or, for a stream, until its first event is. That is where
// the activated extensions are echoed (A2A section 4.6), where an error that opens a stream becomes a plain JSON answer with
// its status, and where decoding errors of the library lose the names of its types.
type response struct {
	w         http.ResponseWriter
	call      *call
	binding   string
	id        []byte
	header    http.Header
	status    int
	held      bytes.Buffer
	committed bool
}

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write implements http.ResponseWriter.
func (r *response) Write(p []byte) (int, error) {
	if r.committed {
		return r.w.Write(p)
	}
	return r.held.Write(p)
}

// Flush implements http.Flusher: the first event of a stream is whole.
func (r *response) Flush() {
	if !r.committed {
		r.commit()
	}
	_ = http.NewResponseController(r.w).Flush()
}

// finish sends what is still held.
func (r *response) finish() {
	if !r.committed {
		r.commit()
	}
}

func (r *response) commit() {
	r.committed = true
	body := r.held.Bytes()
	status := r.status
	if status == 0 {
		status = http.StatusOK
	}
	if r.call.failedFirst.Load() {
		body, status = r.streamError(body)
		r.Header().Set("Content-Type", "application/json")
		r.Header().Del("Connection")
	}
	if !r.call.reached.Load() {
		if r.binding == wellknown.BindingJSONRPC {
			body = plainMessage(body)
		} else if status >= http.StatusBadRequest && !bytes.HasPrefix(body, []byte("{")) {
			if allow := r.header.Get("Allow"); allow != "" {
				r.w.Header().Set("Allow", allow)
			}
			writeError(r.w, r.binding, r.id, status, errMethod)
			return
		}
	}
	out := r.w.Header()
	for name, values := range r.header {
		out[name] = values
	}
	if r.call.activated.Load() {
		out.Set(sdk.SvcParamExtensions, wellknown.ExtensionURI)
	}
	if status == http.StatusUnauthorized { // RFC 9110 section 15.5.2; what to sign is RFC 9421 section 5.1
		out.Set("WWW-Authenticate", `DIDWba realm="a2a"`)
		out.Set("Accept-Signature", `sig1=("@method" "@target-uri" "@authority" "content-digest");created;expires;nonce;keyid`)
	}
	r.w.WriteHeader(status)
	_, _ = r.w.Write(body)
}

// streamError takes the JSON out of a stream's one event.
func (r *response) streamError(event []byte) ([]byte, int) {
	_, data, _ := bytes.Cut(event, []byte("data: "))
	data = bytes.TrimSpace(data)
	if r.binding == wellknown.BindingJSONRPC {
		return data, http.StatusOK
	}
	var body struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &body); err != nil || body.Error.Code < 400 || body.Error.Code > 599 {
		return data, http.StatusInternalServerError
	}
	return data, body.Error.Code
}

// plainMessage replaces the text of a JSON-RPC error that the library wrote before the gateway was reached by that of the
// error's kind: it quotes the decoder, which names Go types.
func plainMessage(body []byte) []byte {
	var answer struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result,omitempty"`
		Error   *struct {
			Code    int             `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data,omitempty"`
		} `json:"error,omitempty"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Error == nil {
		return body
	}
	answer.Error.Message = sdk.ErrInternalError.Error()
	for _, row := range wire {
		if row.rpc == answer.Error.Code {
			answer.Error.Message = row.err.Error()
		}
	}
	rewritten, err := json.Marshal(answer)
	if err != nil {
		return body
	}
	return rewritten
}
