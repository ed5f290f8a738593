// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// Bounds of the server.
const (
	maxConns    = 64
	maxInFlight = 32
	maxHeaders  = 8 << 10
	maxPath     = 104 // bytes of a Unix socket's path that every system takes
	drain       = 3 * time.Second
)

// Key is a key that a server signs with.
type Key struct {
	Role   string // signing, service or receipt
	Signer did.Signer
}

// Record is one line of the audit log.
type Record struct {
	Time    string        `json:"time"`    // RFC 3339, UTC, milliseconds
	Outcome string        `json:"outcome"` // "signed", or the code of the error
	KID     string        `json:"kid"`
	Form    Form          `json:"form,omitempty"`
	Digest  *canon.Digest `json:"digest,omitempty"` // SHA-256 of the message
	Bytes   int           `json:"bytes,omitempty"`
}

// Options of a server. All are needed but Log.
type Options struct {
	Keys  []Key
	Audit io.Writer // gets one Write for each line
	Now   func() time.Time
	Log   *slog.Logger // faults of the token
}

// Server answers on a Unix socket.
type Server struct {
	keys  map[string]Key
	list  []byte
	now   func() time.Time
	log   *slog.Logger
	slots chan struct{}

	mu    sync.Mutex
	audit io.Writer
}

// New checks that ids, roles and keys belong together.
func New(o Options) (*Server, error) {
	if len(o.Keys) == 0 || len(o.Keys) > MaxKeys {
		return nil, fmt.Errorf("signer: 1 to %d keys are served, not %d", MaxKeys, len(o.Keys))
	}
	if o.Audit == nil || o.Now == nil {
		return nil, errors.New("signer: Audit and Now are needed")
	}
	s := &Server{keys: map[string]Key{}, now: o.Now, log: o.Log, audit: o.Audit, slots: make(chan struct{}, maxInFlight)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var list keysJSON
	for _, k := range o.Keys {
		kid, public := k.Signer.KeyID(), k.Signer.PublicKey()
		if err := checkKID(kid, k.Role, public); err != nil {
			return nil, fmt.Errorf("signer: %w", err)
		}
		if _, twice := s.keys[kid]; twice {
			return nil, fmt.Errorf("signer: %s is named twice", kid)
		}
		s.keys[kid] = k
		list.Keys = append(list.Keys, keyJSON{kid, k.Role, public.Type(), b64.EncodeToString(public.Bytes())})
	}
	var err error
	s.list, err = canon.Marshal(list)
	return s, err
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == pathKeys:
		write(w, http.StatusOK, s.list)
	case r.Method == http.MethodPost && r.URL.Path == pathSign:
		s.sign(w, r)
	default:
		s.refuse(w, codeMalformed, "no such call")
	}
}

func (s *Server) sign(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSignBody))
	if err != nil {
		s.refuse(w, codeMalformed, "the request is too large or broke off")
		return
	}
	kid, message, err := parseSign(body)
	if err != nil {
		s.refuse(w, codeMalformed, err.Error())
		return
	}
	key, ok := s.keys[kid]
	if !ok {
		s.refuse(w, codeUnknownKey, "there is no such key here")
		return
	}
	digest := canon.Sum(message)
	rec := Record{KID: kid, Digest: &digest, Bytes: len(message)}
	if rec.Form, err = FormOf(kid, message); err != nil {
		rec.Form = ""
		s.answer(w, rec, codeForm, nil)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), Timeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		s.answer(w, rec, codeBusy, nil)
		return
	}
	sig, err := key.Signer.Sign(ctx, message)
	if err == nil {
		err = key.Signer.PublicKey().Verify(message, sig)
	}
	if err != nil {
		s.log.Error("the token did not sign", "kid", kid, "err", err)
		s.answer(w, rec, codeUnavailable, nil)
		return
	}
	s.answer(w, rec, "", sig)
}

var texts = map[code]string{
	codeForm:        "the message is none that this key signs",
	codeBusy:        "too many requests at once",
	codeUnavailable: "the token does not sign now; the signer's log says why",
}

// answer writes the audit line, then the answer. Without the line there is no signature.
func (s *Server) answer(w http.ResponseWriter, rec Record, c code, sig []byte) {
	rec.Outcome = string(c)
	if c == "" {
		rec.Outcome = "signed"
	}
	rec.Time = s.now().UTC().Format("2006-01-02T15:04:05.000Z")
	line, err := canon.Marshal(rec)
	if err == nil {
		s.mu.Lock()
		_, err = s.audit.Write(append(line, '\n'))
		s.mu.Unlock()
	}
	if err != nil {
		s.log.Error("the audit log cannot be written: nothing is signed", "err", err)
		s.refuse(w, codeUnavailable, "the audit log cannot be written")
		return
	}
	if c != "" {
		s.refuse(w, c, texts[c])
		return
	}
	out, err := canon.Marshal(signedJSON{b64.EncodeToString(sig)})
	if err != nil {
		s.refuse(w, codeUnavailable, texts[codeUnavailable])
		return
	}
	write(w, http.StatusOK, out)
}

func (s *Server) refuse(w http.ResponseWriter, c code, text string) {
	const most = 200
	if len(text) > most {
		text = text[:most]
	}
	out, err := canon.Marshal(errorJSON{c, text})
	if err != nil { // text that is not UTF-8 any more
		out, _ = canon.Marshal(errorJSON{c, "refused"})
	}
	write(w, statuses[c].status, out)
}

func write(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the caller went away
}

// Listen opens the socket, mode 0600 from the start; with gid at least 0 then 0660 for that group, which this process must
// belong to. A socket that nobody answers on is left from a crash and replaced; one that answers is an error.
func Listen(ctx context.Context, path string, gid int) (net.Listener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("%w: the path %s is longer than %d bytes", ErrSocket, path, maxPath)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%w: %s exists and is not a socket", ErrSocket, path)
		}
		var d net.Dialer
		if c, err := d.DialContext(ctx, "unix", path); err == nil {
			return nil, errors.Join(fmt.Errorf("%w: another signer answers on %s", ErrSocket, path), c.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	old := syscall.Umask(0o177)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSocket, err)
	}
	if gid >= 0 {
		if err := errors.Join(os.Chown(path, -1, gid), os.Chmod(path, 0o660)); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrSocket, err), l.Close())
		}
	}
	return l, nil
}

// Serve answers on l until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, MaxHeaderBytes: maxHeaders, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: Timeout, ReadTimeout: 2 * Timeout, WriteTimeout: 3 * Timeout, IdleTimeout: time.Minute,
	}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		err := server.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			// Connections on which nothing was asked yet count as busy for five seconds; they are closed with the rest.
			s.log.Warn("closing connections that were still open")
			err = nil
		}
		closed <- errors.Join(err, server.Close())
	})
	err := server.Serve(netutil.LimitListener(l, maxConns))
	if stop() { // the listener broke by itself
		return errors.Join(err, server.Close())
	}
	// The caller closes the token next: what is being signed has its answer first.
	return <-closed
}
