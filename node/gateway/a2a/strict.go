// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/treaty-node/treaty/did/canon"
)

// maxDepth of a request: A2A's own nesting and what metadata and data parts may hold.
const maxDepth = 32

// members are the names that the library decodes in requests. It folds case when it decodes, so that MESSAGEID would
// override messageId: a variant of one of these is refused.
var members = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(`jsonrpc id method params
		tenant message configuration metadata
		messageId contextId taskId role parts extensions referenceTaskIds
		text raw url data filename mediaType
		acceptedOutputModes returnImmediately historyLength taskPushNotificationConfig
		token authentication scheme credentials configId
		status pageSize pageToken statusTimestampAfter includeArtifacts`) {
		m[name] = true
	}
	return m
}()

// protoNames are the names of the same members in the protobuf definition: messageId is message_id there.
var protoNames = func() map[string]string {
	m := map[string]string{}
	for name := range members {
		var b strings.Builder
		for _, r := range name {
			if unicode.IsUpper(r) {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(r))
		}
		if proto := b.String(); proto != name {
			m[proto] = name
		}
	}
	return m
}()

// freeForm members hold JSON of the sender's own making; names inside are not A2A's.
var freeForm = map[string]bool{"metadata": true, "data": true}

// checkJSON holds a request body to strict JSON. It returns the body to decode and the raw top-level id of a JSON-RPC request,
// nil if there is none.
func checkJSON(body []byte, maxBytes int) (decode, id []byte, err error) {
	if err := canon.Check(body, canon.Limits{MaxBytes: maxBytes, MaxDepth: maxDepth}); err != nil {
		return nil, nil, err
	}
	w := &walk{Decoder: jsontext.NewDecoder(bytes.NewBuffer(body))}
	if w.PeekKind() != '{' {
		return nil, nil, &canon.Error{Kind: canon.ErrType}
	}
	if err := w.value(func(raw []byte) { id = bytes.Clone(raw) }); err != nil {
		return nil, nil, err
	}
	if w.protoNames {
		body, err = camelNames(body)
	}
	return body, id, err
}

// walk goes through one value. The depth is bounded because canon.Check has passed.
type walk struct {
	*jsontext.Decoder
	protoNames bool // there are members of A2A under their names in the protobuf definition
}

// value checks the names inside the next value. atID is called with the value of a member "id" of this very object.
func (w *walk) value(atID func([]byte)) error {
	switch w.PeekKind() {
	case '{':
		if _, err := w.ReadToken(); err != nil {
			return err
		}
		for w.PeekKind() != '}' {
			token, err := w.ReadToken()
			if err != nil {
				return err
			}
			name := token.String()
			switch {
			case !members[name]:
				for known := range members {
					if strings.EqualFold(known, name) {
						return &canon.Error{Kind: canon.ErrCaseVariant, Path: string(w.StackPointer())}
					}
				}
				w.protoNames = w.protoNames || protoNames[name] != ""
				err = w.value(nil)
			case name == "id" && atID != nil:
				var raw jsontext.Value
				if raw, err = w.ReadValue(); err == nil {
					atID(raw)
				}
			case freeForm[name]:
				err = w.SkipValue()
			default:
				err = w.value(nil)
			}
			if err != nil {
				return err
			}
		}
		_, err := w.ReadToken()
		return err
	case '[':
		if _, err := w.ReadToken(); err != nil {
			return err
		}
		for w.PeekKind() != ']' {
			if err := w.value(nil); err != nil {
				return err
			}
		}
		_, err := w.ReadToken()
		return err
	default:
		return w.SkipValue()
	}
}

// camelNames renames members: ProtoJSON parsers take both names of a field, and the library ignores what it does not know.
// A member under both names is a duplicate.
func camelNames(body []byte) ([]byte, error) {
	var out bytes.Buffer
	d, e := jsontext.NewDecoder(bytes.NewBuffer(body)), jsontext.NewEncoder(&out)
	for d.PeekKind() != 0 {
		token, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		kind, count := d.StackIndex(d.StackDepth())
		isName := kind == '{' && count%2 == 1 && token.Kind() == '"'
		if camel := protoNames[token.String()]; isName && camel != "" {
			token = jsontext.String(camel)
		}
		free := isName && freeForm[token.String()]
		if err := e.WriteToken(token); err != nil {
			return nil, &canon.Error{Kind: canon.ErrDuplicateMember, Path: string(e.StackPointer())}
		}
		if free {
			raw, err := d.ReadValue()
			if err == nil {
				err = e.WriteValue(raw)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return out.Bytes(), nil
}
