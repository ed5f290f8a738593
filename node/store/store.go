// SPDX-License-Identifier: Apache-2.0

// Package store declares what a company keeps and the promises a store makes about it. node/store/sqlite implements it;
// node/store/storetest is the one suite every implementation passes.
//
// Guarantees
//
//   - Update is serializable and durable: when it returns nil, the effect and its events are on disk and survive kill -9 and
//     a power cut; when it returns an error, nothing of it is there. Several processes may use one store at once: their
//     updates happen one after another, and the event log has one order across all of them.
//   - View sees one consistent state, and cannot change it.
//   - What is final stays final: envelopes, revocations, receipts and activations are written once, a contract's state only
//     moves forward, and events are only appended.
//
// What it does not do: a store keeps bytes and does not judge them. Signatures are checked by who reads (the data plane
// verifies both proofs of a contract itself), so a thief who can write the file can destroy or hide, but not forge. A thief
// who can read it learns negotiations, contracts and stored answers, and no private key.
//
// # Methods of Tx
//
//	Conversations  GetConversation FindConversation PutConversation ListConversations
//	Envelopes      PutEnvelope GetEnvelope ReplyOf LastEnvelope ListEnvelopes
//	Contracts      PutContract GetContract ListContracts PutRevocation GetRevocation Revoked RevokedAfter GetStanding
//	Budgets        Reserve GetUsage
//	Receipts       PutReceipt GetReceipt ListReceipts ReceiptsOf ListResults
//	Answers        PutAnswer GetAnswer ListAnswers DueAnswers DeleteAnswer
//	Statements     PutStatement ListStatements
//	Terms          Draw GetDrawn ReturnRows PutShape DeleteShape ListShapes
//	Log            Append Events FindEvents Head
//	Settings       GetSetting PutSetting
//	Tasks          PutTask GetTask ListTasks
//	Pushes         PutPush GetPush ListPushes DeletePush DuePushes MarkPush
//	Equivocations  PutEquivocation ListEquivocations
//	SessionKeys    PutSessionKeys GetSessionKeys DeleteSessionKeys
//	Successions    PutSuccession OverruleSuccession GetSuccession Lineage
//	Notices        PutNotice GetNotice ListNotices DeleteNoticesBefore KnowsPeer
//
// Declare the subset you need as an interface of your own, or take one of these.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/ledger"
)

var (
	// ErrNotFound: no such record.
	ErrNotFound = errors.New("store: not found")
	// ErrConflict: the record exists, or is at another version, or may not change in this way.
	ErrConflict = errors.New("store: conflict")
	// ErrBudget: the contract's call budget is used up.
	ErrBudget = errors.New("store: budget exhausted")
	// ErrFull: the disk, or the space allowed to the store, is full. Nothing of the transaction was written.
	ErrFull = errors.New("store: no space left")
	// ErrTooMany: there are as many as are kept.
	ErrTooMany = errors.New("store: too many")
	// ErrReadOnly: a write inside View.
	ErrReadOnly = errors.New("store: read-only transaction")
	// ErrCorrupt: what the store holds is not what it wrote.
	ErrCorrupt = errors.New("store: corrupt")
)

// Store is a company's persistent state. It is safe for concurrent use.
type Store interface {
	// Update runs fn in one write transaction and commits it durably. fn's error, or a panic in it, rolls everything back
	// and is returned. fn must not call the store again except through tx, and must not keep tx. It may not be run twice.
	Update(ctx context.Context, fn func(tx Tx) error) error
	// UpdateRelaxed is Update, but for one thing: a power cut (not the end of a process, however it ends) before the next
	// Update of any process has committed may undo it, in whole, with everything after it. That Update makes it durable. It is
	// for what means nothing without a later Update, such as the reservation of a call whose receipt is yet to be written.
	UpdateRelaxed(ctx context.Context, fn func(tx Tx) error) error
	// View runs fn on one consistent state. Writes fail with ErrReadOnly.
	View(ctx context.Context, fn func(tx Tx) error) error
	Close() error
}

// Tx is one transaction. It is bound to the context it was opened with, belongs to one goroutine, and ends with the
// function it was given to.
type Tx interface {
	Conversations
	Envelopes
	Contracts
	Budgets
	Terms
	Receipts
	Answers
	Statements
	Log
	Settings
	Tasks
	Pushes
	Equivocations
	SessionKeys
	Successions
	Notices
}

// MaxList is the number of rows a List or Find method returns when its filter sets no limit, and the most it returns.
const MaxList = 1000

