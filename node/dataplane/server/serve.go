// SPDX-License-Identifier: Apache-2.0

// Package server composes the data plane as a process: its folder, configuration and key, the store, the resolver, the
// listener, and an engine that the caller supplies. It is pure Go; the engine need not be.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
	"github.com/treaty-node/treaty/did/resolver"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/dataplane"
	"github.com/treaty-node/treaty/node/dataplane/csvimport"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/internal/inflight"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/node/store/sqlite"
	"github.com/treaty-node/treaty/node/succession"
	"github.com/treaty-node/treaty/wellknown"
)

const (
	// Path is where the MCP endpoint stands.
	Path = "/mcp"
	// process is the data plane's name in the company's event log.
	process = "dataplane"
	// drain is how long calls under way may take when the process is told to stop.
	drain = 15 * time.Second
)

// Engine is a source that datasets are loaded into and that is then locked.
type Engine interface {
	source.Source
	Load(ctx context.Context, id string, d dataset.Dataset, dir string) (*csvimport.Report, error)
	Lock(ctx context.Context) error
	Close() error
}

// Options of Serve.
type Options struct {
	Build string // names the build in health answers and the event log
	Log   *slog.Logger
	Open  func(ctx context.Context, l Limits, log *slog.Logger) (Engine, error)
	// Prompt asks a person for the passphrase of the receipt key; nil when there is no terminal.
	Prompt func(question string) (string, error)
}

// Serve runs the data plane of a folder until ctx ends. It answers only once every dataset is loaded, the engine is locked and
// a real tools/list succeeded.
func Serve(ctx context.Context, dir string, o Options) (err error) {
	log := o.Log
	l, err := Load(dir, time.Now())
	if err != nil {
		return err
	}
	key, signer, err := l.receiptKey(o.Prompt)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(l.Path(l.TLS.Cert), l.Path(l.TLS.Key))
	if err != nil {
		return configError("tls: %w", err)
	}
	listener, err := listen(ctx, l.Listen) // first, so that a second data plane does not load for nothing
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // closed by the server before
	db, err := sqlite.OpenExisting(ctx, l.Path(l.Store), sqlite.Options{Process: process})
	if err != nil {
		return fmt.Errorf("store: %w (the vendor's node makes it: treaty init)", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	secure, err := clock.NewSecure(ctx, clock.System{}, store.ClockFloor(db))
	if err != nil {
		return err
	}
	files, err := o.Open(ctx, l.Limits, log)
	if err != nil {
		return err
	}
	engine, err := newSources(files, l.Limits, l.Path, log)
	if err != nil {
		return errors.Join(err, files.Close())
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if err := l.loadDatasets(ctx, db, engine, o); err != nil {
		return err
	}
	documents := l.documents(db, secure)
	revoked, err := openRevocations(l.Path(revokedFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, revoked.Close()) }()
	service, err := l.service(db, engine, documents, signer, secure, revoked, o)
	if err != nil {
		return err
	}
	public, err := l.handler(documents, service, secure, o)
	if err != nil {
		return err
	}
	raw, err := document(ctx, l.DID, l.URL, key, signer)
	if err != nil {
		return err
	}
	mux, err := l.routes(raw, public)
	if err != nil {
		return err
	}
	if h := public.Check(ctx); h.Status != "ok" {
		return fmt.Errorf("not healthy: %s", h.Problem)
	}
	server := &http.Server{
		Handler: inflight.Limit(maxUnderWay, maxOfClient, resolver.ChargeClients(mux)), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}},
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		WriteTimeout: l.Limits.writeTime(),                              // from the end of the request's header: waiting, the query, and a slow reader
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelDebug), // handshakes of strangers
	}
	operating, stop := context.WithCancel(ctx)
	var background sync.WaitGroup // ends before what it uses is closed
	defer background.Wait()
	defer stop()
	background.Go(func() { service.Watch(operating, operateEvery) })
	go (&operator{db: db, calls: service, now: secure.Now, log: log}).run(operating)
	log.Info("serving", "did", l.DID.String(), "url", l.URL, "listen", listener.Addr().String(), "build", o.Build)
	return untilStopped(ctx, server, listener, secure, log)
}

// untilStopped serves until ctx ends, then lets calls under way finish.
func untilStopped(ctx context.Context, server *http.Server, listener net.Listener, secure *clock.Secure, log *slog.Logger) error {
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	ticker := time.NewTicker(5 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case <-ticker.C:
			if err := secure.Persist(ctx, false); err != nil {
				log.Error("keeping the time", "error", err)
			}
		case <-ctx.Done():
			log.Info("stopping", "drain", drain)
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
			defer cancel()
			err := server.Shutdown(end)
			if errors.Is(err, context.DeadlineExceeded) {
				err = server.Close() // calls that did not end in time; their clients see a connection error
			}
			return errors.Join(err, secure.Persist(end, true))
		}
	}
}

// listen says plainly when somebody else has the address.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, configError("%s is taken by another program: the data plane is not up; stop that program or change listen in %s", addr, ConfigFile)
	}
	return l, err
}

