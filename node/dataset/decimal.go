// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"errors"
	"math/big"
	"strings"
)

// ErrDecimal reports a text that is no plain decimal number.
var ErrDecimal = errors.New("dataset: not a decimal number")

// Decimal is the exact number Unscaled × 10^-Scale. Scale is never negative. The zero value is not a number: Unscaled must
// be set.
type Decimal struct {
	Unscaled *big.Int
	Scale    int
}

// maxDecimalText bounds what ParseDecimal looks at; a 38-digit number with an exponent is shorter.
const maxDecimalText = 128

// ParseDecimal reads [-]digits[.digits], where one of the two runs of digits may be missing, and optionally an exponent.
// The scale is the number of digits written after the point, less the exponent.
func ParseDecimal(s string) (Decimal, error) {
	if len(s) == 0 || len(s) > maxDecimalText {
		return Decimal{}, ErrDecimal
	}
	rest, exp := s, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		var ok bool
		if exp, ok = parseExponent(rest[i+1:]); !ok {
			return Decimal{}, ErrDecimal
		}
		rest = rest[:i]
	}
	neg := strings.HasPrefix(rest, "-")
	if neg {
		rest = rest[1:]
	}
	whole, frac, _ := strings.Cut(rest, ".")
	digits := whole + frac
	if digits == "" {
		return Decimal{}, ErrDecimal
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return Decimal{}, ErrDecimal
		}
	}
	u, _ := new(big.Int).SetString(digits, 10)
	if neg {
		u.Neg(u)
	}
	scale := len(frac) - exp
	if scale < 0 {
		u.Mul(u, pow10(-scale))
		scale = 0
	}
	return Decimal{Unscaled: u, Scale: scale}, nil
}

// parseExponent reads [+-]digits, at most three of them.
func parseExponent(s string) (int, bool) {
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if s == "" || len(s) > 3 {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// String writes the number with exactly Scale digits after the point.
func (d Decimal) String() string {
	s := new(big.Int).Abs(d.Unscaled).String()
	if d.Scale > 0 {
		if len(s) <= d.Scale {
			s = strings.Repeat("0", d.Scale-len(s)+1) + s
		}
		s = s[:len(s)-d.Scale] + "." + s[len(s)-d.Scale:]
	}
	if d.Unscaled.Sign() < 0 {
		s = "-" + s
	}
	return s
}

// Rescale returns the same number with another scale, and false when digits other than zero would be lost.
func (d Decimal) Rescale(scale int) (Decimal, bool) {
	switch {
	case scale == d.Scale:
		return d, true
	case scale > d.Scale:
		return Decimal{new(big.Int).Mul(d.Unscaled, pow10(scale-d.Scale)), scale}, true
	}
	q, r := new(big.Int).QuoRem(d.Unscaled, pow10(d.Scale-scale), new(big.Int))
	return Decimal{q, scale}, r.Sign() == 0
}

// Digits is the number of decimal digits of Unscaled, at least 1.
func (d Decimal) Digits() int { return len(new(big.Int).Abs(d.Unscaled).String()) }

// Quo returns d ÷ n with the given scale, rounded half away from zero: the way money is rounded by hand, so that a person
// with the sum and the count gets the same digits. n must be positive.
func (d Decimal) Quo(n int64, scale int) Decimal {
	num := new(big.Int).Set(d.Unscaled)
	den := big.NewInt(n)
	if scale >= d.Scale {
		num.Mul(num, pow10(scale-d.Scale))
	} else {
		den.Mul(den, pow10(d.Scale-scale))
	}
	neg := num.Sign() < 0
	num.Abs(num)
	q, r := new(big.Int).QuoRem(num, den, new(big.Int))
	if r.Lsh(r, 1).Cmp(den) >= 0 {
		q.Add(q, big.NewInt(1))
	}
	if neg {
		q.Neg(q)
	}
	return Decimal{q, scale}
}
