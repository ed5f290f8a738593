// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/httpapi"
)

// TestRotateBindingCommand: what the command prints and with which code it ends, with and without the recovery key, on a running
// node.
func TestRotateBindingCommand(t *testing.T) {
	dir := running(t, "k1") // a weaker profile moves to e1
	root := filepath.Dir(dir)
	recovery, pass := filepath.Join(root, "recovery.age"), filepath.Join(root, "pass")
	inside := filepath.Join(dir, "recovery.age")
	data, err := os.ReadFile(recovery)
	if err == nil {
		err = os.WriteFile(inside, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"--since", "2026-11-28T00:00:00Z"}, 2, []string{"goes with --compromised"}},
		{[]string{"--compromised", "--since", "yesterday"}, 2, []string{"2026-11-28T00:00:00Z"}},
		{[]string{"--compromised", "--since", "2999-01-01T00:00:00Z"}, 2, []string{"in the future"}},
		{[]string{"--signer-kid", "did:wba:x.test#k"}, 2, []string{"keys.signer"}},
		{[]string{"--now"}, 2, []string{"not with --now"}},
		{[]string{"--after", "2026-11-28T00:00:00Z"}, 2, []string{"--recovery-key"}},
		{[]string{"--recovery-key", recovery}, 2, []string{"--passphrase-file"}},
		{[]string{"--recovery-key", inside, "--passphrase-file", pass}, 2, []string{"lies in the node's folder"}},
		{[]string{"--recovery-key", filepath.Join(root, "human.age"), "--passphrase-file", pass}, 2, []string{"role human"}},
		{nil, 0, []string{":e1_", "is now", "verified", "opened until"}},
		{[]string{"--recovery-key", recovery, "--passphrase-file", pass, "--compromised"}, 0, []string{"recovery_verified", "somebody else may have had the old key since", "0 contracts"}},
		{[]string{"--json"}, 0, []string{`"assurance": "verified"`, `"previousDid"`}},
	} {
		code, out, errs := command(append([]string{"rotate", "binding", "--dir", dir}, c.args...)...)
		if code != c.code {
			t.Errorf("rotate binding %v: exit code %d\n%s%s", c.args, code, out, errs)
		}
		for _, want := range c.says {
			if !strings.Contains(out+errs, want) {
				t.Errorf("rotate binding %v does not say %q:\n%s%s", c.args, want, out, errs)
			}
		}
	}
	code, out, _ := command("keys", "list", "--dir", dir)
	if code != 0 || strings.Count(out, "formerly ") != 3 || !strings.Contains(out, "somebody else may have had its key since") || strings.Contains(out, "unpublished") {
		t.Errorf("keys list: %d\n%s", code, out)
	}
	if code, out, errs := command("doctor", "--dir", dir); code != 0 || strings.Count(out, "former DID") != 3 {
		t.Errorf("doctor: %d\n%s%s", code, out, errs)
	}
}

// identitiesMove: both companies replace their binding keys, and the buyer then loses all of its keys. The contract stays what it
// is, and the next one is made under the new DIDs.
func identitiesMove(w *world, id string) {
	moved := func(name string, args ...string) httpapi.Rotation {
		w.t.Helper()
		return decodeInto[httpapi.Rotation](w.t, w.must(0, name, append([]string{"rotate", "binding", "--json"}, args...)...).stdout)
	}
	first := moved(buyer)
	w.ask(id)
	moved(vendor)
	w.ask(id)
	w.ask(w.negotiate().ContractID)

	if err := w.stop(buyer); err != nil {
		w.t.Fatal(err)
	}
	for _, pattern := range []string{"signing-*.age", "kex-*.age"} {
		files, err := filepath.Glob(filepath.Join(w.path(buyer), "keys", pattern))
		if err != nil || len(files) == 0 {
			w.t.Fatalf("%v %v", files, err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	last := moved(buyer, "--recovery-key", w.path("offline", buyer+"-recovery.age"), "--passphrase-file", w.path("offline", "passphrase.txt"))
	if last.Assurance != "recovery_verified" || last.PreviousDID != first.DID {
		w.t.Errorf("%+v", last)
	}
	w.start(buyer)
	w.ask(id)
	w.ask(w.negotiate().ContractID)
	for _, name := range []string{buyer, vendor} {
		w.verifyEvidence(name, id) // of the contract from before the moves
	}
}
