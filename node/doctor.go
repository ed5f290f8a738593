// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/datatools"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/trust"
)

const (
	doctorTime = 90 * time.Second
	// certificateWarning is how long before its end a certificate is worth a warning.
	certificateWarning = 14 * 24 * time.Hour
	maxHealth          = 64 << 10
)

// examination collects the checks of one diagnosis.
type examination struct {
	n      *Node
	checks []httpapi.Check
}

func (e *examination) ok(name, format string, args ...any) {
	e.add(httpapi.CheckOK, name, "", format, args...)
}

func (e *examination) warn(name, mend, format string, args ...any) {
	e.add(httpapi.CheckWarn, name, mend, format, args...)
}

func (e *examination) fail(name, mend, format string, args ...any) {
	e.add(httpapi.CheckFail, name, mend, format, args...)
}

// add keeps what a counterparty wrote from moving the cursor of whoever reads the report.
func (e *examination) add(status, name, mend, format string, args ...any) {
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, bounded(errors.New(s)))
	}
	e.checks = append(e.checks, httpapi.Check{Name: clean(name), Status: status, Detail: clean(fmt.Sprintf(format, args...)), Mend: clean(mend)})
}

func (e *examination) diagnosis(subject string) httpapi.Diagnosis {
	d := httpapi.Diagnosis{Subject: subject, Checks: e.checks, WouldContract: true}
	for _, c := range e.checks {
		d.WouldContract = d.WouldContract && c.Status != httpapi.CheckFail
	}
	return d
}

// Doctor implements [httpapi.IdentityAdmin]. It looks and changes nothing but the pins of DIDs it resolves.
func (n *Node) Doctor(ctx context.Context, req httpapi.DoctorRequest) (httpapi.Diagnosis, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	e := &examination{n: n}
	if req.Peer == "" {
		e.self(ctx)
		return e.diagnosis(n.self().String()), nil
	}
	if err := e.peer(ctx, req.Peer); err != nil {
		return httpapi.Diagnosis{}, err
	}
	return e.diagnosis(req.Peer), nil
}

// sight is an answer with what the connection says about the server.
type sight struct {
	body   []byte
	status int
	leaf   *x509.Certificate
	date   time.Time // of the Date header, zero without one
	at     time.Time // by this machine's clock, half way through the exchange
}

// look fetches with the guarded client, whatever the status.
func (n *Node) look(ctx context.Context, where string, limit int64) (*sight, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, http.NoBody)
	if err != nil {
		return nil, err
	}
	began := clock.System{}.Now()
	resp, err := n.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	s := &sight{status: resp.StatusCode, at: began.Add(clock.System{}.Now().Sub(began) / 2)}
	if s.body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1)); err != nil {
		return nil, err
	}
	if int64(len(s.body)) > limit {
		return nil, fetch.ErrTooLarge
	}
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		s.leaf = resp.TLS.PeerCertificates[0]
	}
	if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		s.date = t
	}
	return s, nil
}

