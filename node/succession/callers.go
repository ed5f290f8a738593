// SPDX-License-Identifier: Apache-2.0

package succession

import (
	"context"
	"errors"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver"
)

// Callers resolves who calls, for a verifier of requests (did/httpsig): to it, a DID that has a successor is not one that cannot be
// had. Its caller is told that it is superseded, with the successor's name (ANP-03 1.2 draft, section 3.2.4.3).
type Callers struct{ *resolver.Resolver }

// Resolve returns the document in use, or the deactivated one that names a successor.
func (c Callers) Resolve(ctx context.Context, id did.DID) (*did.Document, error) {
	doc, err := c.Resolver.Resolve(ctx, id)
	var gone *resolver.Error
	if errors.As(err, &gone) && gone.Code == resolver.CodeDeactivated && gone.Document != nil && !gone.Successor.IsZero() {
		return gone.Document, nil
	}
	return doc, err
}
