// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"testing"

	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/did/resolver/pinstest"
)

func TestPins(t *testing.T) {
	pinstest.Run(t, func(t *testing.T) resolver.Pins { return fresh(t) })
}
