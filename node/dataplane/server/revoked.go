// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/treaty-node/treaty/node/contract"
)

// revokedFile stands beside dataplane.yaml and holds, one a line, the contracts that this data plane has found revoked. The
// node's store is not asked about them again: a revocation that is deleted there stays in force here.
const revokedFile = "revoked"

// revocations is the open file.
type revocations struct {
	mu   sync.Mutex
	f    *os.File
	ids  []string // that stood in it
	torn bool     // the last line may not be whole
}

// openRevocations reads the file, and makes it where there is none yet.
func openRevocations(path string) (*revocations, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // in the operator's own folder
	if err != nil {
		return nil, configError("%w: the data plane writes there which contracts it has found revoked; make an empty file that it can write", err)
	}
	r := &revocations{f: f}
	if err := r.read(); err != nil {
		return nil, errors.Join(configError("%s: %w", path, err), f.Close())
	}
	return r, nil
}

func (r *revocations) read() error {
	data, err := io.ReadAll(r.f)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		id := strings.TrimSuffix(line, "\n")
		if id == "" { // two processes have ended one torn line
			continue
		}
		if !writable(id) {
			return fmt.Errorf("%s is no contract id", contract.Echo(id))
		}
		r.ids = append(r.ids, id)
	}
	r.torn = len(data) > 0 && data[len(data)-1] != '\n' // a power cut, or a full disk
	return nil
}

func writable(id string) bool {
	return id != "" && len(id) <= contract.MaxID && contract.CheckColumnName(id) == nil
}

// remember appends one more; it is on disk when it returns.
func (r *revocations) remember(id string) error {
	if !writable(id) { // no contract that is served has such an id
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	line := id + "\n"
	if r.torn {
		line = "\n" + line
	}
	r.torn = true
	if _, err := r.f.WriteString(line); err != nil {
		return err
	}
	r.torn = false
	return r.f.Sync()
}

func (r *revocations) Close() error { return r.f.Close() }
