// SPDX-License-Identifier: Apache-2.0

// Package token signs with Ed25519 keys in a PKCS#11 token (mechanism CKM_EDDSA, PKCS#11 v3.0 section 6.3.14).
//
// A private key is used only if the token says that it is sensitive and cannot be extracted, and only after a signature by
// it has verified under the public key beside it. When the session breaks, it is opened again, once for each
// signature; a wrong PIN is never tried twice, because tokens lock themselves after a few tries.
//
// The PIN is read when it is needed and not kept. It is in no error and no log. PKCS#11 calls cannot be interrupted: a token
// that hangs makes callers time out, one after the other.
package token

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/miekg/pkcs11"

	"github.com/treaty-node/treaty/did"
)

// Numbers of PKCS#11 v3.0 that the library's headers do not have.
const (
	mechanismEdDSA   = 0x1057 // CKM_EDDSA
	mechanismKeyPair = 0x1055 // CKM_EC_EDWARDS_KEY_PAIR_GEN
	keyTypeEdwards   = 0x40   // CKK_EC_EDWARDS
	pointBytes       = 32
)

var (
	// ErrModule: the PKCS#11 library cannot be loaded or does not start.
	ErrModule = errors.New("token: module")
	// ErrToken: there is no token of this label, or more than one.
	ErrToken = errors.New("token: no such token")
	// ErrPIN: the token does not accept the PIN. It is not tried again.
	ErrPIN = errors.New("token: the PIN is wrong or locked; it is not tried again before a restart, since tokens count the tries")
	// ErrKey: the token has no such key, several, or one that must not be used.
	ErrKey = errors.New("token: key")

	errNone = fmt.Errorf("%w: not found", ErrKey)
)

// Ref finds a key in a token: by label, by id, or by both.
type Ref struct {
	Label string
	ID    []byte
}

func (r Ref) String() string { return fmt.Sprintf("label %q id %x", r.Label, r.ID) }

func (r Ref) template(class uint) []*pkcs11.Attribute {
	t := []*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_CLASS, class), pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, uint(keyTypeEdwards))}
	if r.Label != "" {
		t = append(t, pkcs11.NewAttribute(pkcs11.CKA_LABEL, r.Label))
	}
	if len(r.ID) > 0 {
		t = append(t, pkcs11.NewAttribute(pkcs11.CKA_ID, r.ID))
	}
	return t
}

// Token is a session with a token. It is safe for concurrent use; signatures are made one after the other.
type Token struct {
	ctx   *pkcs11.Ctx
	label string
	pin   func() (string, error)

	turn    chan struct{} // holds one value when nobody uses the session
	session pkcs11.SessionHandle
	handles map[string]pkcs11.ObjectHandle // private keys by Ref, as long as the session lives
	open    bool
	locked  bool // the PIN was refused
	closed  bool
}

