// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/dunglas/httpsfv"

	"github.com/treaty-node/treaty/did"
)

// Defaults and bounds of [Options].
const (
	DefaultSkew        = 30 * time.Second
	DefaultMaxLifetime = 300 * time.Second
	DefaultMaxBody     = 4 << 20
	maxOrigins         = 8
)

// Resolver finds DID documents. It returns only documents whose binding and
// proof it has verified, deactivated ones included. An *Error is passed on to the
// caller as it is; any other error is answered with invalid_did.
type Resolver interface {
	Resolve(ctx context.Context, id did.DID) (*did.Document, error)
}

// Options configures a Verifier.
type Options struct {
	// Origins are the origins under which this service is publicly reached, such
	// as "https://vendorcorp.example"; 1 to 8 of them. A signature must be over a
	// target under one of them.
	Origins []string

	Resolver Resolver
	Nonces   NonceStore
	Now      func() time.Time // default time.Now

	Skew        time.Duration // clock difference allowed either way; default 30 s
	MaxLifetime time.Duration // longest expires − created; default 300 s
	MaxBody     int64         // octets the middleware reads; default 4 MiB

	// NotBefore, for a nonce store that does not survive a restart, is the time
	// since which it has recorded nonces. A request that an earlier process may
	// have seen (created before NotBefore plus Skew) is refused with a challenge,
	// and accepted when it is signed again with that. Zero means that nothing was
	// lost.
	NotBefore time.Time

	// Admit decides on the DID alone, before anything is fetched. An error
	// refuses the request with forbidden_did, or as the error says if it is an
	// *Error. Nil admits every DID.
	Admit func(did.DID) error

	// NonceOptional accepts requests without a nonce (ANP-02 section 3.1.1: MAY).
	// They are told apart by what they sign, so two equal requests in one second
	// count as a repetition.
	NonceOptional bool

	// HighS accepts ECDSA signatures over secp256k1 whose S is in the upper half,
	// as the Python and TypeScript SDKs make every second one. From such a
	// signature anyone can make the other one; the nonce, which both cover, still
	// lets only one of them through. Requests only: documents and everything else
	// that is signed is not affected.
	HighS bool

	// RequireChallenge accepts only nonces that this service issued in a 401.
	RequireChallenge bool

	// ChallengeKey authenticates challenges; replicas share one. At least 32
	// octets; by default a random key is made.
	ChallengeKey []byte

	// Realm names the protected space in WWW-Authenticate; default: the first
	// origin's authority.
	Realm string
}

// Caller is the verified sender of a request.
type Caller struct {
	DID      did.DID
	KeyID    string // DID URL of the authentication key
	Document *did.Document
	Created  time.Time // as the signature states it
}

// Verifier checks requests. It is safe for concurrent use.
type Verifier struct {
	opts       Options
	challenges challenger
}

// NewVerifier returns a Verifier, or an error that says which option is wrong.
func NewVerifier(o Options) (*Verifier, error) {
	if o.Resolver == nil || o.Nonces == nil {
		return nil, errors.New("httpsig: Resolver and Nonces are required")
	}
	if len(o.Origins) == 0 || len(o.Origins) > maxOrigins {
		return nil, fmt.Errorf("httpsig: want 1 to %d origins, have %d", maxOrigins, len(o.Origins))
	}
	origins := make([]string, len(o.Origins))
	for i, s := range o.Origins {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil ||
			!strings.EqualFold(strings.TrimSuffix(s, "/"), u.Scheme+"://"+u.Host) {
			return nil, fmt.Errorf("httpsig: %q is not an origin", s)
		}
		origins[i] = u.Scheme + "://" + normalAuthority(u.Scheme, u.Host)
	}
	o.Origins = origins
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Skew == 0 {
		o.Skew = DefaultSkew
	}
	if o.MaxLifetime == 0 {
		o.MaxLifetime = DefaultMaxLifetime
	}
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.Skew < 0 || o.MaxLifetime < time.Second || o.MaxBody < 0 {
		return nil, errors.New("httpsig: Skew, MaxLifetime or MaxBody out of range")
	}
	if o.ChallengeKey == nil {
		o.ChallengeKey = make([]byte, 32)
		rand.Read(o.ChallengeKey) // never fails
	}
	if len(o.ChallengeKey) < 32 {
		return nil, errors.New("httpsig: ChallengeKey is shorter than 32 octets")
	}
	if o.Realm == "" {
		_, o.Realm, _ = strings.Cut(origins[0], "://")
	}
	return &Verifier{opts: o, challenges: challenger{o.ChallengeKey}}, nil
}

