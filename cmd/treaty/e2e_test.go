// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger"
)

// TestMain makes this test binary stand for `treaty` in the scripts, and removes the binaries that the other tests built.
func TestMain(m *testing.M) {
	testscript.Main(tidy{m}, map[string]func(){"treaty": main})
}

type tidy struct{ m *testing.M }

func (t tidy) Run() int {
	defer func() { _ = os.RemoveAll(builtIn) }() // "" when nothing was built
	return t.m.Run()
}

// buildTags are the tags of the binaries under test.
var (
	buildTags string
	builtIn   string
)

type binaries struct{ treaty, dataplane string }

// built are both programs; built once a run, when the first test asks. Both in one command and with the same settings, so that
// they share what is compiled.
var built = sync.OnceValues(func() (b binaries, err error) {
	if builtIn, err = os.MkdirTemp("", "treaty-bin"); err != nil {
		return b, err
	}
	cmd := exec.Command("go", "build", "-tags", buildTags, "-o", builtIn+string(filepath.Separator), ".", "../treaty-dataplane") //nolint:gosec // our own
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binaries{filepath.Join(builtIn, "treaty"), filepath.Join(builtIn, "treaty-dataplane")}, nil
})

// The names of a world's processes, which are also the names of their folders.
const (
	buyer  = "buyer"
	vendor = "vendor"
	plane  = "vendor-data"
)

var domains = map[string]string{buyer: "buyercorp.test", vendor: "vendorcorp.test", plane: "data.vendorcorp.test", "stranger": "strangercorp.test"}

const (
	startTime = 30 * time.Second // for a process to be up, on a busy machine
	stopTime  = 20 * time.Second
	cliTime   = 60 * time.Second
)

// world is two companies and a data plane on this machine, in a folder of their own: the demo's, with the programs as
// processes.
type world struct {
	*demo
	t       *testing.T
	client  *http.Client
	running map[string]*process
}

// newWorld makes the folders; more are further companies that will [world.join].
func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "treaty") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		demo: &demo{dir: dir, out: io.Discard, treaty: b.treaty, dataplane: b.dataplane, addr: map[string]string{}, policy: demoPolicy, needs: demoNeeds},
		t:    t, running: map[string]*process{},
	}
	t.Cleanup(func() {
		for name := range w.running {
			w.kill(name)
		}
		if t.Failed() {
			w.logs()
		}
		_ = os.RemoveAll(dir)
	})
	for _, name := range append(more, buyer, vendor, plane) {
		w.addr[domains[name]] = freeAddress(t)
	}
	if err := w.setUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The tests ask faster than anybody may.
	config, err := os.OpenFile(w.path(plane, "dataplane.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = config.WriteString("\nlimits: {calls_per_minute: 1000000}\n")
	if err := errors.Join(err, config.Close()); err != nil {
		t.Fatal(err)
	}
	roots, err := node.LoadRoots(w.path("ca", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	w.client = fetch.NewClient(fetch.Config{Hosts: w.hosts(), RootCAs: roots, Timeout: 5 * time.Second})
	return w
}

// join makes the folder of a further company, which deals with anybody.
func (w *world) join(name string) {
	w.t.Helper()
	_, err := node.Init(w.t.Context(), node.InitOptions{
		Dir: w.path(name), Domain: domains[name], Listen: w.addr[domains[name]], DevCA: w.path("ca"), Hosts: w.hosts(), Open: true,
		HumanKeyOut: w.path("offline", name+"-human.age"), RecoveryKeyOut: w.path("offline", name+"-recovery.age"),
		Passphrase: "of no use", WorkFactor: 10,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// freeAddress is a loopback address that no program listens on. Its port is below the range from which systems give ports to
// outgoing connections, so that it is still free when a stopped process wants it back.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)) //nolint:gosec // not a secret
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return addr
	}
	t.Fatal("no free port")
	return ""
}

func (w *world) binary(name string) string {
	if name == plane {
		return w.dataplane
	}
	return w.treaty
}

// launch starts a process and does not wait for it.
func (w *world) launch(name string, env ...string) *process {
	w.t.Helper()
	if w.running[name] != nil {
		w.t.Fatalf("%s is running", name)
	}
	log, err := os.OpenFile(w.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(w.binary(name), "serve", "--dir", w.path(name)), done: make(chan error, 1)} //nolint:gosec // our own
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { p.done <- errors.Join(p.cmd.Wait(), log.Close()) }()
	w.running[name] = p
	return p
}

// up waits until the process has proved who it is, or says why it has not.
func (w *world) up(name string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), startTime)
	defer cancel()
	service := node.Service
	if name == plane {
		service = "treaty-dataplane"
	}
	p := w.running[name]
	if err := healthy(ctx, w.client, p, "https://"+domains[name]+"/healthz", service); err != nil || name == plane {
		return err
	}
	return w.adminUp(ctx, name, p)
}

// adminUp waits for the admin socket, which opens just after the public port.
func (w *world) adminUp(ctx context.Context, name string, p *process) error {
	for {
		err := w.admin(name).Get(ctx, "/status", &httpapi.Status{})
		if err == nil {
			return nil
		}
		select {
		case ended := <-p.done:
			p.done <- ended
			return errors.Join(err, ended)
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *world) start(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.launch(name)
		if err := w.up(name); err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
	}
}

// ended waits until a process has ended by itself.
func (w *world) ended(name string) {
	w.t.Helper()
	p := w.running[name]
	select {
	case <-p.done:
		delete(w.running, name)
	case <-time.After(startTime):
		w.kill(name)
		w.t.Errorf("%s does not end", name)
	}
}

// stop ends a process as an operator does and returns how it ended.
func (w *world) stop(name string) error {
	w.t.Helper()
	p := w.running[name]
	delete(w.running, name)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.done:
		return err
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s does not stop", name)
	}
}

// kill ends a process as a power cut does.
func (w *world) kill(name string) {
	p := w.running[name]
	delete(w.running, name)
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (w *world) admin(name string) *httpapi.AdminClient {
	return httpapi.NewAdminClient(w.path(name))
}

// ran is what a command line did.
type ran struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

func (r ran) String() string {
	return fmt.Sprintf("exit %d after %v\n%s%s", r.code, r.took.Round(time.Millisecond), r.stdout, r.stderr)
}

// run runs `treaty ARGS --dir FOLDER`.
func (w *world) run(name string, args ...string) ran {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), cliTime)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, w.treaty, append(slices.Clone(args), "--dir", w.path(name))...) //nolint:gosec // our own
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		w.t.Fatalf("treaty %q: %v\n%s%s", args, errors.Join(err, ctx.Err()), out.Bytes(), errs.Bytes())
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), errs.String(), time.Since(began)}
}

