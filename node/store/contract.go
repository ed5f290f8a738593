// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"fmt"
)

// next lists, for each state of a contract, the states that can follow it. A state that is not here does not exist.
var next = map[string][]string{
	"":                 {AwaitingApproval, AwaitingActivation, InForce, Void},
	AwaitingApproval:   {AwaitingActivation, InForce, Void},
	AwaitingActivation: {InForce, Void},
	InForce:            {Revoked},
	Void:               {},
	Revoked:            {},
}

// CheckContract says whether a contract may go from old (nil: none) to c. It is what every implementation's PutContract
// asks, and wraps ErrConflict.
func CheckContract(old, c *ContractRecord) error {
	if _, known := next[c.State]; !known || c.State == "" {
		return fmt.Errorf("%w: unknown contract state %.80q", ErrConflict, c.State)
	}
	before := ""
	if old != nil {
		before = old.State
		switch {
		case !old.Digest.Equal(c.Digest) || old.Role != c.Role || old.Peer != c.Peer || old.ContextID != c.ContextID:
			return fmt.Errorf("%w: contract %s: another contract has this id", ErrConflict, c.ID)
		case len(old.Activation) > 0 && !bytes.Equal(old.Activation, c.Activation):
			return fmt.Errorf("%w: contract %s: an activation is written once", ErrConflict, c.ID)
		case before == c.State:
			return nil
		}
	}
	for _, s := range next[before] {
		if s == c.State {
			return nil
		}
	}
	return fmt.Errorf("%w: contract %s: %s cannot become %s", ErrConflict, c.ID, before, c.State)
}
