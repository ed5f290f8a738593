// SPDX-License-Identifier: Apache-2.0

//go:build treaty_crash

package node_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/hpke"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/keystore"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
)

// Set for the process that is killed: the folder, and how far its clock is ahead.
const (
	crashDir   = "TREATY_TEST_CRASH_DIR"
	crashAhead = "TREATY_TEST_CRASH_AHEAD"
	crashKind  = "TREATY_TEST_CRASH_KIND"
)

// TestCrash_RotationProcess is what is killed: it opens the node, rotates, and retires what is due.
func TestCrash_RotationProcess(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		return // the other test runs it
	}
	ahead := must[time.Duration](t)(time.ParseDuration(os.Getenv(crashAhead)))
	n := open(t, dir, &shifted{ahead: ahead})
	if ahead == 0 {
		kind := httpapi.RotateKeyAgreement
		if k := os.Getenv(crashKind); k != "" {
			kind = k
		}
		rotate(t, n, kind)
	} else if err := n.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestCrash_Rotation kills a process at every point that a rotation, and then a retirement, passes, as often as it
// passes it, and starts the node again: it has the old document or the new one, with the keys to it, the log and the folder
// say the same, and the rotation can be done again.
func TestCrash_Rotation(t *testing.T) {
	killEverywhere(t, crashAt, func(point string, ahead time.Duration) bool { return ahead == 0 || point != "rotation.key" })
}

// killEverywhere kills a process at each pass of each point of a rotation, or of the retirement of what was rotated before; crash
// says whether it was killed there. Points that must are passed once at least.
func killEverywhere(t *testing.T, crash func(t *testing.T, at string, ahead time.Duration) bool, must func(point string, ahead time.Duration) bool) {
	t.Helper()
	kills := 0
	for _, point := range node.CrashPoints() {
		if !strings.HasPrefix(point, "rotation.") && !strings.HasPrefix(point, "store.commit.") {
			continue
		}
		for _, ahead := range []time.Duration{0, week + time.Minute} {
			for pass := 1; pass < 20; pass++ {
				if !crash(t, point+":"+strconv.Itoa(pass), ahead) {
					if pass == 1 && must(point, ahead) {
						t.Errorf("%s is not passed (%s)", point, ahead)
					}
					break
				}
				kills++
			}
		}
	}
	t.Logf("%d kills", kills)
}

