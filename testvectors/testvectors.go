// SPDX-License-Identifier: Apache-2.0

// Package testvectors holds the published test vectors that this module is checked against, and its own, one
// folder for each specification. A folder's README names source, licence and, where there is one, generator.
//
// It is imported by tests only. Its loaders fail when there is nothing to load, so that a test over vectors
// cannot pass for want of vectors.
package testvectors

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

//go:embed anp anp-authentication odcs rfc7638 rfc8785 rfc9180 rfc9421 rfc9530 w3c-vc-di-eddsa xwing
var files embed.FS

// ErrNoVectors is returned when a file or a list in it is empty.
var ErrNoVectors = errors.New("testvectors: no vectors")

// FS returns the folders, named as on disk.
func FS() fs.FS { return files }

// Read returns the bytes of a file, which must not be empty. Names are relative to this folder:
// "rfc9180/rfc9180.json".
func Read(name string) ([]byte, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("testvectors: %w", err)
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%w in %s", ErrNoVectors, name)
	}
	return data, nil
}

// Load decodes a JSON file.
func Load[T any](name string) (T, error) {
	var v T
	data, err := Read(name)
	if err == nil {
		err = decode(name, data, &v)
	}
	return v, err
}

// List decodes the JSON array found in the file by following the member names of path, and fails if it has no
// elements.
func List[T any](name string, path ...string) ([]T, error) {
	data, err := Read(name)
	if err != nil {
		return nil, err
	}
	for _, member := range path {
		var object map[string]json.RawMessage
		if err := decode(name, data, &object); err != nil {
			return nil, err
		}
		data = object[member]
		if data == nil {
			return nil, fmt.Errorf("%w in %s: no member %q", ErrNoVectors, name, member)
		}
	}
	var list []T
	if err := decode(name, data, &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w in %s", ErrNoVectors, name)
	}
	return list, nil
}

func decode(name string, data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("testvectors: %s: %w", name, err)
	}
	return nil
}