var levels = map[csvimport.Level]slog.Level{csvimport.Error: slog.LevelError, csvimport.Warning: slog.LevelWarn, csvimport.Info: slog.LevelInfo}

// loadDatasets imports every dataset, records it, and locks the engine.
func (c *Config) loadDatasets(ctx context.Context, db store.Store, engine Engine, o Options) error {
	entries := []ledger.Entry{{Type: ledger.NodeStarted, Data: ledger.Started{Build: o.Build}}}
	for _, id := range slices.Sorted(maps.Keys(c.Sets)) {
		rep, err := engine.Load(ctx, id, c.Sets[id], c.DataDir)
		if rep != nil {
			for _, f := range rep.Findings {
				o.Log.Log(ctx, levels[f.Level], "import", "dataset", id, "code", f.Code, "line", f.Line, "column", f.Column, "count", f.Count, "text", f.Text)
			}
		}
		if err != nil {
			return fmt.Errorf("%w (treaty-dataplane import --dataset %s shows the whole report)", err, id)
		}
		o.Log.Info("dataset loaded", "dataset", id, "rows", rep.Rows, "columns", len(c.Sets[id].Columns))
		entries = append(entries, ledger.Entry{Type: ledger.DatasetImported, Data: ledger.Imported{Dataset: id, Rows: rep.Rows, Columns: len(c.Sets[id].Columns)}})
	}
	if err := engine.Lock(ctx); err != nil {
		return err
	}
	return db.Update(ctx, func(tx store.Tx) error {
		for _, e := range entries {
			if _, err := tx.Append(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// service composes the decisions.
func (c *Config) service(db *sqlite.DB, engine Engine, documents *resolver.Resolver, signer did.Signer, secure *clock.Secure, revoked *revocations, o Options) (*dataplane.Service, error) {
	noise, err := c.noiseSecret()
	if err != nil {
		return nil, err
	}
	follow := succession.Config{Walker: documents, Store: db, Now: secure.Now}
	if c.Trust != nil {
		follow.Accepts, follow.Admit = c.Trust.AcceptsSuccession, c.Trust.AdmitLine
	}
	service, err := dataplane.New(dataplane.Options{
		Lines: succession.New(follow),
		Store: db, Source: engine, Datasets: c.Sets, Signer: signer, Vendors: c.vendors, Ceiling: c.Ceiling,
		MaxRows: c.Limits.MaxRows, Log: o.Log, Now: secure.Now, NoiseSecret: noise, Revoked: revoked.ids, Remember: revoked.remember,
		Slots: dataplane.Slots{Concurrent: c.Limits.Concurrent, PerBuyer: c.Limits.PerBuyer, Wait: c.Limits.queryTime()},
	})
	if err != nil {
		return nil, configError("%w", err)
	}
	return service, nil
}

// admit says whose documents and calls are looked at. Who claims to follow somebody that is looked at is looked at too: without a
// contract that it can have, it gets nothing.
func (c *Config) admit(id did.DID) error {
	if c.Trust == nil {
		return nil
	}
	return c.Trust.AdmitClaim(id)
}

// documents makes the resolver of everybody's documents.
func (c *Config) documents(db *sqlite.DB, secure *clock.Secure) *resolver.Resolver {
	client := fetch.NewClient(fetch.Config{Hosts: c.Hosts, RootCAs: c.roots, MaxRedirects: maxRedirects})
	client.Transport = newFetching(client.Transport, db, secure.Now)
	return resolver.New(resolver.Options{Client: client, Pins: db, Admit: c.admit, Now: secure.Now})
}

// handler composes what is public: request verification, the endpoint.
func (c *Config) handler(documents *resolver.Resolver, service *dataplane.Service, secure *clock.Secure, o Options) (*dataplane.Handler, error) {
	verifier, err := httpsig.NewVerifier(httpsig.Options{
		Origins: []string{c.origin}, Resolver: succession.Callers{Resolver: documents}, Nonces: httpsig.NewMemoryNonces(httpsig.MemoryNonceOptions{}),
		Now: secure.Now, NotBefore: secure.Now(), Admit: c.admit, MaxBody: maxRequest,
	})
	if err != nil {
		return nil, err
	}
	return dataplane.NewHandler(service, dataplane.HandlerOptions{
		Authenticate: verifier.Middleware, Origins: []string{c.origin}, MaxBody: maxRequest, PerMinute: c.Limits.PerMinute, Build: o.Build,
	})
}

const (
	maxUnderWay  = 512       // requests
	maxOfClient  = 128       // of them from one address, or /64 of IPv6
	maxRequest   = 256 << 10 // bytes of a request's body
	maxRedirects = 3         // followed for a document, all within its origin
)

// routes are everything that this process serves.
func (c *Config) routes(didDocument []byte, public *dataplane.Handler) (http.Handler, error) {
	doc, err := wellknown.DIDDocument(didDocument)
	if err != nil {
		return nil, err
	}
	site, err := wellknown.NewSite(5*time.Minute, doc)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(Path, public)
	mux.HandleFunc("/healthz", public.Healthz)
	for _, p := range site.Paths() {
		mux.Handle(p, site)
	}
	return mux, nil
}
