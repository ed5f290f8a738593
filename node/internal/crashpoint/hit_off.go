// SPDX-License-Identifier: Apache-2.0

//go:build !treaty_crash

package crashpoint

// Enabled says whether this binary can be made to crash.
const Enabled = false

// Hit does nothing in this build.
func Hit(Point) {}