// must runs a command that has to exit with code, and returns what it printed.
func (w *world) must(code int, name string, args ...string) ran {
	w.t.Helper()
	r := w.run(name, args...)
	if r.code != code {
		w.t.Fatalf("treaty %q: exit code %d is wanted: %v", args, code, r)
	}
	return r
}

func decodeInto[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// negotiate makes a contract between the two companies.
func (w *world) negotiate() httpapi.Negotiation {
	w.t.Helper()
	n := decodeInto[httpapi.Negotiation](w.t, w.must(0, buyer, "negotiate", "--peer", domains[vendor], "--json").stdout)
	if n.Phase != "in_force" || n.ContractID == "" {
		w.t.Fatalf("phase %s, contract %q", n.Phase, n.ContractID)
	}
	return n
}

// The question of the demo, and its answer.
func question(contractID string, more ...string) []string {
	return append([]string{
		"query", "--contract", contractID, "--aggregate", "avg(order_value)", "--aggregate", "count()", "--group-by", "region",
		"--filter", "order_date between 2025-07-01 and 2025-09-30", "--order-by", "region", "--json",
	}, more...)
}

const answerRows = `[["East","123.899437",71],["North","111.444333",60],["South","87.716949",59],["West","104.249831",59]]`

func (w *world) checkAnswer(r ran) {
	w.t.Helper()
	if r.code != 0 {
		w.t.Fatalf("query: %v", r)
	}
	rows, err := json.Marshal(decodeInto[httpapi.QueryResult](w.t, r.stdout).Rows)
	if err != nil || string(rows) != answerRows {
		w.t.Fatalf("answered %s (%v), want %s", rows, err, answerRows)
	}
}

// ask puts the question and checks the answer.
func (w *world) ask(contractID string) {
	w.t.Helper()
	w.checkAnswer(w.run(buyer, question(contractID)...))
}

// contracts are a company's contracts of one conversation; "" for all.
func (w *world) contracts(name, contextID string) []httpapi.Contract {
	w.t.Helper()
	var all []httpapi.Contract
	if err := w.admin(name).Get(w.t.Context(), "/contracts", &all); err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return slices.DeleteFunc(all, func(c httpapi.Contract) bool { return contextID != "" && c.ContextID != contextID })
}

// events reads a company's log after a head and checks the chain from there.
func (w *world) events(name string, from ledger.Head) (list []ledger.Event, head ledger.Head) {
	w.t.Helper()
	err := w.admin(name).Events(w.t.Context(), from.Seq, false, func(e ledger.Event) error {
		list = append(list, e)
		return nil
	})
	if err == nil {
		head, err = ledger.VerifyChain(from, list)
	}
	if err != nil {
		w.t.Fatalf("%s's log: %v", name, err)
	}
	return list, head
}

// genesis is where a company's log begins.
func (w *world) genesis(name string) ledger.Head {
	w.t.Helper()
	var s httpapi.Status
	if err := w.admin(name).Get(w.t.Context(), "/status", &s); err != nil {
		w.t.Fatal(err)
	}
	if len(s.Former) > 0 { // the log is that of the DID that the node began with
		return ledger.Genesis(s.Former[0].DID)
	}
	return ledger.Genesis(s.DID)
}

// verifyEvidence exports a contract's evidence from one side and checks it as a third party would.
func (w *world) verifyEvidence(name, contractID string) {
	w.t.Helper()
	var bundle []byte
	if err := w.admin(name).Get(w.t.Context(), "/contracts/"+contractID+"/evidence", &bundle); err != nil {
		w.t.Fatalf("%s: evidence of %s: %v", name, contractID, err)
	}
	r, err := verifyData(bundle)
	if err != nil || !r.OK {
		w.t.Fatalf("%s: evidence of %s: %v %+v", name, contractID, err, r)
	}
}

// logs prints the end of what the processes said.
func (w *world) logs() {
	files, _ := filepath.Glob(w.path("*.log"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		w.t.Logf("%s:\n%s", filepath.Base(f), data[max(0, len(data)-4000):])
	}
}
