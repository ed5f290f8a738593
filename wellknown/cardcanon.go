// SPDX-License-Identifier: Apache-2.0

package wellknown

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/treaty-node/treaty/did/canon"
)

// CanonicalCard returns the payload that a card's signatures cover (A2A section 8.4.1): the card as received, without
// signatures, without the fields that hold their default value and are neither REQUIRED nor declared optional, in the form
// of RFC 8785. Fields this package does not know are kept as they are: whoever added them signed them.
func CanonicalCard(raw []byte) ([]byte, error) {
	card, err := object(raw, cardLimits)
	if err != nil {
		return nil, fmt.Errorf("agent card: %w", err)
	}
	delete(card, "signatures")
	agentCard.dropDefaults(card)
	return canonicalValue(card, cardLimits)
}

// object decodes a checked JSON object generically. Numbers keep their spelling, so that only canon ever rewrites them.
func object(raw []byte, lim canon.Limits) (map[string]any, error) {
	if err := canon.Check(raw, lim); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil || v == nil {
		return nil, fmt.Errorf("%w: not a JSON object", ErrMalformed)
	}
	return v, nil
}

func canonicalValue(v any, lim canon.Limits) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	// json.Marshal writes < > & as six-character escapes, so what it writes may be longer than what came in.
	lim.MaxBytes *= 6
	return canon.Canonicalize(b, lim)
}

// How a field is treated when it holds its default value.
const (
	implicit = iota // dropped
	required        // kept: google.api.field_behavior REQUIRED
	optional        // kept when present: proto3 optional, or a message, which has presence by itself
)

// field describes one field of A2A's protobuf definition as far as section 8.4.1 needs it.
type field struct {
	presence int
	message  message // fields of the value, of each list element, or of each map value; nil for scalars and Structs
	isMap    bool
}

type message map[string]field

// dropDefaults removes what section 8.4.1 leaves out of the payload. Values of another JSON type than the field's are left
// alone: they are not defaults.
func (m message) dropDefaults(obj map[string]any) {
	for name, f := range m {
		value, present := obj[name]
		if !present {
			continue
		}
		if value == nil { // ProtoJSON: null is the absent field
			delete(obj, name)
			continue
		}
		if f.message != nil {
			switch v := value.(type) {
			case []any:
				for _, e := range v {
					if o, ok := e.(map[string]any); ok {
						f.message.dropDefaults(o)
					}
				}
			case map[string]any:
				if !f.isMap {
					f.message.dropDefaults(v)
					break
				}
				for _, e := range v {
					if o, ok := e.(map[string]any); ok {
						f.message.dropDefaults(o)
					}
				}
			}
		}
		if f.presence == implicit && isDefault(value) {
			delete(obj, name)
		}
	}
}

func isDefault(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case bool:
		return !v
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// The fields of AgentCard and of what it holds, after specification/a2a.proto of A2A 1.0.
var (
	text         = field{}
	requiredText = field{presence: required}
	optionalText = field{presence: optional}
	structValue  = field{presence: optional} // google.protobuf.Struct: a message, and opaque

	stringList           = message{"list": {}}
	securityRequirement  = message{"schemes": {message: stringList, isMap: true}}
	authorizationCode    = message{"authorizationUrl": requiredText, "tokenUrl": requiredText, "refreshUrl": text, "scopes": {presence: required, isMap: true}, "pkceRequired": {}}
	clientCredentials    = message{"tokenUrl": requiredText, "refreshUrl": text, "scopes": {presence: required, isMap: true}}
	implicitFlow         = message{"authorizationUrl": text, "refreshUrl": text, "scopes": {isMap: true}}
	passwordFlow         = message{"tokenUrl": text, "refreshUrl": text, "scopes": {isMap: true}}
	deviceCode           = message{"deviceAuthorizationUrl": requiredText, "tokenUrl": requiredText, "refreshUrl": text, "scopes": {presence: required, isMap: true}}
	oauthFlows           = message{"authorizationCode": {presence: optional, message: authorizationCode}, "clientCredentials": {presence: optional, message: clientCredentials}, "implicit": {presence: optional, message: implicitFlow}, "password": {presence: optional, message: passwordFlow}, "deviceCode": {presence: optional, message: deviceCode}}
	securitySchemeFields = message{
		"apiKeySecurityScheme":        {presence: optional, message: message{"description": text, "location": requiredText, "name": requiredText}},
		"httpAuthSecurityScheme":      {presence: optional, message: message{"description": text, "scheme": requiredText, "bearerFormat": text}},
		"oauth2SecurityScheme":        {presence: optional, message: message{"description": text, "flows": {presence: required, message: oauthFlows}, "oauth2MetadataUrl": text}},
		"openIdConnectSecurityScheme": {presence: optional, message: message{"description": text, "openIdConnectUrl": requiredText}},
		"mtlsSecurityScheme":          {presence: optional, message: message{"description": text}},
	}

	agentCard = message{
		"name":        requiredText,
		"description": requiredText,
		"version":     requiredText,
		"supportedInterfaces": {presence: required, message: message{
			"url": requiredText, "protocolBinding": requiredText, "tenant": text, "protocolVersion": requiredText,
		}},
		"provider":         {presence: optional, message: message{"url": requiredText, "organization": requiredText}},
		"documentationUrl": optionalText,
		"iconUrl":          optionalText,
		"capabilities": {presence: required, message: message{
			"streaming":         optionalText,
			"pushNotifications": optionalText,
			"extendedAgentCard": optionalText,
			"extensions":        {message: message{"uri": text, "description": text, "required": {}, "params": structValue}},
		}},
		"securitySchemes":      {message: securitySchemeFields, isMap: true},
		"securityRequirements": {message: securityRequirement},
		"defaultInputModes":    {presence: required},
		"defaultOutputModes":   {presence: required},
		"skills": {presence: required, message: message{
			"id": requiredText, "name": requiredText, "description": requiredText, "tags": {presence: required},
			"examples": {}, "inputModes": {}, "outputModes": {}, "securityRequirements": {message: securityRequirement},
		}},
	}
)