// crashAt says whether the process was killed there.
func crashAt(t *testing.T, at string, ahead time.Duration) bool {
	t.Helper()
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Talking()
	if ahead > 0 {
		rotate(t, n, httpapi.RotateKeyAgreement)
		before = n.Talking()
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrash_RotationProcess$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir, crashAhead+"="+ahead.String(), node.CrashEnv+"="+at)
	killed := runToKill(t, cmd, at)

	c.advance(ahead)
	n = open(t, dir, c)
	now := n.Talking()
	doc := now.Document
	rotated, retired := len(eventsOf(t, n, ledger.KeyRotated)), len(eventsOf(t, n, ledger.KeyRetired))
	changed := doc.Hash() != before.Document.Hash()
	if _, err := doc.Verify(c.Now()); err != nil {
		t.Errorf("%s: %v", at, err)
	}
	if want := map[bool]int{true: 1}[changed || ahead > 0]; rotated != want {
		t.Errorf("%s: document changed: %t; %d rotations in the log", at, changed, rotated)
	}
	if want := map[bool]int{true: 2}[changed && ahead > 0]; retired != want {
		t.Errorf("%s: document changed: %t; %d retirements in the log", at, changed, retired)
	}
	if folderDocument(t, dir).Hash() != doc.Hash() || n.Status().Document != doc.Hash() {
		t.Errorf("%s: the folder has another document", at)
	}
	for _, m := range doc.Keys(did.KeyAgreement) {
		err := sealed(t, doc, m.ID)(now.Opener)
		if past := !m.Expires.IsZero() && !c.Now().Before(m.Expires); past != errors.Is(err, hpke.ErrRetired) || !past && err != nil {
			t.Errorf("%s: what is sealed to %s: %v", at, m.ID, err)
		}
	}
	// It goes on: what is due is retired, and one more rotation works.
	if err := n.Tend(t.Context()); err != nil {
		t.Errorf("%s: %v", at, err)
	}
	r := rotate(t, n, httpapi.RotateKeyAgreement)
	if len(r.Previous) != 2 || n.Status().Document != r.Document {
		t.Errorf("%s: %+v", at, r)
	}
	held := keyFiles(t, dir)[keystore.Kex]
	for _, m := range n.Talking().Document.Keys(did.KeyAgreement) {
		if !slices.ContainsFunc(held, func(k keystore.Key) bool { return k.KID == m.ID }) {
			t.Errorf("%s: the key of %s is gone", at, m.ID)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	return killed
}

func runToKill(t *testing.T, cmd *exec.Cmd, at string) bool {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if err != nil && !killed {
		t.Fatalf("%s: %v\n%s", at, err, out)
	}
	return killed
}

// TestCrash_Move kills a process at every point that a new binding key passes, and at every point that the retirement of the old
// keys passes, and starts the node again: it has the old DID or the new one, with the keys to it; the log, the record of
// successions and the folder say the same; and it can move on.
func TestCrash_Move(t *testing.T) {
	killEverywhere(t, crashMove, func(_ string, ahead time.Duration) bool { return ahead == 0 })
}

func crashMove(t *testing.T, at string, ahead time.Duration) bool {
	t.Helper()
	dir, _ := initPair(t, nil)
	c := &shifted{}
	n := open(t, dir, c)
	before := n.Talking()
	if ahead > 0 {
		rotate(t, n, httpapi.RotateBinding)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrash_RotationProcess$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir, crashAhead+"="+ahead.String(), crashKind+"="+httpapi.RotateBinding, node.CrashEnv+"="+at)
	killed := runToKill(t, cmd, at)

	c.advance(ahead)
	n = open(t, dir, c)
	now := n.Talking()
	moved := now.Document.ID() != before.Document.ID()
	events, former := len(eventsOf(t, n, ledger.IdentityMoved)), len(n.Status().Former)
	if want := map[bool]int{true: 1}[moved]; events != want || former != want {
		t.Errorf("%s: moved: %t; %d moves in the log, %d former DIDs", at, moved, events, former)
	}
	if folderDocument(t, dir).Hash() != now.Document.Hash() || now.Binding.KeyID() != n.RequestSigner().KeyID() {
		t.Errorf("%s: the folder has another document", at)
	}
	if err := n.Store().View(t.Context(), func(tx store.Tx) error {
		line, err := tx.Lineage(before.Document.ID().String())
		if err == nil && (line[len(line)-1] != now.Document.ID().String() || len(line) != 1+former) {
			t.Errorf("%s: the successions are %v", at, line)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	code, raw := served(t, n, before.Document.ID().DocumentURL())
	old, err := did.ParseDocument(raw)
	if err != nil || code != 200 || old.Deactivated() != moved {
		t.Fatalf("%s: the old DID's document: %d %s", at, code, raw)
	}
	if moved {
		if a, err := did.VerifyHop(before.Document, old, now.Document, c.Now().Add(2*time.Second)); a != did.AssuranceVerified || err != nil {
			t.Errorf("%s: %s %v", at, a, err)
		}
	}
	err = sealed(t, before.Document, before.KeyAgreementKID)(now.Opener)
	if past := ahead > 0; past != errors.Is(err, hpke.ErrRetired) || !past && err != nil {
		t.Errorf("%s: what is sealed to the old DID: %v", at, err)
	}
	if err := n.Tend(t.Context()); err != nil {
		t.Errorf("%s: %v", at, err)
	}
	for kid, gone := range map[string]bool{before.Binding.KeyID(): moved, before.KeyAgreementKID: ahead > 0, now.Binding.KeyID(): false, now.KeyAgreementKID: false} {
		if _, err := os.Stat(keyPath(dir, kid)); errors.Is(err, os.ErrNotExist) != gone {
			t.Errorf("%s: the file of %s: %v", at, kid, err)
		}
	}
	if r := rotate(t, n, httpapi.RotateBinding); n.Status().DID != r.DID || len(n.Status().Former) != former+1 {
		t.Errorf("%s: %+v", at, r)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	return killed
}
