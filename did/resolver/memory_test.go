// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"testing"

	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/did/resolver/pinstest"
)

func TestMemoryPins(t *testing.T) {
	pinstest.Run(t, func(*testing.T) resolver.Pins { return resolver.NewMemoryPins() })
}
