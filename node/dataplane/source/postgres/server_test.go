// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is a PostgreSQL of its own in a temporary folder, on a Unix socket and a loopback port.
type server struct {
	dir, port string
	cmd       *exec.Cmd
	login     *syscall.Credential
}

// program finds a program of the server, which Debian does not put into the path.
func program(t *testing.T, name string) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	slices.Sort(found)
	if len(found) > 0 {
		return found[len(found)-1]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("PostgreSQL is needed (make tools-postgres): %v", err)
	}
	return path
}

// start makes a cluster and runs it. It refuses to run as root, so that root runs it as somebody else.
func start(t *testing.T) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &server{dir: dir}
	if os.Geteuid() == 0 {
		for _, name := range []string{"postgres", "nobody"} {
			u, err := user.Lookup(name)
			if err != nil {
				continue
			}
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			s.login = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			if err := os.Chown(dir, int(uid), int(gid)); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	init := s.command(t, "initdb", "-D", dir+"/data", "-U", "admin", "-A", "trust", "--no-sync", "--locale=C.UTF-8", "-E", "UTF8")
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	if err := os.WriteFile(dir+"/data/pg_hba.conf", []byte("local all all trust\nhost all admin 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.login != nil {
		_ = os.Chown(dir+"/data/pg_hba.conf", int(s.login.Uid), int(s.login.Gid))
	}
	s.cmd = s.command(t, "postgres", "-D", dir+"/data", "-p", s.port, "-k", dir, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "autovacuum=off")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program(t, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "HOME=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.login}
	return cmd
}

// stop ends the server at once, as a crash of it would.
func (s *server) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		_ = s.cmd.Wait()
	}
}

// admin connects as the superuser, as soon as the server lets it.
func (s *server) admin(t *testing.T) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, "postgres://admin@127.0.0.1:"+s.port+"/postgres?sslmode=disable")
		if err == nil {
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			return c
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
