// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/resolver/fetch"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/internal/clock"
	"github.com/treaty-node/treaty/node/ledger"
	"github.com/treaty-node/treaty/node/store"
	"github.com/treaty-node/treaty/wellknown"
)

const (
	weMend = "" // what to do is said in the imperative
	// maxClockPeers bounds how many counterparties' clocks are looked at.
	maxClockPeers = 5
)

// DoctorOffline examines a folder on which no node is running: what can be seen in files.
func DoctorOffline(dir string) httpapi.Diagnosis {
	e := &examination{}
	e.fail("node", "`treaty serve --dir "+dir+"`", "no node is running on this folder; what peers see cannot be examined")
	cfg, err := LoadConfig(dir)
	if err != nil {
		e.fail("configuration", "mend "+filepath.Join(dir, ConfigFile), "%v", err)
		return e.diagnosis(dir)
	}
	e.ok("configuration", "%s", filepath.Join(dir, ConfigFile))
	e.files(dir, cfg)
	return e.diagnosis(cfg.Domain)
}

// self examines the running node: its files, its store, and what others see of it.
func (e *examination) self(ctx context.Context) {
	n := e.n
	e.ok("node", "running as %s, build %s", n.self(), Version)
	e.files(n.dir, n.cfg)
	e.socket(filepath.Join(n.dir, AdminSocket))
	e.signer(ctx)
	e.chain(ctx)
	e.ownDocuments(ctx)
	e.formerDocuments(ctx)
	e.ownCard(ctx)
	e.clocks(ctx)
	e.decider(ctx)
	e.drills(ctx)
	if n.offer == nil {
		e.ok("data plane", "none: no dataset is on offer")
		return
	}
	id, err := did.Parse(n.cfg.DataPlane.DID)
	if err != nil {
		e.fail("data plane", "mend data_plane.did in "+ConfigFile, "%v", err)
		return
	}
	e.plane(ctx, id, n.cfg.DataPlane.URL, weMend)
}

// files looks at who can read and change what is secret, and at the certificate file.
func (e *examination) files(dir string, cfg *Config) {
	const name = "file modes"
	bad := len(e.checks)
	private := func(path string, status func(name, mend, format string, args ...any), forbidden fs.FileMode, chmod string) {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			status(name, "", "%v", err)
		case info.Mode().Perm()&forbidden != 0:
			status(name, "chmod "+chmod+" "+path, "%s has mode %04o: others can use it", path, info.Mode().Perm())
		}
	}
	keys := filepath.Join(dir, KeysDir)
	private(keys, e.fail, 0o077, "700")
	entries, err := os.ReadDir(keys)
	if err != nil {
		e.fail("key files", "restore the folder's keys from a backup", "%v", err)
	}
	for _, f := range entries {
		private(filepath.Join(keys, f.Name()), e.fail, 0o077, "600")
	}
	for _, f := range []string{cfg.Keys.Identity, cfg.Keys.PassphraseFile, cfg.Decider.APIKeyFile} {
		if f != "" {
			private(Path(dir, f), e.fail, 0o077, "600")
		}
	}
	private(Path(dir, cfg.TLS.Key), e.warn, 0o077, "600")
	for _, f := range []string{StoreFile, StoreFile + "-wal", StoreFile + "-shm"} {
		private(filepath.Join(dir, f), e.warn, 0o077, "600")
	}
	if len(e.checks) == bad {
		e.ok(name, "keys, certificate key and store are this user's alone")
	}
	e.certificateFile(Path(dir, cfg.TLS.Cert), cfg.Domain)
}

