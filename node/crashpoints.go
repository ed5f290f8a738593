// SPDX-License-Identifier: Apache-2.0

//go:build treaty_crash

package node

import "github.com/treaty-node/treaty/node/internal/crashpoint"

// CrashEnv is the environment variable that arms a crash point: "name", or "name:n" for the n-th time it is passed.
const CrashEnv = crashpoint.Env

// CrashPoints names every place where a program built with the tag treaty_crash can be made to kill itself. Without the tag
// neither this function nor the places exist.
func CrashPoints() []string {
	var names []string
	for _, p := range crashpoint.All() {
		names = append(names, string(p))
	}
	return names
}
