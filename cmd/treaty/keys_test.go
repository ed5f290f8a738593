// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/node/httpapi"
)

// keysAndCores: `keys list` shows every key and no secret, and no process that holds keys can leave them in a core dump
// (invariant 10).
func keysAndCores(w *world, _ string) {
	r := w.must(0, buyer, "keys", "list")
	for _, want := range []string{"signing ", "kex ", "service ", "human ", "recovery ", "offline", "file keys/signing-", "active"} {
		if !strings.Contains(r.stdout, want) {
			w.t.Errorf("keys list shows no %q:\n%s", want, r.stdout)
		}
	}
	raw := w.must(0, buyer, "keys", "list", "--json").stdout
	roles := map[string]bool{}
	for _, k := range decodeInto[[]httpapi.Key](w.t, raw) {
		kind := k.Role
		if k.Type == string(did.XWing) { // beside the X25519 key
			kind += " hybrid"
		}
		if roles[kind] || k.KID == "" || len(k.Thumbprint) != 43 || (k.Location == httpapi.KeyOffline) != (k.Role == "human" || k.Role == "recovery") {
			w.t.Errorf("%+v", k)
		}
		roles[kind] = true
	}
	if len(roles) != 6 || strings.Contains(raw, "AGE-SECRET") || strings.Contains(raw, "seed") {
		w.t.Errorf("keys list --json: %s", raw)
	}
	if runtime.GOOS != "linux" {
		return
	}
	off := regexp.MustCompile(`Max core file size +0 +0 `)
	for name, p := range w.running {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
		if err != nil || !off.Match(limits) {
			w.t.Errorf("%s may dump core (%v):\n%s", name, err, limits)
		}
	}
}