// Open loads the module, finds the token by its label, and logs in as user.
func Open(module, label string, pin func() (string, error)) (*Token, error) {
	ctx := pkcs11.New(module)
	if ctx == nil {
		return nil, fmt.Errorf("%w: %s cannot be loaded: is the library installed, and for this architecture?", ErrModule, module)
	}
	if err := ctx.Initialize(); err != nil {
		ctx.Destroy()
		return nil, fmt.Errorf("%w: %s: %w", ErrModule, module, err)
	}
	t := &Token{ctx: ctx, label: label, pin: pin, turn: make(chan struct{}, 1)}
	t.turn <- struct{}{}
	if err := t.login(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close logs out and unloads the module. Signers of the token fail from then on.
func (t *Token) Close() error {
	<-t.turn
	defer func() { t.turn <- struct{}{} }()
	if t.closed {
		return nil
	}
	t.closed = true
	t.drop()
	err := t.ctx.Finalize()
	t.ctx.Destroy()
	return err
}

// drop ends the session; that it is broken already does not matter.
func (t *Token) drop() {
	if t.open {
		_ = t.ctx.Logout(t.session)
		_ = t.ctx.CloseSession(t.session)
		t.open = false
	}
}

func (t *Token) login() error {
	if t.locked {
		return ErrPIN
	}
	slot, err := t.slot()
	if err != nil {
		return err
	}
	session, err := t.ctx.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
	if err != nil {
		return fmt.Errorf("%w: opening a session: %w", ErrModule, err)
	}
	pin, err := t.pin()
	if err == nil {
		err = t.ctx.Login(session, pkcs11.CKU_USER, pin)
	}
	switch {
	case err == nil || errors.Is(err, pkcs11.Error(pkcs11.CKR_USER_ALREADY_LOGGED_IN)):
		t.session, t.open, t.handles = session, true, map[string]pkcs11.ObjectHandle{}
		return nil
	case isPIN(err):
		t.locked = true
		err = fmt.Errorf("%w (token %q: %w)", ErrPIN, t.label, err)
	default:
		err = fmt.Errorf("token %q: logging in: %w", t.label, err)
	}
	return errors.Join(err, t.ctx.CloseSession(session))
}

func isPIN(err error) bool {
	for _, code := range []uint{pkcs11.CKR_PIN_INCORRECT, pkcs11.CKR_PIN_LOCKED, pkcs11.CKR_PIN_EXPIRED, pkcs11.CKR_PIN_INVALID, pkcs11.CKR_PIN_LEN_RANGE} {
		if errors.Is(err, pkcs11.Error(code)) {
			return true
		}
	}
	return false
}

func (t *Token) slot() (uint, error) {
	slots, err := t.ctx.GetSlotList(true)
	if err != nil {
		return 0, fmt.Errorf("%w: listing slots: %w", ErrModule, err)
	}
	var found []uint
	for _, s := range slots {
		info, err := t.ctx.GetTokenInfo(s)
		if err == nil && strings.TrimRight(info.Label, " \x00") == t.label {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%w: %d of %d tokens have the label %q", ErrToken, len(found), len(slots), t.label)
	}
	return found[0], nil
}

// find returns the one object, and fails on none and on several.
func (t *Token) find(class uint, r Ref) (pkcs11.ObjectHandle, error) {
	if err := t.ctx.FindObjectsInit(t.session, r.template(class)); err != nil {
		return 0, err
	}
	list, _, err := t.ctx.FindObjects(t.session, 2)
	if err := errors.Join(err, t.ctx.FindObjectsFinal(t.session)); err != nil {
		return 0, err
	}
	what := "private"
	if class == pkcs11.CKO_PUBLIC_KEY {
		what = "public"
	}
	switch len(list) {
	case 0:
		return 0, fmt.Errorf("%w: token %q has no Ed25519 %s key with %s", errNone, t.label, what, r)
	case 1:
		return list[0], nil
	}
	return 0, fmt.Errorf("%w: token %q has several Ed25519 %s keys with %s; name label and id", ErrKey, t.label, what, r)
}

// point reads CKA_EC_POINT: 32 bytes, alone or as a DER OCTET STRING.
func (t *Token) point(h pkcs11.ObjectHandle) (did.PublicKey, error) {
	attrs, err := t.ctx.GetAttributeValue(t.session, h, []*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_EC_POINT, nil)})
	if err != nil {
		return did.PublicKey{}, err
	}
	raw := attrs[0].Value
	if len(raw) == pointBytes+2 && raw[0] == 0x04 && raw[1] == pointBytes {
		raw = raw[2:]
	}
	return did.NewPublicKey(did.Ed25519, raw)
}

// private finds the private key and checks that it cannot leave the token, once in a session: neither attribute can be taken
// back (PKCS#11 v3.0 section 4.8), and a handle is of one object.
func (t *Token) private(r Ref) (pkcs11.ObjectHandle, error) {
	if h, ok := t.handles[r.String()]; ok {
		return h, nil
	}
	h, err := t.find(pkcs11.CKO_PRIVATE_KEY, r)
	if err != nil {
		return 0, err
	}
	attrs, err := t.ctx.GetAttributeValue(t.session, h, []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, nil), pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, nil),
	})
	if err != nil {
		return 0, err
	}
	if isTrue := func(v []byte) bool { return len(v) == 1 && v[0] == 1 }; !isTrue(attrs[0].Value) || isTrue(attrs[1].Value) {
		return 0, fmt.Errorf("%w: the key with %s can be taken out of the token (not sensitive, or extractable); make one inside with `treaty-signer generate`", ErrKey, r)
	}
	t.handles[r.String()] = h
	return h, nil
}

