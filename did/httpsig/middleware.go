// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

type callerKey struct{}

// WithCaller returns a context that carries a verified caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the verified caller of the request that ctx belongs to. It
// is false for anonymous requests.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// Middleware lets only verified requests through to next, with the [Caller] in
// the context and the content readable again. What the header alone decides is
// decided before any content is read.
func (v *Verifier) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { v.serve(w, r, next) })
}

// Optional lets unsigned requests through as anonymous. A request that has
// anything of a signature is verified, and refused if that fails.
func (v *Verifier) Optional(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["Signature"]) == 0 && len(r.Header["Signature-Input"]) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		v.serve(w, r, next)
	})
}

func (v *Verifier) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	c, err := v.inspectRequest(r)
	if err != nil {
		v.WriteError(w, err)
		return
	}
	body, err := v.readBody(w, r)
	if err != nil {
		v.WriteError(w, err)
		return
	}
	caller, err := v.authenticate(r.Context(), c, body)
	if err != nil {
		v.WriteError(w, err)
		return
	}
	r = r.WithContext(WithCaller(r.Context(), caller))
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	next.ServeHTTP(w, r)
}

func (v *Verifier) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := []byte(nil), error(&http.MaxBytesError{})
	if r.ContentLength <= v.opts.MaxBody {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, v.opts.MaxBody))
	}
	if err == nil {
		return body, nil
	}
	e := refuse(InvalidRequest, "The content could not be read.", err)
	e.Status = http.StatusBadRequest
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		e.Description, e.Status = "The content is too large.", http.StatusRequestEntityTooLarge
	}
	return nil, e
}

// acceptSignature is what the next attempt should cover (RFC 9421 section 5.1).
const acceptSignature = `sig1=("@method" "@target-uri" "@authority" "content-digest");created;expires;nonce;keyid`

// WriteError answers a refused request as ANP-02 sections 3.2.4 and 4.2.2 have
// it: a 401 carries WWW-Authenticate with a nonce to sign the next attempt with,
// and Accept-Signature; the body repeats them as JSON. An error that is not an
// *Error is answered as [Unavailable].
func (v *Verifier) WriteError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = refuse(Unavailable, "", err)
	}
	reply := struct {
		Code        any    `json:"code"`
		Error       Code   `json:"error,omitempty"`
		Description string `json:"error_description,omitempty"`
		Nonce       string `json:"nonce,omitempty"`

		Requested string `json:"requestedDid,omitempty"`
		Current   string `json:"currentDid,omitempty"`
		Subject   string `json:"stableSubjectId,omitempty"`
	}{Code: e.Status, Error: e.Code, Description: e.Description}

	h := w.Header()
	switch e.Status {
	case http.StatusUnauthorized:
		reply.Nonce = v.challenges.issue(v.opts.Now())
		var b strings.Builder
		for _, p := range [...][2]string{
			{"DIDWba realm=", v.opts.Realm},
			{", error=", string(e.Code)},
			{", error_description=", e.Description},
			{", nonce=", reply.Nonce},
		} {
			b.WriteString(p[0])
			b.Write(appendString(nil, p[1]))
		}
		h.Set("WWW-Authenticate", b.String())
		h.Set("Accept-Signature", acceptSignature)
	case http.StatusConflict:
		reply.Code, reply.Error, reply.Description = DIDSuperseded, "", ""
		reply.Requested, reply.Current = e.Requested.String(), e.Current.String()
		reply.Subject = strings.TrimPrefix(e.Requested.StableSubject(), "did:wba:") // as did.SupersededBody writes it
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "30")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	json.NewEncoder(w).Encode(reply) // a failed write to a refused caller needs no handling
}
