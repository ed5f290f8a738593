// SPDX-License-Identifier: Apache-2.0

package contract

import "encoding/json"

// MarshalJSON writes a string, true or false. A value that is not there has no
// encoding.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.kind {
	case valueText:
		return json.Marshal(v.text)
	case valueTrue:
		return []byte("true"), nil
	case valueFalse:
		return []byte("false"), nil
	case valueNone:
	}
	return nil, invalid("value", "there is none")
}

// UnmarshalJSON reads a string, true or false. Numbers and null are refused.
func (v *Value) UnmarshalJSON(data []byte) error {
	switch {
	case string(data) == "true" || string(data) == "false":
		*v = BoolValue(data[0] == 't')
		return nil
	case len(data) > 0 && data[0] == '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return invalid("value", "not a string")
		}
		*v = TextValue(s)
		return nil
	}
	return invalid("value", "want a string, true or false; numbers and dates are written as strings")
}