// use runs f with a session that is logged in, and once more with a new one if the session broke.
func (t *Token) use(ctx context.Context, f func() error) error {
	select {
	case <-t.turn:
		defer func() { t.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if t.closed {
		return errors.New("token: closed")
	}
	for again := false; ; again = true {
		if !t.open {
			if err := t.login(); err != nil {
				return err
			}
		}
		err := f()
		if err == nil || again || !isBroken(err) {
			return err
		}
		t.drop()
	}
}

func isBroken(err error) bool {
	for _, code := range []uint{
		pkcs11.CKR_SESSION_HANDLE_INVALID, pkcs11.CKR_SESSION_CLOSED, pkcs11.CKR_USER_NOT_LOGGED_IN, pkcs11.CKR_DEVICE_REMOVED,
		pkcs11.CKR_DEVICE_ERROR, pkcs11.CKR_TOKEN_NOT_PRESENT, pkcs11.CKR_KEY_HANDLE_INVALID, pkcs11.CKR_OBJECT_HANDLE_INVALID,
	} {
		if errors.Is(err, pkcs11.Error(code)) {
			return true
		}
	}
	return false
}

// probe is what a key signs once to show that it belongs to its public key. It has none of the forms that the signer signs.
const probe = "treaty-signer probe v1: this signature says nothing"

// Signer returns a signer for a key. The key must be there, unable to leave, and fit its public key. An empty kid stands for
// a key that has no id yet.
func (t *Token) Signer(ctx context.Context, kid string, r Ref) (did.Signer, error) {
	s := &signer{token: t, kid: kid, ref: r}
	err := t.use(ctx, func() error {
		h, err := t.find(pkcs11.CKO_PUBLIC_KEY, r)
		if err != nil {
			return err
		}
		s.public, err = t.point(h)
		return err
	})
	if err != nil {
		return nil, err
	}
	sig, err := s.Sign(ctx, []byte(probe))
	if err == nil {
		err = s.public.Verify([]byte(probe), sig)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: trying the key with %s: %w", ErrKey, r, err)
	}
	return s, nil
}

type signer struct {
	token  *Token
	kid    string
	ref    Ref
	public did.PublicKey
}

func (s *signer) KeyID() string            { return s.kid }
func (s *signer) PublicKey() did.PublicKey { return s.public }

// Sign implements [did.Signer].
func (s *signer) Sign(ctx context.Context, message []byte) (sig []byte, err error) {
	t := s.token
	err = t.use(ctx, func() error {
		h, err := t.private(s.ref)
		if err != nil {
			return err
		}
		if err := t.ctx.SignInit(t.session, []*pkcs11.Mechanism{pkcs11.NewMechanism(mechanismEdDSA, nil)}, h); err != nil {
			return err
		}
		sig, err = t.ctx.Sign(t.session, message)
		return err
	})
	return sig, err
}

// Generate makes an Ed25519 key pair inside the token that cannot leave it. A label or an id that is taken is refused.
func (t *Token) Generate(ctx context.Context, r Ref) (did.PublicKey, error) {
	if r.Label == "" {
		return did.PublicKey{}, fmt.Errorf("%w: a new key needs a label", ErrKey)
	}
	if len(r.ID) == 0 {
		r.ID = make([]byte, 8)
		if _, err := rand.Read(r.ID); err != nil {
			return did.PublicKey{}, err
		}
	}
	err := t.use(ctx, func() error {
		if _, err := t.find(pkcs11.CKO_PRIVATE_KEY, Ref{Label: r.Label}); !errors.Is(err, errNone) {
			return errors.Join(fmt.Errorf("%w: the label %q is taken, or cannot be looked up; nothing was changed", ErrKey, r.Label), err)
		}
		return t.generate(r)
	})
	if err != nil {
		return did.PublicKey{}, err
	}
	s, err := t.Signer(ctx, "", r)
	if err != nil {
		return did.PublicKey{}, err
	}
	return s.PublicKey(), nil
}

// The curve, as tokens want it: by name (PKCS#11 v3.0 section 6.3.3) or by OID 1.3.101.112 (RFC 8410).
var curves = [][]byte{
	append([]byte{0x13, 0x0c}, "edwards25519"...),
	{0x06, 0x03, 0x2b, 0x65, 0x70},
}

func (t *Token) generate(r Ref) (err error) {
	for _, curve := range curves {
		both := []*pkcs11.Attribute{
			pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true), pkcs11.NewAttribute(pkcs11.CKA_LABEL, r.Label), pkcs11.NewAttribute(pkcs11.CKA_ID, bytes.Clone(r.ID)),
		}
		public := append([]*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, curve), pkcs11.NewAttribute(pkcs11.CKA_VERIFY, true)}, both...)
		private := append([]*pkcs11.Attribute{
			pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true), pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true),
			pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, false), pkcs11.NewAttribute(pkcs11.CKA_SIGN, true),
		}, both...)
		if _, _, err = t.ctx.GenerateKeyPair(t.session, []*pkcs11.Mechanism{pkcs11.NewMechanism(mechanismKeyPair, nil)}, public, private); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: the token did not make an Ed25519 key: %w", ErrKey, err)
}
