// SPDX-License-Identifier: Apache-2.0

package did

import (
	"fmt"
	"strings"

	"github.com/treaty-node/treaty/did/canon"
)

// codeSuperseded is the code of a 409 answer to a DID that has a successor.
const codeSuperseded = "did_superseded"

// maxSuperseded bounds the body of such an answer.
const maxSuperseded = 4 << 10

// supersededBody is that body (ANP-03 1.2 draft, section 3.2.4.3).
type supersededBody struct {
	Code            string `json:"code"`
	RequestedDID    DID    `json:"requestedDid"`
	CurrentDID      DID    `json:"currentDid"`
	StableSubjectID string `json:"stableSubjectId"` // without "did:wba:"
}

// SupersededBody returns the body of the 409 answer to a request by or to a DID that current has followed, one or
// more steps later. It returns [ErrSuccession] for DIDs that cannot follow one another.
func SupersededBody(requested, current DID) ([]byte, error) {
	if err := CheckSuccessor(requested, current); err != nil {
		return nil, err
	}
	return canon.Marshal(supersededBody{
		codeSuperseded, requested, current, strings.TrimPrefix(requested.StableSubject(), "did:wba:"),
	})
}

// CheckSuperseded returns nil if the body of a 409 answer, at most 4 KiB, says that the requested DID has a
// successor, an error if it says something else. It does not tell which: whoever answers may claim what they
// like, so there is nothing to do with their word but to look at the requested DID's own document.
func CheckSuperseded(body []byte, requested DID) error {
	var j struct {
		Code         string `json:"code"`
		RequestedDID string `json:"requestedDid"`
	}
	if err := canon.UnmarshalOpen(body, &j, canon.Limits{MaxBytes: maxSuperseded, MaxDepth: 4}); err != nil {
		return err
	}
	if j.Code != codeSuperseded || j.RequestedDID != requested.String() || requested.IsZero() {
		return fmt.Errorf("%w: the answer is not about %q", ErrSuccession, requested)
	}
	return nil
}
