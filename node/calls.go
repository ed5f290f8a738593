// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/httpapi"
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
	err := n.db.Update(ctx, func(tx store.Tx) error { return store.CancelCall(tx, id) })
	if errors.Is(err, store.ErrNotFound) {
		return &httpapi.Error{
			Kind: httpapi.KindNotFound, Message: fmt.Sprintf("no call %s is under way in the data plane of this company", contract.Echo(id)),
			Hint: "treaty query --running lists the calls, on the vendor's node, once they have been under way for a second",
		}
	}
	return err
}
