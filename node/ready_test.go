// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"path/filepath"
	"testing"
)

// A node whose disk is full still reads, and answers every message with an internal error: it is not ready.
func TestNotReadyWhereNothingCanBeWritten(t *testing.T) {
	dir := t.TempDir()
	o := InitOptions{
		Dir: filepath.Join(dir, "n"), Domain: "buyercorp.test", Listen: "127.0.0.1:0", DevCA: filepath.Join(dir, "ca"),
		HumanKeyOut: filepath.Join(dir, "off", "h"), RecoveryKeyOut: filepath.Join(dir, "off", "r"), Passphrase: "a passphrase for tests", WorkFactor: 10,
	}
	if _, err := Init(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), o.Dir, Options{Process: "treaty"})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ready(t.Context()); err != nil {
		t.Error(err)
	}
	n.kept(errors.New("disk full"))
	if err := n.ready(t.Context()); !errors.Is(err, errUnwritable) {
		t.Errorf("%v", err)
	}
	n.kept(nil)
	if err := errors.Join(n.ready(t.Context()), n.Close()); err != nil {
		t.Error(err)
	}
}