// Verify checks a request as a server received it; body is its whole content.
// Every error is an *Error. The nonce is recorded if and only if the request is
// otherwise good.
func (v *Verifier) Verify(ctx context.Context, r *http.Request, body []byte) (Caller, error) {
	c, err := v.inspectRequest(r)
	if err != nil {
		return Caller{}, err
	}
	return v.authenticate(ctx, c, body)
}

// fields are the lines of the three fields that authenticate a request,
// wherever a transport carries them.
type fields struct {
	input, signature, digest []string
	// implied is the lifetime of a signature that does not say when it expires;
	// zero refuses those.
	implied time.Duration
}

// claim is a request whose signature fields are well formed, in time and from an
// admitted DID, before its content or its signature is looked at.
type claim struct {
	in         Input
	id         did.DID
	signature  []byte
	digest     []string
	now        time.Time
	challenged time.Time // when the nonce was issued; zero: the caller's own

	message Message
	target  string   // what follows the origin in the target URI
	origins []string // candidates; "" where target is the whole URI
}

func (v *Verifier) inspectRequest(r *http.Request) (*claim, error) {
	if len(r.Header["Signature-Input"]) == 0 && len(r.Header["Signature"]) == 0 {
		scheme, _ := credentials(r.Header)
		return nil, unsigned(scheme)
	}
	c, err := v.inspect(fields{
		input:     r.Header["Signature-Input"],
		signature: r.Header["Signature"],
		digest:    r.Header["Content-Digest"],
	})
	if err != nil {
		return nil, err
	}
	c.message = Message{Method: r.Method, Header: r.Header}
	if c.origins, c.target, err = v.targetOf(r); err != nil {
		return nil, err
	}
	return c, nil
}

// inspect checks everything that can be checked without content and document.
func (v *Verifier) inspect(f fields) (*claim, error) {
	if len(f.input) == 0 && len(f.signature) == 0 {
		return nil, refuse(InvalidRequest, "The request is not signed.", nil)
	}
	c := &claim{digest: f.digest, now: v.opts.Now()}
	in := &c.in
	if err := parseInput(in, f.input); err != nil {
		return nil, refuse(InvalidRequest, "Signature-Input is malformed or holds something unsupported.", err)
	}
	if in.Expires.IsZero() && !in.Created.IsZero() && f.implied > 0 {
		in.Expires = in.Created.Add(f.implied)
	}
	var err error
	if c.signature, err = parseSignature(f.signature, in.Label); err != nil {
		return nil, refuse(InvalidRequest, "Signature does not hold exactly the signature that Signature-Input announces.", err)
	}
	switch covered := in.Covers("content-digest"); {
	case !in.Covers("@method") || !in.Covers("@target-uri"):
		return nil, refuse(InvalidRequest, "The signature must cover @method and @target-uri.", nil)
	case covered != (len(f.digest) > 0):
		return nil, refuse(InvalidRequest, "Content-Digest and its coverage by the signature must come together.", nil)
	case in.KeyID == "" || in.Created.IsZero() || in.Expires.IsZero():
		return nil, refuse(InvalidRequest, "The parameters created, expires and keyid are required.", nil)
	case in.Alg != "" && !knownAlgorithm(in.Alg):
		return nil, refuse(InvalidRequest, "The alg parameter names an unsupported algorithm.", nil)
	case len(c.signature) != 64: // Ed25519, ES256K and ES256 alike
		return nil, refuse(InvalidSignature, "", nil)
	}
	if lifetime := in.Expires.Sub(in.Created); lifetime <= 0 || lifetime > v.opts.MaxLifetime ||
		in.Created.After(c.now.Add(v.opts.Skew)) || c.now.After(in.Expires.Add(v.opts.Skew)) {
		return nil, refuse(InvalidTimestamp, "", nil)
	}
	if err := v.checkNonce(c); err != nil {
		return nil, err
	}
	if c.id, _, err = did.SplitKeyID(in.KeyID); err != nil {
		return nil, refuse(InvalidDID, "The keyid is not a DID URL with a fragment.", err)
	}
	if v.opts.Admit != nil {
		if err := v.opts.Admit(c.id); err != nil {
			return nil, passOr(err, ForbiddenDID)
		}
	}
	return c, nil
}

