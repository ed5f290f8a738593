// SPDX-License-Identifier: Apache-2.0

// Package node composes a company's trust node: it reads the configuration, checks the node's identity, builds the parts,
// wires them, runs them and stops them. The parts decide; this package decides nothing.
//
// What it guarantees: a node does not start on documents or keys that a peer would refuse, on a store that is missing, or on
// a port that something else holds; the admin interface is a Unix socket that only the node's user can open; whatever a
// peer names is fetched by the one guarded client.
package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/gateway/a2a"
	"github.com/treaty-node/treaty/node/gateway/anp"
	"github.com/treaty-node/treaty/node/gateway/mcp"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/trust"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/lifecycle"
	"github.com/treaty-node/treaty/node/negotiation"
	"github.com/treaty-node/treaty/node/negotiation/decider"
	"github.com/treaty-node/treaty/node/notice"
	"github.com/treaty-node/treaty/node/signer"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
	"github.com/treaty-node/treaty/node/succession"
)

// Version names the build; the Makefile sets it.
var Version = "development"

// Service is the name that health checks answer with.
const Service = "treaty"

const (
	skew        = 30 * time.Second
	sweepEvery  = 5 * time.Second
	notifyEvery = time.Second
	drainFor    = 5 * time.Second
	documentAge = time.Minute // what caches are told about public documents
	maxSocket   = 104         // bytes of a Unix socket's path that every system takes
	socketUmask = 0o177
	maxAnswer   = 40 << 20 // bytes of a data plane's answer

	maxRedirects = 3 // followed for a document, all within its origin
)

// Options of a node process.
type Options struct {
	Log     *slog.Logger
	Process string // name in the event log
	// Prompt asks a person for a passphrase; nil when there is no terminal. See Keys.
	Prompt func(question string) (string, error)
	Clock  clock.Clock // nil: the machine's
}

// Node is an open node. Close it, or Run it, which closes it.
type Node struct {
	dir      string
	cfg      *Config
	log      *slog.Logger
	clock    *clock.Secure
	db       *sqlite.DB
	live     atomic.Pointer[identity]
	changing sync.Mutex // orders changes of live
	rotating sync.Mutex // one rotation at a time
	trust    *trust.Live
	trustMu  sync.Mutex // orders changes of trust
	resolver *resolver.Resolver
	client   *http.Client   // guarded, unsigned: documents and cards
	signed   *http.Client   // guarded, signed by the binding key: A2A
	data     *http.Client   // the same for data planes: larger answers, more time
	offer    *catalogue     // nil: no dataset on offer
	model    *decider.Model // nil: code decides alone
	nego     *negotiation.Service
	notices  *notice.Service
	ending   *lifecycle.Service
	drills   *drills
	public   http.Handler

	unwritable atomic.Bool // the last attempt to write the store on our own account failed
	agent      *a2a.Server

	lines    *succession.Service // follows counterparties
	verifier *httpsig.Verifier   // of requests

	// stale: the store has another identity than this process, as a transaction has seen.
	stale atomic.Bool
	// outdated is who has said that this node's DID has a successor, "" when nobody has.
	outdated atomic.Pointer[string]

	// recovering: keys may be missing, since this is not a node that runs but one whose identity is being moved.
	recovering bool

	driving sync.WaitGroup
	life    context.Context //nolint:containedctx // the time the node runs: conversations outlive the request that starts them
	stop    context.CancelFunc
}

