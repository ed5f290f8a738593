// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Whoever puts a document in place while others do leaves a whole one there, and nothing beside it.
func TestReplace_AtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.json")
	whole := func(b byte) []byte { return bytes.Repeat([]byte{b}, 20_000) }
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 5 {
				if err := replace(path, whole(byte('a'+i))); err != nil {
					t.Error(err)
				}
				if data, err := os.ReadFile(path); err != nil || len(data) != 20_000 || !bytes.Equal(data, whole(data[0])) {
					t.Errorf("%d bytes, %v", len(data), err)
				}
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}
