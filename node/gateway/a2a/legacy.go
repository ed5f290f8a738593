// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"encoding/json"
	"fmt"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"github.com/treaty-node/treaty/wellknown"
)

// LegacyVersion is the A2A version before 1.0 that stock clients still speak.
const LegacyVersion = "0.3"

// LegacyDocument is the agent card as clients of A2A 0.3 read it, at the path where clients before 1.0 may look. It carries no
// signature: that of the card is over the card, which this is not. Nothing in Treaty relies on it; contracts are negotiated in 1.0.
func LegacyDocument(card []byte) (wellknown.Document, error) {
	var c sdk.AgentCard
	if err := json.Unmarshal(card, &c); err != nil {
		return wellknown.Document{}, fmt.Errorf("a2a: agent card: %w", err)
	}
	c.Signatures = nil
	old := a2av0.FromV1AgentCard(&c)
	old.ProtocolVersion, old.Capabilities.Extensions, old.AdditionalInterfaces = LegacyVersion+".0", nil, nil
	old.Capabilities.PushNotifications, old.SupportsAuthenticatedExtendedCard = false, false
	body, err := json.Marshal(old)
	return wellknown.Document{Path: wellknown.PathLegacyCard, Body: body}, err
}
