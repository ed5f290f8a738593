// SPDX-License-Identifier: Apache-2.0

package a2a

import (
	"bytes"
	"strings"

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

// freeForm members hold JSON of the sender's own making; names inside are not A2A's.
var freeForm = map[string]bool{"metadata": true, "data": true}

// checkJSON holds a request body to strict JSON and returns the raw top-level id of a JSON-RPC request, nil if there is none.
func checkJSON(body []byte, maxBytes int) (id []byte, err error) {
	if err := canon.Check(body, canon.Limits{MaxBytes: maxBytes, MaxDepth: maxDepth}); err != nil {
		return nil, err
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	if d.PeekKind() != '{' {
		return nil, &canon.Error{Kind: canon.ErrType}
	}
	err = checkNames(d, func(raw []byte) { id = bytes.Clone(raw) })
	return id, err
}

// checkNames walks one value. atID is called with the value of a member "id" of this very object. The depth is bounded
// because canon.Check has passed.
func checkNames(d *jsontext.Decoder, atID func([]byte)) error {
	switch d.PeekKind() {
	case '{':
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		for d.PeekKind() != '}' {
			token, err := d.ReadToken()
			if err != nil {
				return err
			}
			name := token.String()
			switch {
			case !members[name]:
				for known := range members {
					if strings.EqualFold(known, name) {
						return &canon.Error{Kind: canon.ErrCaseVariant, Path: string(d.StackPointer())}
					}
				}
				err = checkNames(d, nil)
			case name == "id" && atID != nil:
				var raw jsontext.Value
				if raw, err = d.ReadValue(); err == nil {
					atID(raw)
				}
			case freeForm[name]:
				err = d.SkipValue()
			default:
				err = checkNames(d, nil)
			}
			if err != nil {
				return err
			}
		}
		_, err := d.ReadToken()
		return err
	case '[':
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		for d.PeekKind() != ']' {
			if err := checkNames(d, nil); err != nil {
				return err
			}
		}
		_, err := d.ReadToken()
		return err
	default:
		return d.SkipValue()
	}
}