// checkNonce decides whether the nonce is of the right kind; whether it is fresh
// is decided last of all.
func (v *Verifier) checkNonce(c *claim) error {
	if c.in.Nonce == "" && !v.opts.NonceOptional {
		return refuse(InvalidNonce, "The nonce parameter is required.", nil)
	}
	if at, ok := v.challenges.issued(c.in.Nonce); ok {
		if at.Before(v.opts.NotBefore.Truncate(time.Second)) || at.After(c.now.Add(v.opts.Skew)) || c.now.After(at.Add(challengeLife)) {
			return refuse(InvalidNonce, "", nil)
		}
		c.challenged = at
	}
	// An earlier process accepted nothing created later than its end plus the
	// skew, so what is created after that has not been seen.
	if c.challenged.IsZero() && (v.opts.RequireChallenge || c.in.Created.Before(v.opts.NotBefore.Add(v.opts.Skew))) {
		return refuse(InvalidNonce, "Sign again with the nonce of this response.", nil)
	}
	return nil
}

// authenticate checks content, document and signature, and last the nonce.
func (v *Verifier) authenticate(ctx context.Context, c *claim, body []byte) (Caller, error) {
	if len(c.digest) > 0 {
		if err := CheckContentDigest(c.digest, body); err != nil {
			return Caller{}, refuse(InvalidContentDigest, "", err)
		}
	} else if len(body) > 0 {
		return Caller{}, refuse(InvalidRequest, "A request with content must carry Content-Digest, covered by the signature.", nil)
	}
	// Before anything is fetched it is known that there is something to verify.
	base, err := c.base(c.origins[0])
	if err != nil {
		return Caller{}, err
	}
	doc, err := v.opts.Resolver.Resolve(ctx, c.id)
	if err != nil {
		return Caller{}, passOr(err, InvalidDID)
	}
	key, err := authenticationKey(doc, c)
	if err != nil {
		return Caller{}, err
	}
	signature := v.normal(key, c.signature)
	err = key.Verify(base, signature)
	for _, origin := range c.origins[1:] {
		if err == nil {
			break
		}
		if base, err = c.base(origin); err == nil {
			err = key.Verify(base, signature)
		}
	}
	if err != nil {
		return Caller{}, passOr(err, InvalidSignature)
	}
	if err := v.useNonce(ctx, c, base); err != nil {
		return Caller{}, err
	}
	return Caller{DID: c.id, KeyID: c.in.KeyID, Document: doc, Created: c.in.Created}, nil
}

// normal is the signature as it is verified: with [Options.HighS], the one of the
// two equivalent secp256k1 signatures that has the low S.
func (v *Verifier) normal(key did.PublicKey, signature []byte) []byte {
	if !v.opts.HighS || key.Type() != did.Secp256k1 || len(signature) != 64 {
		return signature
	}
	var s secp256k1.ModNScalar
	if overflow := s.SetByteSlice(signature[32:]); overflow || !s.IsOverHalfOrder() {
		return signature
	}
	low := s.Negate().Bytes()
	return append(append(make([]byte, 0, 64), signature[:32]...), low[:]...)
}

// authenticationKey takes the claimed key from the document, if that document is
// the claimed DID's, is active, and lists the key for authentication.
func authenticationKey(doc *did.Document, c *claim) (did.PublicKey, error) {
	if doc == nil || doc.ID() != c.id {
		return did.PublicKey{}, refuse(InvalidDID, "", errors.New("document of another DID"))
	}
	if doc.Deactivated() {
		if next := doc.SuccessorDID(); !next.IsZero() {
			e := refuse(DIDSuperseded, "", nil)
			e.Requested, e.Current = c.id, next
			return did.PublicKey{}, e
		}
		return did.PublicKey{}, refuse(InvalidDID, "The DID is deactivated.", nil)
	}
	key, err := doc.KeyFor(c.in.KeyID, did.Authentication, c.now)
	if err != nil {
		return did.PublicKey{}, refuse(InvalidVerificationMethod, "", err)
	}
	if c.id.Profile() == did.ProfileK1 {
		// The proof of a k1_ document is optional, so its host may have added
		// keys. The DID vouches for one of them.
		if binding, err := doc.BindingKeyID(); err != nil || binding != c.in.KeyID {
			return did.PublicKey{}, refuse(InvalidVerificationMethod, "", err)
		}
	}
	want, ok := algorithms[key.Type()]
	if !ok {
		return did.PublicKey{}, refuse(InvalidVerificationMethod, "", errors.New("not a signing key"))
	}
	if c.in.Alg != "" && c.in.Alg != want {
		return did.PublicKey{}, refuse(InvalidSignature, "The alg parameter does not fit the key.", nil)
	}
	return key, nil
}

