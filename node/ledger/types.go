// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/treaty-node/treaty/did/canon"

// Event types. The structure behind each arrow is the type's data; its JSON members are the event's data members.
const (
	NodeStarted = "node.started" // → [Started]

	DIDResolved  = "did.resolved"  // → [Resolved]
	DIDVerified  = "did.verified"  // → [Verified]
	DIDRefused   = "did.refused"   // → [DIDRefusal]
	CardVerified = "card.verified" // → [Card]

	DIDSucceeded         = "did.succeeded"          // → [Succession]
	DIDSuccessionRefused = "did.succession_refused" // → [SuccessionRefusal]
	DIDCompromised       = "did.compromised"        // → [Compromise]
	ConversationMoved    = "negotiation.moved"      // → [ConversationMove]

	MetaprotoSent     = "metaproto.sent"     // → [Round]
	MetaprotoReceived = "metaproto.received" // → [Round]
	MetaprotoAgreed   = "metaproto.agreed"   // → [Agreement]

	ProposalSent     = "proposal.sent"     // → [Proposal]
	ProposalReceived = "proposal.received" // → [Proposal]
	OfferMade        = "offer.made"        // → [Offer]
	OfferReceived    = "offer.received"    // → [Offer]
	AcceptSent       = "accept.sent"       // → [Accept]
	AcceptReceived   = "accept.received"   // → [Accept]

	ModelAsked    = "model.asked"    // → [Question]
	ModelAnswered = "model.answered" // → [ModelAnswer]
	ModelNarrowed = "model.narrowed" // → [Narrowing]

	MessageRefused       = "message.refused"       // → [MessageRefusal]
	NegotiationEnded     = "negotiation.ended"     // → [Ended]
	NegotiationWithdrawn = "negotiation.withdrawn" // → [Withdrawn]
	NegotiationReopened  = "negotiation.reopened"  // buyer → [Reopening]

	ContractBuilt     = "contract.built"     // → [Built]
	ContractProof     = "contract.proof"     // → [ProofAdded]
	ContractActivated = "contract.activated" // → [Activated]
	ContractInForce   = "contract.inforce"   // → [InForce]

	ContractRevoked      = "contract.revoked"      // → [Revocation]
	ContractReplaced     = "contract.replaced"     // → [Replacement]
	ContractAcknowledged = "contract.acknowledged" // → [Acknowledgement]
	DataDeleted          = "data.deleted"          // buyer → [Deletion]
	DeletionReceived     = "deletion.received"     // vendor → [Deletion]

	QuerySent     = "query.sent"     // buyer → [Query]
	QueryAnswered = "query.answered" // buyer → [Answer]
	QueryRefused  = "query.refused"  // buyer → [QueryRefusal]
	QueryFailed   = "query.failed"   // buyer: transport fault → [QueryFailure]

	CallAnswered    = "call.answered"    // data plane → [Call]
	CallRefused     = "call.refused"     // data plane → [CallRefusal]
	DatasetImported = "dataset.imported" // → [Imported]

	TrustChanged = "trust.changed" // → [TrustChange]
	KeyConfirmed = "key.confirmed" // → [KeyConfirmation]

	QuestionDelegated = "question.delegated" // → [Delegation]

	KeyRotated = "key.rotated" // → [Rotation]
	KeyRetired = "key.retired" // → [Retirement]

	IdentityMoved = "identity.moved" // → [Move]
)

// Delegation is the data of [QuestionDelegated]: a question was handed on to other agents, for From or for this node's operator.
// Agents and Outcomes stand in the same order.
type Delegation struct {
	From     string       `json:"from"` // DID; "" for the operator
	Question canon.Digest `json:"question"`
	Skill    string       `json:"skill"`
	Depth    int          `json:"depth"`
	Agents   []string     `json:"agents"`
	Outcomes []string     `json:"outcomes"` // answered, failed, skipped, canceled
}

// Started is the data of [NodeStarted].
type Started struct {
	Build string `json:"build"`
}

