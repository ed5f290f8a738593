// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/node/store"
)

// The tests of this file run the test binary again as other processes: childEnv names what such a process does, and its
// arguments are the store's path and what the job needs.
const childEnv = "TREATY_STORE_TEST_CHILD"

var children = map[string]func(path, arg string) error{
	"append":  childAppend,
	"reserve": childReserve,
	"create":  childCreate,
	"nonce":   childNonce,
}

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := children[job](os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child prepares another process. It starts its work when its standard input is closed, so that several begin together.
type child struct {
	*exec.Cmd
	begin  io.Closer
	stdout io.ReadCloser
}

func spawn(t *testing.T, job, path, arg string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(self, path, arg)}
	c.Env = append(os.Environ(), childEnv+"="+job)
	c.Stderr = os.Stderr
	if c.begin, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if c.stdout, err = c.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// together starts all and returns what each wrote.
func together(t *testing.T, all []*child) []string {
	t.Helper()
	for _, c := range all {
		_ = c.begin.Close()
	}
	out := make([]string, len(all))
	for i, c := range all {
		b, err := io.ReadAll(c.stdout)
		if err := errors.Join(err, c.Wait()); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
		out[i] = string(b)
	}
	return out
}

func waitForBegin() { _, _ = io.Copy(io.Discard, os.Stdin) }

// childAppend writes event after event, each with a setting of the same name, and says so after each commit.
func childAppend(path, name string) error {
	db, err := OpenExisting(context.Background(), path, Options{Process: name})
	if err != nil {
		return err
	}
	waitForBegin()
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s-%d-%d", name, os.Getpid(), i)
		err := db.Update(context.Background(), func(tx store.Tx) error {
			if _, err := tx.Append(started(key)); err != nil {
				return err
			}
			return tx.PutSetting(key, "done")
		})
		if err != nil {
			return err
		}
		fmt.Println(key)
	}
}

