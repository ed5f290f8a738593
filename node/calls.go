// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/treaty-node/treaty/node/store"
)

// Calls implements [httpapi.Admin].
func (n *Node) Calls(ctx context.Context) (c store.CallsUnderWay, err error) {
	err = n.db.View(ctx, func(tx store.Tx) error {
		c, err = store.GetCallsUnderWay(tx)
		return err
	})
	if c.Calls == nil {
		c.Calls = []store.CallUnderWay{}
	}
	return c, err
}

// CancelCall implements [httpapi.Admin].
func (n *Node) CancelCall(ctx context.Context, id string) error {
	return n.db.Update(ctx, func(tx store.Tx) error { return store.CancelCall(tx, id) })
}
