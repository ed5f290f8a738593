// SPDX-License-Identifier: Apache-2.0

package negotiation_test

import (
	"slices"
	"testing"

	"github.com/treaty-node/treaty/node/negotiation"
)

// TestInvariant6_BothSidesAgree runs a faithful negotiation between two services.
func TestInvariant6_BothSidesAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.begin()
	if ses := w.drive(id); ses.Phase != negotiation.PhaseInForce {
		t.Fatalf("%s: %s %s", ses.Phase, ses.Code, ses.Reason)
	}
	c := w.agreed()
	if slices.Contains(c.Columns, "customer_email") || c.RetentionDays != 90 {
		t.Errorf("not narrowed: %+v", c.Scope)
	}
	if v := w.vendor.session(t, id); v.Phase != negotiation.PhaseInForce || !v.Transcript.Equal(c.Transcript) {
		t.Errorf("the vendor is in phase %s", v.Phase)
	}
}

// TestInvariant6_PuppetAgrees shows that what the other tests change is otherwise accepted.
func TestInvariant6_PuppetAgrees(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.puppet(w.buyer).agree().ask().take()
	p.say(p.proof(p.contract, w.buyer.binding))
	if ses := w.vendor.session(t, p.ctx); ses.Phase != negotiation.PhaseInForce {
		t.Fatalf("%s: %s", ses.Phase, ses.Reason)
	}
}
