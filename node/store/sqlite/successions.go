// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"fmt"
	"slices"

	"github.com/treaty-node/treaty/node/store"
)

const successionColumns = "old, new, assurance, old_hash, new_hash, at, own, compromised_since"

func scanSuccession(r row) (s store.Succession, err error) {
	var at, since int64
	err = r.Scan(&s.Old, &s.New, &s.Assurance, (*digest)(&s.OldHash), (*digest)(&s.NewHash), &at, &s.Own, &since)
	s.At, s.CompromisedSince = instant(at), instant(since)
	return s, err
}

func (t *tx) PutSuccession(s store.Succession) error {
	have, err := t.GetSuccession(s.Old)
	switch {
	case err == nil && have.New == s.New:
		if s.CompromisedSince.IsZero() || !have.CompromisedSince.IsZero() && !s.CompromisedSince.Before(have.CompromisedSince) {
			return nil
		}
		_, err := t.exec("UPDATE successions SET compromised_since = ? WHERE old = ?", micros(s.CompromisedSince), s.Old)
		return err
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	}
	before, err := t.Lineage(s.Old)
	if err != nil {
		return err
	}
	after, err := t.Lineage(s.New)
	if err != nil {
		return err
	}
	if err := store.CheckSuccession(s, before, after); err != nil {
		return err
	}
	_, err = t.exec("INSERT INTO successions ("+successionColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		s.Old, s.New, s.Assurance, s.OldHash[:], s.NewHash[:], micros(s.At), s.Own, micros(s.CompromisedSince))
	return err
}

func (t *tx) OverruleSuccession(s store.Succession) error {
	have, err := t.GetSuccession(s.Old)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && have.New == s.New:
		return t.PutSuccession(s)
	case err != nil:
		return err
	case have.Assurance != store.Verified || s.Assurance != store.RecoveryVerified:
		return fmt.Errorf("%w: succession of %.200q: only a recovery key overrules a binding key", store.ErrConflict, s.Old)
	}
	if _, err := t.exec("DELETE FROM successions WHERE old = ?", s.Old); err != nil {
		return err
	}
	return t.PutSuccession(s)
}

func (t *tx) GetSuccession(old string) (store.Succession, error) {
	return one(t, scanSuccession, "SELECT "+successionColumns+" FROM successions WHERE old = ?", old)
}

func (t *tx) Lineage(id string) ([]string, error) {
	text := func(r row) (s string, err error) { err = r.Scan(&s); return s, err }
	chain := []string{id}
	for _, step := range []string{"SELECT old FROM successions WHERE new = ?", "SELECT new FROM successions WHERE old = ?"} {
		slices.Reverse(chain) // twice: grown at its end towards the oldest, then towards the newest
		for len(chain) <= store.MaxLineage {
			next, err := one(t, text, step, chain[len(chain)-1])
			if errors.Is(err, store.ErrNotFound) {
				break
			}
			if err != nil {
				return nil, err
			}
			chain = append(chain, next)
		}
	}
	if len(chain) > store.MaxLineage {
		return nil, fmt.Errorf("%w: a chain of more than %d DIDs", store.ErrCorrupt, store.MaxLineage)
	}
	return chain, nil
}