// Resolved is the data of [DIDResolved]: a document was fetched. Hash is over its canonical form.
type Resolved struct {
	DID  string       `json:"did"`
	URL  string       `json:"url"`
	Hash canon.Digest `json:"hash"`
}

// Verified is the data of [DIDVerified]: binding and proof of the document hold.
type Verified struct {
	DID     string `json:"did"`
	Profile string `json:"profile"`
	Dialect string `json:"dialect"`
	KeyID   string `json:"keyId"`
}

// DIDRefusal is the data of [DIDRefused].
type DIDRefusal struct {
	DID    string `json:"did"`
	Reason string `json:"reason"`
}

// Succession is the data of [DIDSucceeded]: a step from a DID to its successor was verified, and what was the old one's is the new
// one's from here on. The hashes are over the canonical forms of the deactivated document and of the successor's.
type Succession struct {
	Old       string       `json:"old"`
	New       string       `json:"new"`
	Assurance string       `json:"assurance"` // verified, recovery_verified
	OldHash   canon.Digest `json:"oldHash"`
	NewHash   canon.Digest `json:"newHash"`
	Overruled string       `json:"overruled"` // the successor that a recovery key has put aside; "" for none
}

// SuccessionRefusal is the data of [DIDSuccessionRefused]: somebody claimed a successor of From, and it was not followed.
type SuccessionRefusal struct {
	From   string `json:"from"`
	At     string `json:"at"` // the DID that does not hold
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// Compromise is the data of [DIDCompromised]: the subject of a DID says that somebody else may have had its key since a time.
type Compromise struct {
	DID   string `json:"did"`
	Since string `json:"since"` // RFC 3339
}

// ConversationMove is the data of [ConversationMoved]: in this conversation a side goes on under another DID.
type ConversationMove struct {
	Side string `json:"side"` // buyer, vendor
	Old  string `json:"old"`
	New  string `json:"new"`
	Seq  int64  `json:"seq"` // of the first message under the new DID
}

// Card is the data of [CardVerified]: the peer's agent card and the key that signed it.
type Card struct {
	URL  string `json:"url"`
	KID  string `json:"kid"`
	Name string `json:"name"`
}

// Round is the data of [MetaprotoSent] and [MetaprotoReceived]. Candidates has one short text for each candidate
// protocol, in order of preference.
type Round struct {
	Round      int      `json:"round"` // 1, 2, …
	Status     string   `json:"status"`
	Candidates []string `json:"candidates"`
	Summary    string   `json:"summary"`
}

// Agreement is the data of [MetaprotoAgreed].
type Agreement struct {
	Digest         canon.Digest `json:"digest"`
	ContractSchema string       `json:"contractSchema"`
	Suite          string       `json:"suite"`
	Transport      string       `json:"transport"`
	DataPlane      string       `json:"dataPlane"`
	Rounds         int          `json:"rounds"`
	SessionKeys    string       `json:"sessionKeys,omitempty"` // none or fresh
}

// Proposal is the data of [ProposalSent] and [ProposalReceived]: what the buyer asks for.
type Proposal struct {
	Columns       []string `json:"columns"`
	Operations    []string `json:"operations"`
	Purpose       string   `json:"purpose"`
	RetentionDays int      `json:"retentionDays"`
	Rationale     string   `json:"rationale"`
}

// Removal is one thing a policy took away or narrowed, with the rule that did it. The fields are those of contract.Removal.
type Removal struct {
	What    string `json:"what"`
	Asked   string `json:"asked"`
	Offered string `json:"offered"`
	Rule    string `json:"rule"`
	Why     string `json:"why"`
}

// Offer is the data of [OfferMade] and [OfferReceived].
type Offer struct {
	Digest        canon.Digest `json:"digest"`
	Columns       []string     `json:"columns"`
	Operations    []string     `json:"operations"`
	RetentionDays int          `json:"retentionDays"`
	MinGroupSize  int          `json:"minGroupSize"`
	CallBudget    int64        `json:"callBudget"`
	ExpiresAt     string       `json:"expiresAt"`
	Removed       []Removal    `json:"removed"`
}

// Accept is the data of [AcceptSent] and [AcceptReceived].
type Accept struct {
	OfferDigest canon.Digest `json:"offerDigest"`
}

// Question is the data of [ModelAsked]: a model was asked what to do. The digest is over the prompt as it was sent; the prompt
// itself is there only when the operator wants it recorded.
type Question struct {
	Model        string       `json:"model"`
	Attempt      int          `json:"attempt"` // 1, or 2 after an answer that could not be used
	PromptDigest canon.Digest `json:"promptDigest"`
	Prompt       string       `json:"prompt"`
}

// ModelAnswer is the data of [ModelAnswered]. Error says why the answer cannot be used, "" when it can; the digest is over the
// answer's text, the zero digest when there was none. Tokens are as the endpoint counts them.
type ModelAnswer struct {
	Model            string       `json:"model"`
	Attempt          int          `json:"attempt"`
	PromptDigest     canon.Digest `json:"promptDigest"`
	AnswerDigest     canon.Digest `json:"answerDigest"`
	PromptTokens     int64        `json:"promptTokens"`
	CompletionTokens int64        `json:"completionTokens"`
	Error            string       `json:"error"`
	Answer           string       `json:"answer"`
}

// Narrowing is the data of [ModelNarrowed]: what a model wanted beyond what was asked, needed or allowed, and code took away.
// In each removal Asked is what the model wanted.
type Narrowing struct {
	Removed []Removal `json:"removed"`
}

// MessageRefusal is the data of [MessageRefused]. Seq is the sequence number the message claimed.
type MessageRefusal struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Type   string `json:"type"`
	Seq    int64  `json:"seq"`
}

