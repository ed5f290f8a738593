// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/wellknown"
)

// maxContractSkills bounds the extended card; the newest contracts are listed.
const maxContractSkills = 64

// extendedCard is the agent card for one caller (A2A section 3.1.11): the public one and, as skills, what the caller's contracts in
// force let it do here. Others' contracts are not in it.
func (n *Node) extendedCard(ctx context.Context, caller did.DID) ([]byte, error) {
	id := n.id()
	spec := id.described.card
	err := n.db.View(ctx, func(tx store.Tx) error {
		line, err := tx.Lineage(caller.String()) // contracts stay where they were signed when a company moves
		if err != nil {
			return err
		}
		for _, peer := range line {
			held, err := tx.ListContracts(store.ContractFilter{Peer: peer, State: store.InForce, Limit: maxContractSkills})
			if err != nil {
				return err
			}
			for _, r := range held[:min(len(held), maxContractSkills-len(spec.MoreSkills))] {
				c, err := contract.Parse(r.Bytes)
				if err != nil {
					return fmt.Errorf("contract %s: %w", r.ID, err)
				}
				spec.MoreSkills = append(spec.MoreSkills, contractSkill(c))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return wellknown.BuildCard(ctx, spec, id.binding)
}

func contractSkill(c *contract.Contract) wellknown.Skill {
	return wellknown.Skill{
		ID: c.ID, Name: "Contract over " + c.Dataset,
		Description: fmt.Sprintf("%s of %s for %q until %s, at %s.", strings.Join(c.Operations, ", "), strings.Join(c.Columns, ", "), c.Purpose, c.ValidUntil, c.Parties.DataPlane.URL),
		Tags:        []string{"data-contract", "query"},
	}
}
