// SPDX-License-Identifier: Apache-2.0

package notice

import (
	"encoding/json"
	"regexp"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/envelope"
	"github.com/treaty-node/treaty/node/internal/text"
)

// Types of the two bodies.
const (
	BodyType   = "TreatyNotice"
	AnswerType = "TreatyNoticeAnswer"
)

// Bounds.
const (
	MaxData = 128 << 10 // bytes of data, canonical
	MaxText = 1000      // bytes of an answer's text
	MaxCode = 64        // bytes of an answer's code

	maxDepth = 20
)

// CodeUnknownKind answers a notice of a kind that this node does not know.
const CodeUnknownKind = "UNKNOWN_KIND"

// Notice is the body of a notice.
type Notice struct {
	Type string          `json:"type"` // BodyType
	Kind string          `json:"kind"` // lower-case letters, digits, dots and dashes; begins with a letter; at most 40
	Data json.RawMessage `json:"data"` // an object, as the kind says
}

// Answer is the body of an answer. Code and Text are empty when OK.
type Answer struct {
	Type string          `json:"type"` // AnswerType
	Kind string          `json:"kind"` // that of the notice
	OK   bool            `json:"ok"`
	Code string          `json:"code"` // upper-case letters, digits and underscores
	Text string          `json:"text"` // for people
	Data json.RawMessage `json:"data"` // an object, as the kind says
}

var (
	kindForm = regexp.MustCompile(`^[a-z][a-z0-9.-]{0,39}$`)
	codeForm = regexp.MustCompile(`^[A-Z0-9_]*$`)
)

// ParseNotice reads a notice's body strictly. Errors are [*envelope.Refusal]s.
func ParseNotice(body []byte) (*Notice, error) {
	var n Notice
	if err := parse(body, &n); err != nil {
		return nil, err
	}
	if n.Type != BodyType || !kindForm.MatchString(n.Kind) || !object(n.Data) {
		return nil, malformed("type, kind and data of a %s are not as they have to be", BodyType)
	}
	return &n, nil
}

// ParseAnswer reads an answer's body strictly. Errors are [*envelope.Refusal]s.
func ParseAnswer(body []byte) (*Answer, error) {
	var a Answer
	if err := parse(body, &a); err != nil {
		return nil, err
	}
	switch {
	case a.Type != AnswerType || !kindForm.MatchString(a.Kind) || !object(a.Data):
		return nil, malformed("type, kind and data of a %s are not as they have to be", AnswerType)
	case len(a.Code) > MaxCode || !codeForm.MatchString(a.Code) || len(a.Text) > MaxText:
		return nil, malformed("code or text of a %s is not as it has to be", AnswerType)
	case a.OK == (a.Code != ""):
		return nil, malformed("an answer has a code exactly when it is not ok")
	}
	return &a, nil
}

func parse(body []byte, v any) error {
	lim := canon.Limits{MaxBytes: MaxData + 4<<10, MaxDepth: maxDepth}
	if err := canon.CheckCanonical(body, lim); err != nil {
		return malformed("%w", err)
	}
	if err := canon.Unmarshal(body, v, lim); err != nil {
		return malformed("%w", err)
	}
	return nil
}

func malformed(format string, args ...any) error {
	return envelope.Refuse(envelope.CodeMalformed, format, args...)
}

func object(data json.RawMessage) bool {
	return len(data) > 1 && data[0] == '{' && len(data) <= MaxData
}

// canonical is v as a canonical object; nil is the empty one.
func canonical(v any) (json.RawMessage, error) {
	if v == nil {
		return json.RawMessage("{}"), nil
	}
	data, err := canon.Marshal(v)
	if err != nil {
		return nil, err
	}
	if !object(data) {
		return nil, malformed("the data of a notice is an object of at most %d bytes", MaxData)
	}
	return data, nil
}

// clip bounds text that this node itself says.
func clip(s string) string { return text.Clip(s, MaxText) }