// TestKillDuringAppends: several processes append; each is killed with SIGKILL again and again, and started anew. Whatever
// was reported as committed is there, effect and event always together, and the chain holds (invariants 8, 9 and 15).
func TestKillDuringAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	db := create(t, path, Options{})
	const rounds, processes = 5, 4
	reported := map[string]bool{}
	var mu sync.Mutex
	for round := range rounds {
		var wg sync.WaitGroup
		for p := range processes {
			c := spawn(t, "append", path, "p"+strconv.Itoa(p))
			wg.Go(func() {
				_ = c.begin.Close()
				lines := bufio.NewScanner(c.stdout)
				for n := 0; lines.Scan(); n++ {
					mu.Lock()
					reported[lines.Text()] = true
					mu.Unlock()
					if n == 7+5*p+round { // each at another moment, in the middle of whatever it does next
						_ = c.Process.Kill()
					}
				}
				_ = c.Wait()
			})
		}
		wg.Wait()
		if _, err := db.Check(t.Context()); err != nil {
			t.Fatalf("after round %d: %v", round, err)
		}
	}
	logged := map[string]bool{}
	err := db.View(t.Context(), func(tx store.Tx) error {
		var after uint64
		for {
			events, err := tx.Events(after, 0)
			if err != nil || len(events) == 0 {
				return err
			}
			for _, e := range events {
				after, logged[e.Context] = e.Seq, true
				if v, err := tx.GetSetting(e.Context); err != nil || v != "done" {
					t.Errorf("event %d has no effect: %v", e.Seq, err)
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range reported {
		if !logged[key] {
			t.Errorf("%s was reported as committed and is gone", key)
		}
	}
	if len(reported) < rounds*processes*8 {
		t.Errorf("only %d commits: the processes did not work", len(reported))
	}
	t.Logf("%d commits reported, %d events, %d processes killed", len(reported), len(logged), rounds*processes)
}

const reserveBudget = 90

// childReserve calls from 16 goroutines and says how many calls were granted.
func childReserve(path, contract string) error {
	db, err := OpenExisting(context.Background(), path, Options{Process: "caller"})
	if err != nil {
		return err
	}
	waitForBegin()
	var granted atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for range 64 {
		wg.Go(func() {
			err := db.Update(context.Background(), func(tx store.Tx) error { _, err := tx.Reserve(contract, reserveBudget); return err })
			switch {
			case err == nil:
				granted.Add(1)
			case !errors.Is(err, store.ErrBudget):
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	fmt.Println(granted.Load())
	return errors.Join(<-errs, db.Close())
}

// TestProcessesDoNotOverspend: 3 processes with 64 callers each get exactly the budget between them.
func TestProcessesDoNotOverspend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	db := create(t, path, Options{})
	var all []*child
	for range 3 {
		all = append(all, spawn(t, "reserve", path, "ctr_1"))
	}
	total := 0
	for _, out := range together(t, all) {
		n, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != reserveBudget {
		t.Errorf("granted %d of %d", total, reserveBudget)
	}
	err := db.View(t.Context(), func(tx store.Tx) error {
		used, err := tx.GetUsage("ctr_1")
		if used != reserveBudget {
			t.Errorf("%d calls are counted", used)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func childCreate(path, _ string) error {
	waitForBegin()
	db, err := Create(context.Background(), path, Options{Node: node, Process: "creator"})
	switch {
	case err == nil:
		fmt.Println("created")
	case errors.Is(err, fs.ErrExist):
		fmt.Println("exists")
		if db, err = OpenExisting(context.Background(), path, Options{Node: node, Process: "opener"}); err != nil {
			return err
		}
	default:
		return err
	}
	err = db.Update(context.Background(), func(tx store.Tx) error { _, err := tx.Append(started("")); return err })
	return errors.Join(err, db.Close())
}

// TestProcessesCreateOnce: of several that create one path at once one succeeds, the others can open it right away, and
// nothing is left beside it.
func TestProcessesCreateOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "treaty.db")
	var all []*child
	for range 6 {
		all = append(all, spawn(t, "create", path, ""))
	}
	created := 0
	for _, out := range together(t, all) {
		if out == "created\n" {
			created++
		} else if out != "exists\n" {
			t.Errorf("said %q", out)
		}
	}
	if created != 1 {
		t.Errorf("created %d times", created)
	}
	head, err := reopen(t, path, Options{}).Check(t.Context())
	if err != nil || head.Seq != uint64(len(all)) {
		t.Errorf("head %d, %v", head.Seq, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "treaty.db") || strings.Contains(e.Name(), ".new-") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func childNonce(path, arg string) error {
	db, err := OpenExisting(context.Background(), path, Options{Process: "verifier"})
	if err != nil {
		return err
	}
	waitForBegin()
	for i := range 40 {
		fresh, err := db.Use(context.Background(), arg, strconv.Itoa(i), time.Now().Add(time.Minute))
		if err != nil {
			return err
		}
		fmt.Println(fresh)
	}
	return db.Close()
}

// TestProcessesShareNonces: a nonce is fresh in one process only.
func TestProcessesShareNonces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "treaty.db")
	create(t, path, Options{})
	var all []*child
	for range 3 {
		all = append(all, spawn(t, "nonce", path, node+"#signing-0"))
	}
	if n := strings.Count(strings.Join(together(t, all), ""), "true"); n != 40 {
		t.Errorf("%d of 40 nonces were fresh", n)
	}
}

var _ httpsig.NonceStore = (*DB)(nil)

// crasher makes one update and says what it knows. It is built with the tag treaty_crash.
const crasher = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
)

func main() {
	ctx := context.Background()
	db, err := sqlite.OpenExisting(ctx, os.Args[1], sqlite.Options{Process: "crasher"})
	if err == nil {
		err = db.Update(ctx, func(tx store.Tx) error {
			if _, err := tx.Append(ledger.Entry{Type: ledger.NodeStarted, Data: ledger.Started{}}); err != nil {
				return err
			}
			return tx.PutSetting("key", "done")
		})
	}
	fmt.Println(err)
}
`

// TestInvariant8_CrashAtTheCommitPoint: before it neither effect nor event is there, after it both are.
func TestInvariant8_CrashAtTheCommitPoint(t *testing.T) {
	src, err := os.MkdirTemp(".", "_crasher") // in the module, and hidden from ./...
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(src) })
	if err := os.WriteFile(filepath.Join(src, "main.go"), []byte(crasher), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "crasher")
	if out, err := exec.Command("go", "build", "-tags", "treaty_crash", "-o", bin, filepath.Join(src, "main.go")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		point string
		done  bool
		said  string
	}{{"", true, "<nil>\n"}, {"store.commit.before", false, ""}, {"store.commit.after", true, ""}} {
		path := filepath.Join(t.TempDir(), "treaty.db")
		db := create(t, path, Options{})
		cmd := exec.Command(bin, path)
		cmd.Env = append(os.Environ(), "TREATY_CRASH_AT="+c.point)
		said, err := cmd.Output()
		if killed := err != nil; string(said) != c.said || killed != (c.point != "") {
			t.Errorf("%q: said %q, ended with %v", c.point, said, err)
		}
		head, err := db.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(t.Context(), func(tx store.Tx) error { _, err := tx.GetSetting("key"); return err })
		if event, effect := head.Seq == 1, err == nil; event != c.done || effect != c.done {
			t.Errorf("%q: event %v, effect %v", c.point, event, effect)
		}
	}
}