// certificate judges the certificate of a server that was reached, or the reason why it was not.
func (e *examination) certificate(name, whose string, s *sight, err error) bool {
	if err != nil {
		var (
			invalid x509.CertificateInvalidError
			host    x509.HostnameError
			unknown x509.UnknownAuthorityError
			verify  *tls.CertificateVerificationError
		)
		switch {
		case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
			e.fail(name, whose+"renew the certificate; if the date looks right, check this machine's clock", "expired or not yet valid: %v", err)
		case errors.As(err, &host):
			e.fail(name, whose+"get a certificate with the host as a dNSName; the common name does not count", "%v", err)
		case errors.As(err, &unknown):
			e.fail(name, "ca in "+ConfigFile+" adds an authority to the system's; otherwise "+whose+"get a certificate by one that others trust", "%v", err)
		case errors.As(err, &verify):
			e.fail(name, whose+"mend the certificate chain", "%v", err)
		default:
			return false
		}
		return true
	}
	if s.leaf == nil {
		return false
	}
	left := s.leaf.NotAfter.Sub(clock.System{}.Now())
	if left < certificateWarning {
		e.warn(name, whose+"renew the certificate soon", "ends %s, in %d days", s.leaf.NotAfter.UTC().Format(time.RFC3339), int(left.Hours()/24))
	} else {
		e.ok(name, "for %v, until %s", s.leaf.DNSNames, s.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return true
}

// skew compares clocks by a Date header. Requests are signed for a short time: beyond the allowed difference every one of
// them is refused.
func (e *examination) skew(name string, s *sight) {
	if s.date.IsZero() {
		e.warn(name, "", "the server tells no Date; the clocks cannot be compared")
		return
	}
	off := s.date.Add(500 * time.Millisecond).Sub(s.at) // Date is cut to whole seconds
	text := off.Abs().Round(time.Second).String() + " ahead of this machine's"
	if off < 0 {
		text = off.Abs().Round(time.Second).String() + " behind this machine's"
	}
	const mend = "whoever is wrong sets the clock by NTP; compare with a third server to see who that is"
	switch abs := off.Abs(); {
	case abs > skew:
		e.fail(name, mend, "its clock is %s; more than %s and signed requests are refused", text, skew)
	case abs > skew/3:
		e.warn(name, mend, "its clock is %s; %s are allowed", text, skew)
	default:
		e.ok(name, "its clock is within %s of this machine's", abs.Round(time.Second)+time.Second)
	}
}

// plane examines a data plane: its identity, its health, and a real tools/list.
func (e *examination) plane(ctx context.Context, id did.DID, mcpURL, whose string) {
	var refusal *trust.Refusal
	if err := e.n.trust.Admit(id); errors.As(err, &refusal) && refusal.Rule != trust.RuleFirstContact {
		// A contract admits the data plane that it names, unless that is denied.
		e.fail("data plane trust", "`treaty trust list` shows the rule", "%v", err)
		return
	}
	u, err := url.Parse(mcpURL)
	if err != nil || u.Scheme != "https" {
		e.fail("data plane", whose+"name an https URL", "%q is not an https URL", mcpURL)
		return
	}
	if u.Host != id.Domain() {
		e.warn("data plane identity", whose+"give the data plane the DID of its URL's host", "%s is served at %s", id, u.Host)
	}
	s, err := e.n.look(ctx, id.DocumentURL(), did.MaxDocumentBytes)
	if err != nil {
		if !e.certificate("data plane certificate", whose, nil, err) {
			e.fail("data plane", whose+"start the data plane and open its port", "%s: %v", id.DocumentURL(), err)
		}
		return
	}
	e.certificate("data plane certificate", whose, s, nil)
	e.skew("data plane clock", s)
	e.planeDocument(id, s, whose)
	e.planeHealth(ctx, id, "https://"+u.Host+"/healthz", whose)
	names, err := mcp.Tools(ctx, e.n.data, mcpURL)
	switch {
	case err != nil:
		e.fail("data plane tools", whose+"look into the data plane's log: it may not admit this node, or be down", "%s: tools/list: %v", mcpURL, err)
	case !slices.Contains(names, datatools.QueryRecords):
		e.fail("data plane tools", whose+"serve "+datatools.QueryRecords, "%s has %v and no %s", mcpURL, names, datatools.QueryRecords)
	default:
		e.ok("data plane tools", "%s answers tools/list with %v", mcpURL, names)
	}
}

// planeDocument looks at the data plane's DID document without pinning it: only a contract makes it somebody this node knows.
func (e *examination) planeDocument(id did.DID, s *sight, whose string) {
	const name = "data plane identity"
	mend := whose + "serve the DID document of " + id.String() + " at " + id.DocumentURL()
	if s.status != http.StatusOK {
		e.fail(name, mend, "%s: HTTP status %d", id.DocumentURL(), s.status)
		return
	}
	doc, err := did.ParseDocument(s.body)
	if err != nil {
		e.fail(name, mend, "%s: %v", id.DocumentURL(), err)
		return
	}
	if doc.ID() != id {
		e.fail(name, mend, "%s is the document of %s", id.DocumentURL(), doc.ID())
		return
	}
	if _, err := doc.Verify(e.n.clock.Now()); err != nil {
		e.fail(name, mend, "%s: %v", id, err)
		return
	}
	if len(doc.Keys(did.AssertionMethod)) == 0 {
		e.fail(name, mend, "%s has no key that could sign receipts", id)
		return
	}
	e.ok(name, "%s, document %s", id, doc.Hash())
}

func (e *examination) planeHealth(ctx context.Context, id did.DID, where, whose string) {
	const name = "data plane health"
	s, err := e.n.look(ctx, where, maxHealth)
	if err != nil {
		e.fail(name, whose+"start the data plane and open its port", "%s: %v", where, err)
		return
	}
	if s.status == http.StatusNotFound {
		e.warn(name, "", "%s: there is none; the data plane may be another implementation", where)
		return
	}
	h, err := parseHealth(s.body)
	switch {
	case err != nil:
		e.fail(name, whose+"find out what answers there", "%s: %v", where, err)
	case h.DID != id.String():
		e.fail(name, whose+"find out what answers there", "%s answers as %.200q, not as %s", where, h.DID, id)
	case s.status != http.StatusOK:
		e.fail(name, whose+"look into the data plane's log", "%s: HTTP status %d: %.500s", where, s.status, h.Problem)
	default:
		e.ok(name, "%s, build %.100q", h.Service, h.Build)
	}
}