// Conversation is one negotiation, keyed by (Own, Peer, ContextID).
type Conversation struct {
	Own, Peer, ContextID string // DIDs and the conversation's id
	Role                 string // "buyer" or "vendor": what Own is
	TaskID               string // A2A task, empty until there is one; unique per (Own, Peer)
	Phase                string // the session machine's phase, for lists
	Version              int64  // 1 after the first Put
	State                []byte // the session machine's state (JSON), opaque here
	Created, Updated     time.Time
}

// ConversationFilter selects conversations; empty fields match everything.
type ConversationFilter struct {
	Own, Peer, Role, Phase string
	Oldest                 bool // those updated longest ago instead of the newest
	Limit                  int
}

// Conversations keeps the state of negotiations.
type Conversations interface {
	GetConversation(own, peer, contextID string) (Conversation, error)
	// FindConversation looks for a task id first, then for a context id; ErrConflict when several peers use the same one.
	FindConversation(own, contextOrTaskID string) (Conversation, error)
	// PutConversation is a compare-and-swap: expect is the version the caller read (0: there must be none), the stored
	// version becomes expect+1 whatever c.Version says. ErrConflict otherwise. Created is kept from the first Put.
	PutConversation(c Conversation, expect int64) error
	// ListConversations is ordered by last update, newest first or, with Oldest, last.
	ListConversations(f ConversationFilter) ([]Conversation, error)
}

// Direction of an envelope, seen from Own.
const (
	In  = "in"
	Out = "out"
)

// EnvelopeRecord is one message as it was received or sent, byte for byte.
type EnvelopeRecord struct {
	Digest               canon.Digest
	Own, Peer, ContextID string
	Seq                  int64
	Direction            string // In or Out
	Bytes                []byte
	ReplyTo              canon.Digest // Out: the envelope it answers; zero for none
	Created              time.Time
	Plaintext, Salt      []byte // body as opened or sealed, nil when there was none
}

// Envelopes keeps messages. They are written once.
type Envelopes interface {
	// PutEnvelope adds e. ErrConflict when Own already has this digest, or another envelope at the same (Own, Peer,
	// ContextID, Seq, Direction), or another answer to the same ReplyTo.
	PutEnvelope(e EnvelopeRecord) error
	GetEnvelope(own string, digest canon.Digest) (EnvelopeRecord, error)
	// ReplyOf returns the Out envelope whose ReplyTo is digest.
	ReplyOf(own string, digest canon.Digest) (EnvelopeRecord, error)
	// LastEnvelope returns the conversation's Out envelope with the highest Seq.
	LastEnvelope(own, peer, contextID string) (EnvelopeRecord, error)
	// ListEnvelopes returns the whole conversation, ordered by Seq.
	ListEnvelopes(own, peer, contextID string) ([]EnvelopeRecord, error)
}

// States of a contract. They only move down this list, and InForce and Void are never left for one another.
const (
	AwaitingApproval   = "awaiting_approval"
	AwaitingActivation = "awaiting_activation"
	InForce            = "in_force"
	Void               = "void"    // never came into force: late, rejected or withdrawn
	Revoked            = "revoked" // was in force
)

// ContractRecord is a contract as this company holds it.
type ContractRecord struct {
	ID              string
	Digest          canon.Digest // of the contract without proofs
	Role            string       // "buyer" or "vendor": what this company is
	Bytes           []byte       // canonical contract with the proofs there are
	Activation      []byte       // canonical activation; nil before
	State           string
	ContextID, Peer string
	Created         time.Time
}

// ContractFilter selects contracts; empty fields match everything.
type ContractFilter struct {
	Role, Peer, State, ContextID string
	Limit                        int
}

// Revocation is a signed end of a contract.
type Revocation struct {
	ContractID string
	By         string // DID
	Bytes      []byte // signed document
	Created    time.Time
}