func (e *examination) certificateFile(path, domain string) {
	const name = "certificate file"
	data, err := os.ReadFile(path)
	if err != nil {
		e.fail(name, "tls.cert in "+ConfigFile+" names the certificate chain", "%v", err)
		return
	}
	block, _ := pem.Decode(data)
	if block == nil {
		e.fail(name, "put a certificate chain in PEM there", "%s holds no certificate", path)
		return
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err == nil {
		err = leaf.VerifyHostname(domain)
	}
	if err != nil {
		e.fail(name, "get a certificate with "+domain+" as a dNSName", "%s: %v", path, err)
		return
	}
	now := clock.System{}.Now()
	switch left := leaf.NotAfter.Sub(now); {
	case left <= 0:
		e.fail(name, "renew it, then restart the node", "%s ended %s", path, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		e.fail(name, "check this machine's clock", "%s begins %s", path, leaf.NotBefore.UTC().Format(time.RFC3339))
	case left < certificateWarning:
		e.warn(name, "renew it, then restart the node", "%s ends %s, in %d days", path, leaf.NotAfter.UTC().Format(time.RFC3339), int(left.Hours()/24))
	default:
		e.ok(name, "for %v, until %s", leaf.DNSNames, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
}

func (e *examination) socket(path string) {
	const name = "admin socket"
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		e.fail(name, "restart the node", "%v", err)
	case info.Mode()&fs.ModeSocket == 0:
		e.fail(name, "remove it and restart the node", "%s is not a socket", path)
	case info.Mode().Perm()&0o177 != 0:
		e.fail(name, "chmod 600 "+path, "%s has mode %04o: others can make this node sign", path, info.Mode().Perm())
	default:
		e.ok(name, "%s, mode %04o", path, info.Mode().Perm())
	}
}

// signer asks whether the binding key can be used, when it is behind a remote signer.
func (e *examination) signer(ctx context.Context) {
	const name = "signer"
	own := e.n.id().own
	if own.client == nil {
		return
	}
	if err := own.ready(ctx); err != nil {
		e.fail(name, "start treaty-signer", "%v", err)
		return
	}
	e.ok(name, "%s is at %s", own.remote.KeyID(), own.client.Path())
}

// chain walks the whole event log.
func (e *examination) chain(ctx context.Context) {
	const name = "event log"
	const mend = "keep the store as it is for whoever finds out what happened, and `treaty restore` a backup into a new folder"
	at := ledger.Genesis(e.n.db.Node())
	for {
		var events []ledger.Event
		err := e.n.db.View(ctx, func(tx store.Tx) (err error) {
			events, err = tx.Events(at.Seq, store.MaxList)
			return err
		})
		if err == nil {
			at, err = ledger.VerifyChain(at, events)
		}
		if err != nil {
			e.fail(name, mend, "%v", err)
			return
		}
		if len(events) < store.MaxList {
			break
		}
	}
	e.ok(name, "%d events, the chain holds, head %s", at.Seq, at.Hash)
}

// ownDocuments compares what the internet gets with what this node means to publish.
func (e *examination) ownDocuments(ctx context.Context) {
	const mend = "check DNS, the proxy in front of this node, and hosts in " + ConfigFile
	for i, doc := range []*did.Document{e.n.id().agent, e.n.id().service} {
		name := [...]string{"agent document", "service document"}[i]
		if v, err := doc.Verify(e.n.clock.Now()); err != nil {
			e.fail(name, "restore did/ from a backup", "%v", err)
			continue
		} else if err := doc.CheckRoles(); err != nil {
			e.fail(name, "give each role a key of its own", "%v", err)
			continue
		} else if doc.Deactivated() {
			e.fail(name, "contract as "+doc.SuccessorDID().String(), "%s is deactivated", doc.ID())
			continue
		} else {
			e.ok(name, "profile %s, proof dialect %s, no key has two roles", v.Profile, v.Dialect)
		}
		where := doc.ID().DocumentURL()
		s, err := e.n.look(ctx, where, did.MaxDocumentBytes)
		if err != nil {
			if !e.certificate("public certificate", weMend, nil, err) {
				e.fail("reachability", mend, "%s: %v", where, err)
			}
			continue
		}
		if i == 0 {
			e.certificate("public certificate", weMend, s, nil)
			e.skew("public clock", s)
		}
		if s.status != 200 || !bytes.Equal(s.body, doc.Raw()) {
			e.fail("reachability", mend, "%s answers with status %d and something else than this node's document", where, s.status)
			continue
		}
		e.ok("reachability", "%s is what this node publishes", where)
	}
}

// formerDocuments looks whether the DIDs that this node had before still lead to it.
func (e *examination) formerDocuments(ctx context.Context) {
	const name = "former DID"
	id := e.n.id()
	for i, doc := range id.former {
		where := doc.ID().DocumentURL()
		s, err := e.n.look(ctx, where, did.MaxDocumentBytes)
		switch {
		case err != nil:
			e.fail(name, "see reachability above", "%s: %v", where, err)
		case s.status != 200 || !bytes.Equal(s.body, doc.Raw()):
			e.fail(name, "let this node, or did/former, answer there: counterparties find the way by it", "%s answers with status %d and something else than the document that names its successor", where, s.status)
		case !id.rec.Former[i].CompromisedSince.IsZero():
			e.ok(name, "%s leads to %s; somebody else may have had its key since %s", doc.ID(), doc.SuccessorDID(), stamp(id.rec.Former[i].CompromisedSince))
		default:
			e.ok(name, "%s leads to %s", doc.ID(), doc.SuccessorDID())
		}
	}
	if who := e.n.outdated.Load(); who != nil {
		e.warn("identity", "if this folder was restored from a backup, restore a later one; `treaty doctor --peer "+*who+"` asks again", "%s says that %s has a successor", *who, id.agent.ID())
	}
}

func (e *examination) ownCard(ctx context.Context) {
	const name = "agent card"
	where := "https://" + e.n.cfg.Domain + wellknown.PathAgentCard
	raw, _, err := fetch.Get(ctx, e.n.client, where, wellknown.MaxCardBytes)
	if err != nil {
		e.fail(name, "check DNS and the proxy in front of this node", "%v", err)
		return
	}
	card, err := wellknown.VerifyCard(raw, e.n.id().agent, e.n.clock.Now())
	if err == nil {
		_, err = card.Negotiation()
	}
	if err != nil {
		e.fail(name, "restart the node; something between it and the internet may change its answers", "%s: %v", where, err)
		return
	}
	e.ok(name, "signed by %s", card.KeyID)
}

// clocks compares this machine's clock with those of counterparties that it knows.
func (e *examination) clocks(ctx context.Context) {
	if ahead := e.n.clock.Ahead(); ahead > time.Second {
		e.warn("clock", "set this machine's clock by NTP", "the machine's clock was set back: it is %s behind a time this node has seen", ahead.Round(time.Second))
	}
	domains := map[string]did.DID{}
	var order []string
	err := e.n.db.View(ctx, func(tx store.Tx) error {
		all, err := conversationsOf(tx, e.n.id().names(), store.ConversationFilter{Limit: 100})
		for _, c := range all {
			id, parseErr := did.Parse(c.Peer)
			if _, have := domains[id.Domain()]; parseErr != nil || have || len(domains) == maxClockPeers || e.n.trust.Admit(id) != nil {
				continue
			}
			domains[id.Domain()] = id
			order = append(order, id.Domain())
		}
		return err
	})
	if err != nil {
		e.fail("store", "look into the node's log", "%v", err)
		return
	}
	if len(order) == 0 {
		e.ok("counterparties' clocks", "no counterparty is known yet; `treaty doctor --peer` compares with one")
	}
	for _, domain := range order {
		s, err := e.n.look(ctx, domains[domain].DocumentURL(), did.MaxDocumentBytes)
		if err != nil {
			e.warn("clock of "+domain, "`treaty doctor --peer "+domain+"` says more", "%v", err)
			continue
		}
		e.skew("clock of "+domain, s)
	}
}
