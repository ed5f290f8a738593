// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
)

// noiseBytes is how long a noise secret is.
const noiseBytes = 32

// noiseSecret reads the noise secret, and makes it where there is none yet. Losing it lets a buyer ask the same question under
// two secrets and average; so it belongs into the backup of the data plane's keys.
func (c *Config) noiseSecret() ([]byte, error) {
	if c.NoiseSecret == "" {
		return nil, nil
	}
	path := c.Path(c.NoiseSecret)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newNoiseSecret(path)
	}
	if err != nil {
		return nil, configError("noise_secret: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, configError("noise_secret: %s: want a file that only its owner can read (chmod 600)", path)
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own configuration names it
	if err != nil {
		return nil, configError("noise_secret: %w", err)
	}
	if len(b) != noiseBytes {
		return nil, configError("noise_secret: %s: want %d bytes, as this program makes them", path, noiseBytes)
	}
	return b, nil
}

func newNoiseSecret(path string) ([]byte, error) {
	b := make([]byte, noiseBytes)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, configError("noise_secret: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, configError("noise_secret: %w", err)
	}
	return b, nil
}