// Contracts keeps contracts and their revocations.
type Contracts interface {
	// PutContract inserts c or moves it on. ErrConflict when the digest, role, peer or conversation differ from the stored
	// ones, the state would move back, or an activation would change. Created is kept from the first Put.
	PutContract(c ContractRecord) error
	GetContract(id string) (ContractRecord, error)
	// ListContracts is ordered by creation, newest first.
	ListContracts(f ContractFilter) ([]ContractRecord, error)
	// PutRevocation is write-once: ErrConflict when there is one with other bytes, nil when it is the same. It needs no
	// contract record, and does not change the state of one.
	PutRevocation(r Revocation) error
	GetRevocation(contractID string) (Revocation, error)
	Revoked(contractID string) (bool, error)
	// RevokedAfter returns the next MaxList contracts that were revoked after an epoch, in that order, and the epoch of the last of
	// them. The epoch grows with every revocation, of any contract; 0 is before the first.
	RevokedAfter(epoch uint64) (contractIDs []string, last uint64, err error)
	// GetStanding is what a call under a contract is judged by, in one read. ErrNotFound without a contract record.
	GetStanding(contractID string) (Standing, error)
}

// Standing is a contract and what became of it so far.
type Standing struct {
	Contract ContractRecord
	Revoked  bool
	Epoch    uint64 // of the newest revocation, of any contract: see RevokedAfter
	Calls    int64  // GetUsage
	Drawn    Drawn  // GetDrawn
	// Compromises: a succession with CompromisedSince is on record, of whatever DID.
	Compromises bool
}

// Budgets counts calls under contracts.
type Budgets interface {
	// Reserve takes one call out of budget and returns how many are used with it. ErrBudget, and nothing taken, when used
	// calls would exceed budget; used is then what was used before. Roll the transaction back to give the call back.
	Reserve(contractID string, budget int64) (used int64, err error)
	// GetUsage returns the calls used; 0 for a contract never called.
	GetUsage(contractID string) (int64, error)
}

// Receipt is a signed receipt of a call.
type Receipt struct {
	ID, ContractID string
	Result         canon.Digest // of what was answered; zero for a refusal
	Bytes          []byte
	Created        time.Time
}

// Receipts keeps receipts. They are written once.
type Receipts interface {
	PutReceipt(r Receipt) error // ErrConflict when the id exists
	GetReceipt(id string) (Receipt, error)
	// ListReceipts returns the receipts after the one with an id ("": from the first), in the order they were put.
	ListReceipts(contractID, after string, limit int) ([]Receipt, error)
	// ReceiptsOf returns the receipts of one result, in the order they were put.
	ReceiptsOf(contractID string, result canon.Digest, limit int) ([]Receipt, error)
	// ListResults returns the results that a contract's receipts are about, first answered first.
	ListResults(contractID string, limit int) ([]Result, error)
}

// Result is what the receipts of one result amount to.
type Result struct {
	Digest      canon.Digest
	Receipts    int64
	First, Last time.Time // when its first and its last receipt were put
}

// Answer is the data of a query's result. It lives here and never in the log, so that it can be deleted.
type Answer struct {
	Digest      canon.Digest // the log's resultDigest
	ContractID  string
	Bytes       []byte
	Created     time.Time
	DeleteAfter time.Time // end of the contract's retention
}

// Answers keeps results until their retention ends.
type Answers interface {
	// PutAnswer stores a. The same answer again extends nothing: the earlier DeleteAfter stays.
	PutAnswer(a Answer) error
	GetAnswer(contractID string, digest canon.Digest) (Answer, error)
	// ListAnswers returns what is held under a contract, without the bytes, in the order in which it is to be deleted.
	ListAnswers(contractID string, limit int) ([]Answer, error)
	// DueAnswers returns answers whose DeleteAfter is not after t, without the bytes, ordered by contract.
	DueAnswers(t time.Time, limit int) ([]Answer, error)
	// DeleteAnswer overwrites the data. ErrNotFound when there is none.
	DeleteAnswer(contractID string, digest canon.Digest) error
}

// Statement is a party's signed document about a contract.
type Statement struct {
	ContractID string
	Digest     canon.Digest // of Bytes
	Kind       string       // the type member of the document
	By         string       // DID
	Bytes      []byte       // canonical, with the proof
	Created    time.Time
}

// Statements keeps what the parties signed about contracts beside the contracts themselves. They are written once, and what
// a statement does is not done by keeping it: see PutRevocation.
type Statements interface {
	// PutStatement keeps s. The same again is no error.
	PutStatement(s Statement) error
	// ListStatements returns a contract's statements in the order they were put; kind "" matches all.
	ListStatements(contractID, kind string, limit int) ([]Statement, error)
}

// EventFilter selects events; empty fields match everything.
type EventFilter struct {
	After                         uint64 // sequence number
	Context, Contract, Peer, Type string
	Limit                         int
}