// Ended is the data of [NegotiationEnded]. Outcome is agreed, rejected, withdrawn, expired or failed; Code is the wire
// code of a failure.
type Ended struct {
	Outcome string `json:"outcome"`
	Code    string `json:"code"`
	Reason  string `json:"reason"`
}

// Withdrawn is the data of [NegotiationWithdrawn]. By is the DID that withdrew.
type Withdrawn struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// Reopening is the data of [NegotiationReopened], once in each of the two conversations: From ended because what was agreed on how to
// talk does not hold any more, and the buyer takes its need up in To. Code and Reason are those of the end.
type Reopening struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Attempt int    `json:"attempt"` // 1, 2
	Code    string `json:"code"`
	Reason  string `json:"reason"`
}

// Built is the data of [ContractBuilt].
type Built struct {
	Digest canon.Digest `json:"digest"`
}

// ProofAdded is the data of [ContractProof]: a party's proof was made or verified.
type ProofAdded struct {
	By     string       `json:"by"` // DID
	KeyID  string       `json:"keyId"`
	Digest canon.Digest `json:"digest"`
}

// Activated is the data of [ContractActivated].
type Activated struct {
	Digest      canon.Digest `json:"digest"`
	ActivatedAt string       `json:"activatedAt"`
}

// InForce is the data of [ContractInForce].
type InForce struct {
	Digest     canon.Digest `json:"digest"`
	Dataset    string       `json:"dataset"`
	Purpose    string       `json:"purpose"`
	ValidUntil string       `json:"validUntil"`
}

// Replacement is the data of [ContractReplaced]: another contract, which names this one as the one it amends, came into force.
type Replacement struct {
	By     string       `json:"by"`     // contract
	Digest canon.Digest `json:"digest"` // of By
}

// Revocation is the data of [ContractRevoked]: a party's signed statement was stored. Statement is the digest of its canonical
// form with the proof. Effective says that the contract ended by it; where it is false, the contract had ended before. Replaced
// is the contract that came into force in its place.
type Revocation struct {
	Statement canon.Digest `json:"statement"`
	By        string       `json:"by"` // DID
	Reason    string       `json:"reason"`
	RevokedAt string       `json:"revokedAt"`
	Effective bool         `json:"effective"`
	Replaced  string       `json:"replaced"`
}

// Acknowledgement is the data of [ContractAcknowledged]: the other party signed that it has a statement of ours.
type Acknowledgement struct {
	Statement canon.Digest `json:"statement"`
	By        string       `json:"by"` // DID
	Outcome   string       `json:"outcome"`
	At        string       `json:"at"`
}

