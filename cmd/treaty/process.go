// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node"
)

// findDataplane looks for the other binary beside this one, then on the PATH.
func findDataplane(self string) (string, error) {
	if p := filepath.Join(filepath.Dir(self), "treaty-dataplane"); isFile(p) {
		return p, nil
	}
	p, err := exec.LookPath("treaty-dataplane")
	if err != nil {
		return "", usage("treaty-dataplane is neither beside %s nor on the PATH: `make build` makes both", self)
	}
	return p, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func runQuietly(ctx context.Context, name string, args ...string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // our own binary
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// process is one of the demo's servers.
type process struct {
	cmd  *exec.Cmd
	done chan error
}

func (d *demo) spawn(name, binary string, args ...string) (*process, error) {
	log, err := os.Create(d.path(name + ".log"))
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(binary, args...), done: make(chan error, 1)} //nolint:gosec // our own binary
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Servers end by our signal and in our order, not by the terminal's Ctrl-C to the whole group.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() { p.done <- errors.Join(p.cmd.Wait(), log.Close()) }()
	d.processes = append(d.processes, p)
	return p, nil
}

// stop ends the servers that this demo started, the last first.
func (d *demo) stop() {
	for i := len(d.processes) - 1; i >= 0; i-- {
		p := d.processes[i]
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	d.processes = nil
}

// startAll starts the three processes and waits until each has proved who it is.
func (d *demo) startAll(ctx context.Context) error {
	roots, err := node.LoadRoots(d.path("ca", "ca.pem"))
	if err != nil {
		return err
	}
	client := fetch.NewClient(fetch.Config{Hosts: d.hosts(), RootCAs: roots, Timeout: 5 * time.Second})
	for _, s := range []struct{ name, binary, domain, service string }{
		{"vendor", d.treaty, "vendorcorp.test", node.Service},
		{"vendor-data", d.dataplane, "data.vendorcorp.test", "treaty-dataplane"},
		{"buyer", d.treaty, "buyercorp.test", node.Service},
	} {
		p, err := d.spawn(s.name, s.binary, "serve", "--dir", d.path(s.name))
		if err != nil {
			return err
		}
		if err := healthy(ctx, client, p, "https://"+s.domain+"/healthz", s.service); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// healthy waits for the service itself: a port that answers is not enough (C14).
func healthy(ctx context.Context, client *http.Client, p *process, url, service string) error {
	var last error
	for {
		select {
		case err := <-p.done:
			p.done <- err
			return fmt.Errorf("ended while starting: %w", err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-time.After(50 * time.Millisecond):
		}
		raw, _, err := fetch.Get(ctx, client, url, 64<<10)
		if last = err; err != nil {
			continue
		}
		var h struct{ Service, Build, DID string }
		if err := json.Unmarshal(raw, &h); err != nil || h.Service != service || h.DID == "" {
			return fmt.Errorf("%s answers as %q, not as %s: something else holds the port", url, h.Service, service)
		}
		return nil
	}
}

// indent moves every line to the right.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("      " + line)
	}
	return b.String()
}
