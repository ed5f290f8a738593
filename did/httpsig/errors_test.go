// SPDX-License-Identifier: Apache-2.0

package httpsig

import (
	"errors"
	"testing"
)

func isCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code && errors.Is(err, code) && !errors.Is(err, Code("other"))
}

// The public descriptions are fixed words that need no escaping in a header.
func TestCodes(t *testing.T) {
	if len(codes) != 11 {
		t.Fatalf("%d codes, want 11", len(codes))
	}
	for code, def := range codes {
		if def.status < 400 || !printable(def.text, 200) || code.Error() == "" {
			t.Errorf("%s: status %d, text %q", code, def.status, def.text)
		}
		if e := refuse(code, "", errUnreachable); !isCode(e, code) || !errors.Is(e, errUnreachable) || e.Status != def.status {
			t.Errorf("%s: %v", code, e)
		}
	}
}
