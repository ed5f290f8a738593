// SPDX-License-Identifier: Apache-2.0

// Package terminal asks people for secrets.
package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// maxSecret is the most that is taken for a passphrase, in bytes.
const maxSecret = 1024

// Prompt returns what asks on a terminal without showing what is typed, or nil when in is none. Questions go to out.
func Prompt(in *os.File, out io.Writer) func(question string) (string, error) {
	fd := int(in.Fd()) //nolint:gosec // a file descriptor
	if !term.IsTerminal(fd) {
		return nil
	}
	return func(question string) (string, error) {
		fmt.Fprint(out, question)
		line, err := term.ReadPassword(fd)
		fmt.Fprintln(out)
		defer clear(line)
		switch {
		case err != nil:
			return "", fmt.Errorf("reading the passphrase: %w", err)
		case len(line) == 0 || len(line) > maxSecret:
			return "", errors.New("no passphrase was typed")
		}
		return string(line), nil
	}
}

// Twice asks for a new passphrase, twice.
func Twice(prompt func(string) (string, error), question string) (string, error) {
	first, err := prompt(question)
	if err != nil {
		return "", err
	}
	second, err := prompt("Once more: ")
	if err == nil && first != second {
		err = errors.New("these were two different passphrases")
	}
	return first, err
}
