// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"net/url"
	"strconv"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
)

// OfferType is the type member of an offer.
const OfferType = "TreatyOffer"

// DataPlane names the process that will answer queries.
type DataPlane struct {
	DID string `json:"did"`
	URL string `json:"url"` // https
}

// Removal explains one difference between what was asked and what is offered.
type Removal struct {
	What    string `json:"what"`    // column, operation, rowFilter, retentionDays, minGroupSize, callBudget, rate, columnGrant, rowBudget, retentionStatement, noise, amends
	Asked   string `json:"asked"`   // as asked
	Offered string `json:"offered"` // as offered; empty when removed
	Rule    string `json:"rule"`    // the policy's rule
	Why     string `json:"why"`     // one sentence
}

// Offer is what a vendor would agree to, until it expires. Only the last
// unexpired offer of a conversation can be accepted, by its digest.
type Offer struct {
	Type         string `json:"type"`             // OfferType
	Version      int    `json:"version,omitzero"` // of the contract schema; absent in an offer of version 1
	Scope        `json:"scope"`
	ValidFrom    string       `json:"validFrom"`  // first second of validity
	ValidUntil   string       `json:"validUntil"` // first second after it
	AcceptBy     string       `json:"acceptBy"`   // the contract must be active by then
	ExpiresAt    string       `json:"expiresAt"`  // an accept must arrive before
	DataPlane    DataPlane    `json:"dataPlane"`
	SchemaDigest canon.Digest `json:"schemaDigest"`
	Removed      []Removal    `json:"removed"` // may be empty
}

// ParseOffer reads an offer. Errors match ErrInvalid.
func ParseOffer(data []byte) (*Offer, error) {
	o := new(Offer)
	if err := Decode(data, o); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return o, nil
}

// ContractVersion is the version of the contract that the offer leads to.
func (o *Offer) ContractVersion() int { return max(o.Version, Version1) }

// Canonical returns the offer's canonical JSON.
func (o *Offer) Canonical() ([]byte, error) { return canon.Marshal(o) }

// Digest is the SHA-256 of the canonical JSON, explanations included.
func (o *Offer) Digest() (canon.Digest, error) { return digestOf(o) }

// Expired says whether an accept that arrives now is too late. An offer whose
// time cannot be read has expired.
func (o *Offer) Expired(now time.Time) bool {
	t, err := ParseTime(o.ExpiresAt)
	return err != nil || !now.Before(t)
}

// Validate checks every field and the order of the times:
// validFrom < validUntil and expiresAt ≤ acceptBy ≤ validUntil.
func (o *Offer) Validate() error {
	if o.Type != OfferType {
		return invalid("type", "want "+OfferType)
	}
	if o.Version == Version1 {
		return invalid("version", "is left out in an offer of version 1")
	}
	if err := o.Scope.CheckVersion(o.ContractVersion()); err != nil {
		return err
	}
	if err := o.Scope.Validate(); err != nil {
		return within("scope", err)
	}
	if err := checkValidity(o.ValidFrom, o.ValidUntil, o.AcceptBy); err != nil {
		return err
	}
	expires, err := ParseTime(o.ExpiresAt)
	if err != nil {
		return within("expiresAt", err)
	}
	if acceptBy, _ := ParseTime(o.AcceptBy); expires.After(acceptBy) {
		return invalid("expiresAt", "is after acceptBy")
	}
	if err := o.DataPlane.validate(); err != nil {
		return within("dataPlane", err)
	}
	if o.SchemaDigest.IsZero() {
		return invalid("schemaDigest", "is missing")
	}
	if o.Removed == nil || len(o.Removed) > MaxRemovals {
		return invalid("removed", "want a list of at most "+strconv.Itoa(MaxRemovals))
	}
	for i, r := range o.Removed {
		for _, f := range []struct {
			name, text string
			limit      int
		}{
			{"what", r.What, MaxName}, {"asked", r.Asked, MaxText}, {"offered", r.Offered, MaxText},
			{"rule", r.Rule, MaxName}, {"why", r.Why, MaxText},
		} {
			if err := checkText("removed["+strconv.Itoa(i)+"]."+f.name, f.text, f.limit); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkValidity(from, until, acceptBy string) error {
	f, err := ParseTime(from)
	if err != nil {
		return within("validFrom", err)
	}
	u, err := ParseTime(until)
	if err != nil {
		return within("validUntil", err)
	}
	a, err := ParseTime(acceptBy)
	if err != nil {
		return within("acceptBy", err)
	}
	switch {
	case !f.Before(u):
		return invalid("validUntil", "is not after validFrom")
	case a.After(u):
		return invalid("acceptBy", "is after validUntil")
	}
	return nil
}

func (d *DataPlane) validate() error {
	if err := checkDID("did", d.DID); err != nil {
		return err
	}
	if len(d.URL) > MaxURL || !printable(d.URL) {
		return invalid("url", "want a printable URL of at most "+strconv.Itoa(MaxURL)+" bytes")
	}
	u, err := url.Parse(d.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" || u.String() != d.URL {
		return invalid("url", "want an https URL without user information and fragment")
	}
	return nil
}

func checkDID(field, s string) error {
	if len(s) > maxDID {
		return invalid(field, "is too long")
	}
	d, err := did.Parse(s)
	if err != nil || d.String() != s {
		return invalid(field, "is not a DID that this node knows: "+Echo(s))
	}
	return nil
}