// algorithms maps key types to the names of RFC 9421 section 6.2.2. There is no
// registered name for ECDSA over secp256k1; the JOSE name is taken for it.
var algorithms = map[did.KeyType]string{
	did.Ed25519:   "ed25519",
	did.P256:      "ecdsa-p256-sha256",
	did.Secp256k1: "ES256K",
}

func knownAlgorithm(alg string) bool {
	for _, name := range algorithms {
		if alg == name {
			return true
		}
	}
	return false
}

// base returns the signature base for a target under origin.
func (c *claim) base(origin string) ([]byte, error) {
	c.message.TargetURI = origin + c.target
	base, err := c.in.AppendBase(make([]byte, 0, 1024), &c.message)
	if err != nil {
		return nil, refuse(InvalidRequest, "The signature covers something that the request does not have.", err)
	}
	return base, nil
}

func (v *Verifier) useNonce(ctx context.Context, c *claim, base []byte) error {
	nonce := c.in.Nonce
	if nonce == "" {
		sum := sha256.Sum256(base)
		nonce = "base:" + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	// The request is acceptable until expires plus one skew; a second one is for
	// clocks that differ between replicas. A challenge must not be reusable
	// while it lasts.
	until := c.in.Expires
	if end := c.challenged.Add(challengeLife); !c.challenged.IsZero() && end.After(until) {
		until = end
	}
	fresh, err := v.opts.Nonces.Use(ctx, c.in.KeyID, nonce, until.Add(2*v.opts.Skew))
	if err != nil {
		e := refuse(Unavailable, "", err)
		if errors.Is(err, ErrNonceQuota) {
			e.Status = http.StatusTooManyRequests
		}
		return e
	}
	if !fresh {
		return refuse(InvalidNonce, "", nil)
	}
	return nil
}

// targetOf returns the origins that the request may have been signed for, likely
// ones first, and what follows the origin in the target URI. It is taken as it
// was received: a target that was decoded and encoded again may differ.
func (v *Verifier) targetOf(r *http.Request) (origins []string, target string, err error) {
	target = r.RequestURI
	if target == "" {
		target = r.URL.RequestURI()
	}
	for i := 0; i < len(target); i++ {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return nil, "", refuse(InvalidRequest, "The request target is malformed.", nil)
		}
	}
	origins = v.opts.Origins
	if scheme, rest, ok := strings.Cut(target, "://"); ok && target[0] != '/' {
		// Absolute form (RFC 9112 section 3.2.2) names one origin.
		authority := rest
		target = "/"
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			authority, target = rest[:i], rest[i:]
		}
		named := strings.ToLower(scheme) + "://" + normalAuthority(scheme, authority)
		for i, origin := range origins {
			if origin == named {
				return origins[i : i+1], target, nil
			}
		}
		return nil, "", refuse(InvalidRequest, "The request target is not under an origin of this service.", nil)
	}
	if !strings.HasPrefix(target, "/") {
		return nil, "", refuse(InvalidRequest, "The request target is malformed.", nil)
	}
	if len(origins) == 1 {
		return origins, target, nil
	}
	// The signature decides for which origin the request is meant. Host only
	// says which one to try first.
	ordered := make([]string, 0, len(origins))
	for _, first := range []bool{true, false} {
		for _, origin := range origins {
			scheme, authority, _ := strings.Cut(origin, "://")
			if (authority == normalAuthority(scheme, r.Host)) == first {
				ordered = append(ordered, origin)
			}
		}
	}
	return ordered, target, nil
}

// parseSignature returns the octets of the one signature in a Signature field,
// which must have the given label (RFC 9421 section 4.2).
func parseSignature(lines []string, label string) ([]byte, error) {
	if len(lines) == 1 { // as serializers write it
		if s, ok := strings.CutPrefix(lines[0], label); ok && len(s) == len("=::")+88 && s[:2] == "=:" && s[len(s)-1] == ':' {
			if sig, err := base64.StdEncoding.Strict().DecodeString(s[2 : len(s)-1]); err == nil {
				return sig, nil
			}
		}
	}
	dict, err := parseDictionary(lines)
	if err != nil {
		return nil, err
	}
	if names := dict.Names(); len(names) != 1 || names[0] != label {
		return nil, errors.New("not exactly the announced signature")
	}
	member, _ := dict.Get(label)
	item, _ := member.(httpsfv.Item)
	sig, ok := item.Value.([]byte)
	if !ok {
		return nil, errors.New("signature is not a byte sequence")
	}
	return sig, nil
}

// passOr returns err if it is an *Error already, and otherwise an *Error of the
// given code with err as its cause.
func passOr(err error, code Code) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return refuse(code, "", err)
}