// Deletion is the data of [DataDeleted] and [DeletionReceived]. Statement is the digest of the signed statement with its proof.
type Deletion struct {
	Statement canon.Digest `json:"statement"`
	By        string       `json:"by"` // DID of the buyer
	Reason    string       `json:"reason"`
	Results   int          `json:"results"`
	Receipts  int          `json:"receipts"`
	DeletedAt string       `json:"deletedAt"`
}

// Query is the data of [QuerySent]. Aggregates and filters are short texts such as "avg(order_value)".
type Query struct {
	Dataset    string   `json:"dataset"`
	Aggregates []string `json:"aggregates"`
	GroupBy    []string `json:"groupBy"`
	Filters    []string `json:"filters"`
	Purpose    string   `json:"purpose"`
}

// Answer is the data of [QueryAnswered]. The result itself never enters the log. Receipt is the receipt's id.
type Answer struct {
	Rows         int64        `json:"rows"` // in the result
	UsedRows     int64        `json:"usedRows"`
	TotalRows    int64        `json:"totalRows"`
	ResultDigest canon.Digest `json:"resultDigest"`
	Receipt      string       `json:"receipt"`
}

// QueryRefusal is the data of [QueryRefused].
type QueryRefusal struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// QueryFailure is the data of [QueryFailed].
type QueryFailure struct {
	Error string `json:"error"`
}

// Call is the data of [CallAnswered].
type Call struct {
	Caller       string       `json:"caller"`
	QueryDigest  canon.Digest `json:"queryDigest"`
	ResultDigest canon.Digest `json:"resultDigest"`
	Rows         int64        `json:"rows"`
	TotalRows    int64        `json:"totalRows"`
	UsedRows     int64        `json:"usedRows"`
}

// CallRefusal is the data of [CallRefused].
type CallRefusal struct {
	Code   string `json:"code"`
	Text   string `json:"text"`
	Caller string `json:"caller"`
}

// Imported is the data of [DatasetImported].
type Imported struct {
	Dataset string `json:"dataset"`
	Rows    int64  `json:"rows"`
	Columns int    `json:"columns"`
}

// TrustChange is the data of [TrustChanged]: the operator allowed or denied a pattern, or dropped an earlier change.
type TrustChange struct {
	Action  string `json:"action"` // allow, deny, forget
	Pattern string `json:"pattern"`
}

// KeyConfirmation is the data of [KeyConfirmed]: the operator accepted a held version of a DID document. Hash is over its
// canonical form.
type KeyConfirmation struct {
	DID  string       `json:"did"`
	Hash canon.Digest `json:"hash"`
}

// Rotation is the data of [KeyRotated]: the node's own document was published with a new key. Previous are the keys that it
// replaces, usable until Until; Hash is over the document's canonical form.
type Rotation struct {
	Role     string       `json:"role"`
	KeyID    string       `json:"keyId"`
	Previous []string     `json:"previous"`
	Until    string       `json:"until"` // RFC 3339; "" when there is no previous key
	Hash     canon.Digest `json:"hash"`
}

// Retirement is the data of [KeyRetired]: the node's own document was published without a key whose grace was over.
type Retirement struct {
	Role  string       `json:"role"`
	KeyID string       `json:"keyId"`
	Hash  canon.Digest `json:"hash"`
}

// Move is the data of [IdentityMoved]: the node has another DID, with another binding key, than before. The hashes are over the
// canonical forms of the old document, now deactivated, and of the new one.
type Move struct {
	Old              string       `json:"old"`
	New              string       `json:"new"`
	Assurance        string       `json:"assurance"` // verified, recovery_verified
	OldHash          canon.Digest `json:"oldHash"`
	NewHash          canon.Digest `json:"newHash"`
	Until            string       `json:"until"`            // RFC 3339; what is sealed to the old keys is opened until then
	CompromisedSince string       `json:"compromisedSince"` // RFC 3339; "" when nobody else had the old key
}