// Log is the company's event log.
type Log interface {
	// Append adds e at the end of the log, in this transaction: the event is there exactly when the effect is. The store
	// adds time, node and process.
	Append(e ledger.Entry) (ledger.Event, error)
	// Events returns at most limit events after sequence number after, in order: a chain segment.
	Events(after uint64, limit int) ([]ledger.Event, error)
	// FindEvents returns matching events in order. They are a selection, not a segment.
	FindEvents(f EventFilter) ([]ledger.Event, error)
	// Head is the log's head as this transaction sees it.
	Head() (ledger.Head, error)
}

// Settings keeps small facts of the node by key.
type Settings interface {
	GetSetting(key string) (string, error) // ErrNotFound
	PutSetting(key, value string) error
}

// Task is an A2A task.
type Task struct {
	ID, Owner, ContextID string // Owner is the DID of the caller that may see it, "" for anonymous callers' tasks
	Version              int64  // 1 after the first Put
	Bytes                []byte
	Updated              time.Time
}

// TaskFilter selects one owner's tasks.
type TaskFilter struct {
	Owner, ContextID string // Owner is always compared, ContextID when set
	Limit, Offset    int
}

// How many tasks are kept, of one owner and in all. A task is the answer to a plain question, which can be asked again; whoever
// may ask must not decide how full the disk gets.
const (
	MaxTasksOfOwner = 256
	MaxTasks        = 4096
)

// Tasks keeps A2A tasks. Another owner's task does not exist.
type Tasks interface {
	// PutTask is a compare-and-swap like PutConversation. ErrConflict also when the id belongs to another owner. A new task
	// takes the place of the one updated longest ago when there would be more than MaxTasksOfOwner or MaxTasks.
	PutTask(t Task, expect int64) error
	GetTask(owner, id string) (Task, error)
	// ListTasks is ordered by last update, newest first.
	ListTasks(f TaskFilter) ([]Task, error)
}

// Push is where a caller wants to be told what becomes of one of its tasks.
type Push struct {
	Owner, TaskID, ID string // Owner is the DID of the caller
	Bytes             []byte // A2A's push notification configuration. It may hold a secret that the owner chose for its own server
	Told              string // which state of the task the owner was told last, in the words of who tells; "" for none
	Failed            int    // attempts in a row that did not reach the owner's server
	Due               time.Time
	Created           time.Time
}

// How many are kept. Who may subscribe must not decide how much this node sends.
const (
	MaxPushesOfTask  = 4
	MaxPushesOfOwner = 64
	MaxPushes        = 1024
)

// Pushes keeps such wishes. Another owner's does not exist.
type Pushes interface {
	// PutPush adds p or replaces the one of the same owner, task and id. ErrTooMany when there would be more than MaxPushesOfTask,
	// MaxPushesOfOwner or MaxPushes.
	PutPush(p Push) error
	GetPush(owner, taskID, id string) (Push, error)
	// ListPushes is ordered by id.
	ListPushes(owner, taskID string) ([]Push, error)
	// DeletePush is no error when there is none.
	DeletePush(owner, taskID, id string) error
	// DuePushes returns those whose Due is not after t, longest due first.
	DuePushes(t time.Time, limit int) ([]Push, error)
	// MarkPush sets Told, Failed and Due of a push that still has these Bytes; ErrNotFound when it is gone or another.
	MarkPush(p Push) error
}

// Equivocation is proof that a peer signed two different envelopes with one sequence number.
type Equivocation struct {
	Own, Peer, ContextID string
	Seq                  int64
	First, Second        []byte // raw envelopes
	Created              time.Time
}

// Equivocations keeps such proofs. They are written once; the same pair again is no error.
type Equivocations interface {
	PutEquivocation(e Equivocation) error
	ListEquivocations(own, peer string) ([]Equivocation, error) // peer "": all
}

// MaxSessionKeys bounds the sealed session keys of one conversation, in bytes.
const MaxSessionKeys = 4096

// SessionKeys keeps the private session keys of conversations, sealed by whoever puts them. They are gone when the conversation
// ends: a deletion overwrites them in the file that the store is in. What was written of them to the file system besides (a log
// that is not merged yet, a copy, a backup) is not reached by it; see the implementation.
type SessionKeys interface {
	// PutSessionKeys is write-once. ErrConflict when the conversation has some.
	PutSessionKeys(contextID string, sealed []byte) error
	GetSessionKeys(contextID string) ([]byte, error) // ErrNotFound
	// DeleteSessionKeys is no error when there are none.
	DeleteSessionKeys(contextID string) error
}