// Open reads the folder and builds the node. Nothing is listened on before Run.
func Open(ctx context.Context, dir string, o Options) (*Node, error) {
	cfg, err := LoadConfig(dir)
	if err != nil {
		return nil, usageError(err)
	}
	n := &Node{dir: dir, cfg: cfg, log: o.Log, trust: trust.NewLive(cfg.Trust)}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	folder, err := n.openFolder(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := n.build(ctx, o.Clock, folder); err != nil {
		return nil, errors.Join(err, n.db.Close())
	}
	return n, nil
}

// openFolder reads documents and keys, and opens the store.
func (n *Node) openFolder(ctx context.Context, o Options) (*folder, error) {
	f, err := loadFolder(n.dir, n.cfg, o, o.Clock.Now())
	if err != nil {
		return nil, usageError(err)
	}
	n.db, err = sqlite.OpenExisting(ctx, filepath.Join(n.dir, StoreFile), sqlite.Options{Process: o.Process, Clock: o.Clock})
	if err != nil {
		return nil, usageError(fmt.Errorf("store: %w (a missing store is never made anew: `treaty restore` puts a backup in its place)", err))
	}
	// The log is the first DID's for ever; whether the others lead there, reconcile says.
	if first, err := did.Parse(n.db.Node()); err != nil || first.StableSubject() != f.agent.ID().StableSubject() {
		return nil, errors.Join(usageError(fmt.Errorf("store: %w: %s", sqlite.ErrWrongNode, n.db.Node())), n.db.Close())
	}
	return f, nil
}

// usageError is the operator's to mend, but for a signer that is away: that mends itself, and starting again makes sense.
func usageError(err error) error {
	if errors.Is(err, did.ErrSignerUnavailable) && !errors.Is(err, signer.ErrSocket) {
		return httpapi.AsError(err)
	}
	return &httpapi.Error{Kind: httpapi.KindUsage, Message: err.Error()}
}

// id is who the node is at the moment. What has to fit together comes from one call.
func (n *Node) id() *identity { return n.live.Load() }

func (n *Node) self() did.DID { return n.id().agent.ID() }

func (n *Node) build(ctx context.Context, base clock.Clock, f *folder) (err error) {
	n.life, n.stop = context.WithCancel(context.Background())
	n.drills = &drills{n: n}
	if n.clock, err = clock.NewSecure(ctx, base, store.ClockFloor(n.db)); err != nil {
		return err
	}
	id, err := n.reconcile(ctx, f, n.clock.Now())
	if err != nil {
		return usageError(err)
	}
	n.live.Store(id)
	if err := n.loadTrust(ctx); err != nil {
		return err
	}
	guard, err := n.cfg.FetchConfig(n.dir)
	if err != nil {
		return usageError(err)
	}
	if err := guard.Validate(); err != nil {
		return usageError(err)
	}
	n.signed = n.signing(guard)
	unsigned := guard
	unsigned.MaxRedirects = maxRedirects // within one origin; a signed request follows none
	n.client = fetch.NewClient(unsigned)
	guard.Timeout, guard.MaxBody = mcp.Timeout, maxAnswer
	n.data = n.signing(guard)
	n.resolver = resolver.New(resolver.Options{
		Client: n.client, Pins: n.db, Admit: n.admit, Now: n.clock.Now, Timeout: n.cfg.Limits.PeerTimeout, AcceptKeyChanges: n.cfg.Resolver.AcceptKeyChanges,
	})
	n.lines = n.newLines()
	if n.cfg.Datasets != "" {
		if n.offer, err = loadCatalogue(n.dir, n.cfg); err != nil {
			return usageError(err)
		}
		n.offer.lineage = n.lineage
	}
	nego := negotiation.Config{
		Keys: n.keys, Speaks: n.speaksAs, Store: n.db, Resolver: n.resolver,
		Contracts: n.mayContract, Lines: n.lines,
		Meta: n.cfg.MetaPolicy, Connector: n, Now: n.clock.Now, Skew: skew,
		Lifetime: n.cfg.Limits.MessageLifetime, Deadline: n.cfg.Limits.NegotiationTimeout, Log: n.log,
	}
	if n.offer != nil {
		nego.Decider = n.offer
	}
	if n.model, err = n.openModel(); err != nil {
		return usageError(err)
	}
	nego.Amendments = replacing{n}
	n.advised(&nego)
	n.nego = negotiation.New(nego)
	n.notices = n.newNotices()
	n.notices.Handle(noticeSuccessor, n.noticeOfMove)
	n.notices.Handle(noticeCompromised, n.noticeOfMove)
	n.ending = n.newLifecycle()
	n.drills.register()
	n.public, err = n.publicHandler(ctx)
	return err
}

// signing is the guarded client whose every request carries this node's signature.
func (n *Node) signing(guard fetch.Config) *http.Client {
	return &http.Client{
		Transport: &httpsig.Transport{Base: fetch.NewTransport(guard), Signer: n.requestSigner, Now: n.clock.Now},
		Timeout:   guard.Timeout,
	}
}

// publicHandler builds what the internet sees.
func (n *Node) publicHandler(ctx context.Context) (_ http.Handler, err error) {
	origin := "https://" + n.cfg.Domain
	if err := n.publish(ctx, n.id(), nil); err != nil {
		return nil, err
	}
	n.verifier, err = httpsig.NewVerifier(httpsig.Options{
		Origins: []string{origin}, Resolver: succession.Callers{Resolver: n.resolver}, Now: n.clock.Now, Skew: skew, NotBefore: n.clock.Now(),
		Nonces: httpsig.NewMemoryNonces(httpsig.MemoryNonceOptions{Now: n.clock.Now}),
		Admit:  n.admitCaller,
		HighS:  n.cfg.Compat.HighS,
	})
	if err != nil {
		return nil, err
	}
	n.agent, err = a2a.New(a2a.Config{
		Negotiator: negotiator{n.nego, n.drills.addressed, n.db, func() []string { return n.id().names() }}, Tasks: a2a.StoreTasks(n.db), Now: n.clock.Now, Logger: n.log,
		Describe: func(context.Context) (a2a.Answer, error) { return n.id().described.answer, nil },
		Push:     &a2a.Push{Store: n.db, Client: n.client, CheckURL: func(u *url.URL) error { return fetch.CheckURL(u) }},
		Extended: n.extendedCard, Delegate: n.delegate(), Legacy: n.cfg.Compat.A2AV03,
	})
	if err != nil {
		return nil, err
	}
	messages, err := anp.Handler(anp.Config{
		Service: n.id().service.ID(), Agents: func(asked did.DID) (did.DID, bool) { id := n.id(); return id.agent.ID(), id.owns(asked) }, Verifier: n.verifier,
		Speaks: func() any { return n.speaks() }, Methods: []anp.Method{n.negotiable()}, Now: n.clock.Now, Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	agent, err := n.cfg.Compat.optional(n.verifier, n.known(n.agent))
	if err != nil {
		return nil, err
	}
	public := httpapi.PublicHandler(httpapi.Public{
		Site: n.current(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.id().site.ServeHTTP(w, r) })), Published: n.published,
		A2A: n.current(agent), ANP: n.current(n.verifier.Optional(n.known(messages))),
		Health: func() httpapi.Health { return httpapi.Health{Service: Service, Build: Version, DID: n.self().String()} },
		Ready:  n.ready,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !n.drills.serves(w, r) {
			public.ServeHTTP(w, r)
		}
	}), nil
}

// ready says what is missing for the node to work, nil when nothing is.
func (n *Node) ready(ctx context.Context) error {
	if err := n.id().own.ready(ctx); err != nil {
		return err
	}
	if n.unwritable.Load() {
		return errUnwritable
	}
	return n.db.View(ctx, func(tx store.Tx) error {
		_, err := tx.Head()
		return err
	})
}

// errUnwritable: a full disk, for example. Reading may go on for long, and every message be answered with an internal error.
var errUnwritable = errors.New("the store cannot be written")

// Run listens, calls ready when both listeners answer, and serves until ctx ends or something breaks. It closes the node.
func (n *Node) Run(ctx context.Context, ready func()) (err error) {
	defer func() { err = errors.Join(err, n.Close()) }()
	pair, err := tls.LoadX509KeyPair(Path(n.dir, n.cfg.TLS.Cert), Path(n.dir, n.cfg.TLS.Key))
	if err != nil {
		return usageError(fmt.Errorf("tls: %w", err))
	}
	if err := n.checkPublished(ctx); err != nil {
		return err
	}
	public, err := listen(ctx, n.cfg.Listen)
	if err != nil {
		return err
	}
	admin, err := listenAdmin(ctx, filepath.Join(n.dir, AdminSocket))
	if err != nil {
		return errors.Join(err, public.Close())
	}
	publicServer := httpapi.Server(n.public, n.log)
	publicServer.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	adminServer := httpapi.Server(httpapi.AdminHandler(n), n.log)
	adminServer.WriteTimeout, adminServer.ReadTimeout = 0, 0 // followers of the log stay; the socket is the operator's own
	if err := n.record(ctx, ledger.Entry{Type: ledger.NodeStarted, Data: ledger.Started{Build: Version}}); err != nil {
		return errors.Join(err, public.Close(), admin.Close())
	}
	if err := n.resume(ctx); err != nil {
		return errors.Join(err, public.Close(), admin.Close())
	}

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return serving(publicServer.ServeTLS(public, "", "")) })
	g.Go(func() error { return serving(adminServer.Serve(admin)) })
	every := func(d time.Duration, f func(context.Context)) {
		g.Go(func() error { clock.Every(gctx, d, f); return nil })
	}
	every(sweepEvery, n.housekeeping)
	every(identityEvery, n.keepIdentity())
	every(scheduleLook, n.drills.keepSchedule)
	every(notifyEvery, n.notifyTasks)
	g.Go(func() error { return n.notices.Run(gctx) })
	g.Go(func() error {
		<-gctx.Done()
		n.stop()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
		defer cancel()
		// Followers of the event log never leave by themselves.
		err := publicServer.Shutdown(drain)
		if errors.Is(err, context.DeadlineExceeded) {
			err = publicServer.Close() // requests that did not end in time, and connections on which nothing was asked yet
		}
		return errors.Join(err, adminServer.Close())
	})
	ready()
	return g.Wait()
}

