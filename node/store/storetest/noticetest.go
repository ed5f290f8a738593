// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"testing"

	"github.com/treaty-node/treaty/node/store"
)

func notices(t *testing.T, s store.Store) {
	first := store.Notice{
		ID: "n1", Peer: peer, Kind: "probe", Data: []byte(`{"a":1}`), State: store.NoticePending, Due: at(1), Expires: at(50), Created: at(0),
	}
	later := first
	later.ID, later.Due, later.Kind = "n2", at(5), "other"
	must(t, s, func(tx store.Tx) error {
		if err := tx.PutNotice(later, 0); err != nil {
			return err
		}
		return tx.PutNotice(first, 0)
	})
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutNotice(first, 0) })

	list := func(f store.NoticeFilter) (ids []string) {
		for _, n := range read(t, s, func(tx store.Tx) ([]store.Notice, error) { return tx.ListNotices(f) }) {
			ids = append(ids, n.ID)
		}
		return ids
	}
	equal(t, list(store.NoticeFilter{}), []string{"n1", "n2"})
	equal(t, list(store.NoticeFilter{State: store.NoticePending, DueBy: at(2)}), []string{"n1"})
	equal(t, list(store.NoticeFilter{Kind: "other"}), []string{"n2"})
	equal(t, list(store.NoticeFilter{Peer: stranger}), []string(nil))
	equal(t, list(store.NoticeFilter{Limit: 1}), []string{"n1"})

	sent := first
	sent.ContextID, sent.Envelope, sent.Attempts, sent.Due = "ctx", []byte("envelope"), 1, at(3)
	changed := sent
	changed.Peer, changed.Kind, changed.Data, changed.Created = stranger, "x", []byte("x"), at(9)
	must(t, s, func(tx store.Tx) error { return tx.PutNotice(changed, 1) })
	sent.Version = 2
	get := func(tx store.Tx) (store.Notice, error) { return tx.GetNotice("n1") }
	equal(t, read(t, s, get), sent)
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutNotice(sent, 1) })

	answered := sent
	answered.State, answered.Answer, answered.Code, answered.Reason = store.NoticeAnswered, []byte(`{}`), "OK", "fine"
	must(t, s, func(tx store.Tx) error { return tx.PutNotice(answered, 2) })
	answered.Version = 3
	equal(t, read(t, s, get), answered)
	fails(t, s, store.ErrConflict, func(tx store.Tx) error { return tx.PutNotice(sent, 3) })

	must(t, s, func(tx store.Tx) error {
		n, err := tx.DeleteNoticesBefore(at(60))
		if n != 1 {
			t.Errorf("%d deleted", n)
		}
		return err
	})
	missing(t, s, get)
	equal(t, list(store.NoticeFilter{}), []string{"n2"})

	must(t, s, func(tx store.Tx) error {
		for i := range store.MaxNotices - 1 {
			n := first
			n.ID = fmt.Sprintf("m%d", i)
			if err := tx.PutNotice(n, 0); err != nil {
				return err
			}
		}
		return nil
	})
	fails(t, s, store.ErrFull, func(tx store.Tx) error { return tx.PutNotice(first, 0) })

	knows := func(peer, subject string) bool {
		return read(t, s, func(tx store.Tx) (bool, error) { return tx.KnowsPeer(peer, subject) })
	}
	equal(t, knows(peer, ""), false)
	must(t, s, func(tx store.Tx) error {
		if err := tx.PutConversation(store.Conversation{Own: own, Peer: peer, ContextID: "c", Role: "buyer", Created: at(0), Updated: at(0)}, 0); err != nil {
			return err
		}
		return tx.PutContract(store.ContractRecord{ID: "ctr", Digest: sum("c"), Role: "buyer", Bytes: []byte("c"), State: store.InForce, Peer: "did:wba:third.test:a:e1_T", Created: at(0)})
	})
	for _, c := range []struct {
		peer, subject string
		want          bool
	}{
		{peer, "", true}, {"", "did:wba:vendorcorp.test:agents:steward", true}, {stranger, "did:wba:vendorcorp.test:agents:stew", false},
		{"did:wba:third.test:a:e1_T", "", true}, {"did:wba:third.test:a", "", false}, {"x", "did:wba:third.test:a", true}, {"x", "did:wba:third.test:b", false}, {stranger, stranger, false},
	} {
		if got := knows(c.peer, c.subject); got != c.want {
			t.Errorf("knows %+v: %v", c, got)
		}
	}
}