func serving(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends what runs and closes the store.
func (n *Node) Close() error {
	n.stop()
	n.driving.Wait()
	persist := n.clock.Persist(context.Background(), true)
	return errors.Join(persist, n.db.Close())
}

// housekeeping ends conversations whose time is up and keeps the clock's floor.
func (n *Node) housekeeping(ctx context.Context) {
	if err := n.nego.Sweep(ctx); err != nil && ctx.Err() == nil {
		n.log.Error("sweep", "err", err)
	}
	if err := n.concludeAll(ctx); err != nil && ctx.Err() == nil {
		n.log.Error("proposals that wait for their answer", "err", err)
	}
	if err := n.clock.Persist(ctx, false); ctx.Err() == nil {
		n.kept(err)
	}
	if err := n.db.Scrub(ctx); err != nil && ctx.Err() == nil {
		n.log.Error("overwriting the session keys of conversations that have ended", "err", err)
	}
	if err := n.forget(ctx); err != nil && ctx.Err() == nil {
		n.log.Error("deleting answers whose retention has ended", "err", err)
	}
}

// notifyTasks tells callers who asked for it what became of their tasks.
func (n *Node) notifyTasks(ctx context.Context) {
	if err := n.agent.Notify(ctx); err != nil && ctx.Err() == nil {
		n.log.Error("push notifications", "err", err)
	}
}

// kept notes whether the clock's floor could be: the one thing that is written whether or not anybody calls. Where it cannot be
// written, nothing can.
func (n *Node) kept(err error) {
	if err != nil {
		n.log.Error("clock", "err", err)
	}
	n.unwritable.Store(err != nil)
}

// forget deletes received data whose retention has ended, the contract's promise, and states that it did.
func (n *Node) forget(ctx context.Context) error {
	_, err := n.ending.Forget(ctx)
	return err
}

// resume goes on with every negotiation that this buyer had not concluded.
func (n *Node) resume(ctx context.Context) error {
	ids, err := n.nego.Unfinished(ctx)
	if err != nil && ctx.Err() == nil {
		// A conversation that cannot be read must not keep the others, and every contract, from going on.
		n.log.Error("negotiations that cannot be taken up again", "err", err)
		err = nil
	}
	for _, id := range ids {
		n.drive(id)
	}
	return errors.Join(err, n.concludeAll(ctx))
}

// drive runs a negotiation in the background for as long as the node runs.
func (n *Node) drive(contextID string) {
	n.driving.Go(func() {
		if err := n.nego.Drive(n.life, contextID); err != nil && n.life.Err() == nil && !errors.Is(err, negotiation.ErrBusy) {
			n.log.Error("negotiation stopped", "contextId", contextID, "err", err)
		}
	})
}

// listen explains a port that is taken.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, usageError(fmt.Errorf("listen: %s is taken by another program; stop it or change listen in %s", addr, ConfigFile))
	}
	if err != nil {
		return nil, usageError(fmt.Errorf("listen: %w", err))
	}
	return l, nil
}

// listenAdmin opens the admin socket, mode 0600 from the start. A socket that nobody answers on is left from a crash and
// replaced; one that answers belongs to a running node.
func listenAdmin(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocket {
		return nil, usageError(fmt.Errorf("admin socket: the path %s is too long for a Unix socket (%d bytes); use a shorter --dir", path, maxSocket))
	}
	if _, err := os.Lstat(path); err == nil {
		var d net.Dialer
		if c, err := d.DialContext(ctx, "unix", path); err == nil {
			return nil, errors.Join(usageError(fmt.Errorf("admin socket: another node is running on this folder (%s)", path)), c.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	old := syscall.Umask(socketUmask)
	defer syscall.Umask(old)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	return l, nil
}

func (n *Node) record(ctx context.Context, entries ...ledger.Entry) error {
	return n.db.Update(ctx, func(tx store.Tx) error {
		for _, e := range entries {
			if _, err := tx.Append(e); err != nil {
				return err
			}
		}
		return nil
	})
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Restore puts a backup in place of a missing store, after checking it. It returns how many events its chain holds.
func Restore(ctx context.Context, dir, backup string) (uint64, error) {
	head, err := sqlite.Restore(ctx, backup, filepath.Join(dir, StoreFile))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return 0, usageError(fmt.Errorf("restore: %w; nothing was changed", err))
	}
	if err != nil {
		return 0, &httpapi.Error{Kind: httpapi.KindVerification, Message: "restore: " + err.Error()}
	}
	return head.Seq, nil
}
