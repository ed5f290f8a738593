// SPDX-License-Identifier: Apache-2.0

package query

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
)

// Noise is what makes an answer noisy: discrete Laplace noise on every count and sum, exact to the last bit of its
// distribution (integers only, no floating point), of scale n·Δ/ε, where n is the number of aggregates of the query and Δ what
// one row can change: 1 for a count, the larger magnitude of the bounds, in units of the column's last digit, for a sum.
//
// The unit of protection is one row. The groups that are shown, and that others are withheld for being too small, are exact.
//
// The same secret, contract, query and rows give the same noise: asking again averages nothing out, and whoever has the secret
// can compute the answer again. Over rows that changed in between it is other noise: under the same, the difference of two
// answers would be exact.
type Noise struct {
	Terms *contract.Noise
	Seed  [32]byte // see NoiseSeed
}

// NoiseSeed derives the seed of one answer. secret stays in the data plane: who knows it can take the noise off.
func NoiseSeed(secret []byte, contractID string, query canon.Digest) [32]byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("treaty noise v1\x00" + contractID + "\x00"))
	m.Write(query[:])
	return [32]byte(m.Sum(nil))
}

// over is the seed of an answer over exactly these rows.
func (n *Noise) over(rows source.Rows) [32]byte {
	m := hmac.New(sha256.New, n.Seed[:])
	for _, r := range rows {
		fmt.Fprintf(m, "row %d\x00", len(r))
		for _, cell := range r {
			text := fmt.Sprint(cell)
			if at, ok := cell.(time.Time); ok {
				text = at.UTC().Format(time.RFC3339Nano)
			}
			fmt.Fprintf(m, "%T %d\x00%s", cell, len(text), text)
		}
	}
	return [32]byte(m.Sum(nil))
}

// noisyDialects are those in which a decimal literal is exact.
var noisyDialects = []string{"duckdb", "postgres"}

func (n *Noise) check(d source.Dialect) error {
	if !slices.Contains(noisyDialects, d.Name()) {
		return fmt.Errorf("%w: noise is not possible over %s", ErrInvalid, d.Name())
	}
	return nil
}

// clamp cuts a column's values to its bounds. The bounds are numbers of the contract, checked to be nothing but digits.
func (n *Noise) clamp(c, column string, t dataset.Type) (string, error) {
	b, ok := n.Terms.Bound(column)
	low, err1 := dataset.ParseDecimal(b.Low)
	high, err2 := dataset.ParseDecimal(b.High)
	if !ok || err1 != nil || err2 != nil || t.Kind != dataset.Integer && t.Kind != dataset.DecimalKind {
		return "", fmt.Errorf("%w: sum of %s cannot be given noise", ErrInvalid, contract.Echo(column))
	}
	low, ok1 := low.Rescale(t.Scale)
	high, ok2 := high.Rescale(t.Scale)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("%w: the bounds of %s have more digits than the column", ErrInvalid, contract.Echo(column))
	}
	return fmt.Sprintf("CASE WHEN %s < %s THEN %s WHEN %s > %s THEN %s ELSE %s END", c, low, low, c, high, high, c), nil
}

// scale is n·Δ/ε in units of the last digit, as a fraction.
func (n *Noise) scale(p *Plan, o output) (num, den *big.Int, err error) {
	eps, ok := contract.MicroEpsilon(n.Terms.EpsilonPerQuery)
	if !ok {
		return nil, nil, ErrRows
	}
	count := int64(0)
	for _, c := range p.columns {
		if c.op != "" {
			count++
		}
	}
	most := big.NewInt(1)
	if o.op == contract.OpSum {
		b, _ := n.Terms.Bound(o.source)
		for _, s := range []string{b.Low, b.High} {
			d, err := dataset.ParseDecimal(s)
			if err != nil {
				return nil, nil, ErrRows
			}
			if d, ok = d.Rescale(o.col.Scale); !ok {
				return nil, nil, ErrRows
			}
			if m := new(big.Int).Abs(d.Unscaled); m.Cmp(most) > 0 {
				most = m
			}
		}
	}
	num = new(big.Int).Mul(most, big.NewInt(count*1_000_000))
	return num, big.NewInt(eps), nil
}

// add gives one cell its noise.
func (n *Noise) add(s *sampler, p *Plan, o output, cell any) ([]any, error) {
	if !contract.Noisy(o.op) {
		return nil, ErrRows
	}
	num, den, err := n.scale(p, o)
	if err != nil {
		return nil, err
	}
	scale := 0
	if o.op == contract.OpSum {
		scale = o.col.Scale
	}
	if cell == nil {
		cell = int64(0) // a sum of nothing, which only exact numbers could tell from 0
	}
	exact, err := number(cell, scale)
	if err != nil {
		return nil, err
	}
	noisy := dataset.Decimal{Unscaled: new(big.Int).Add(exact.Unscaled, s.laplace(num, den)), Scale: scale}
	if noisy.Digits() > dataset.MaxPrecision {
		return nil, source.ErrRange
	}
	if o.op == contract.OpSum {
		return []any{noisy}, nil
	}
	if !noisy.Unscaled.IsInt64() {
		return nil, source.ErrRange
	}
	return []any{noisy.Unscaled.Int64()}, nil
}

// sampler draws from a stream of bits that the seed fixes: AES-256 in counter mode.
type sampler struct{ stream cipher.Stream }

func newSampler(seed [32]byte) *sampler {
	block, err := aes.NewCipher(seed[:])
	if err != nil { // 32 bytes are a key
		panic(err)
	}
	return &sampler{cipher.NewCTR(block, make([]byte, aes.BlockSize))}
}

// below draws uniformly from 0 to n-1, n at least 1: bits are drawn until they are below n.
func (s *sampler) below(n *big.Int) *big.Int {
	bits := new(big.Int).Sub(n, big.NewInt(1)).BitLen()
	if bits == 0 {
		return new(big.Int)
	}
	buf := make([]byte, (bits+7)/8)
	for {
		clear(buf)
		s.stream.XORKeyStream(buf, buf)
		buf[0] &= byte(0xff >> (len(buf)*8 - bits))
		if x := new(big.Int).SetBytes(buf); x.Cmp(n) < 0 {
			return x
		}
	}
}

// chance is true with probability num/den, which is at most 1.
func (s *sampler) chance(num, den *big.Int) bool { return s.below(den).Cmp(num) < 0 }

// exp is true with probability e^-(num/den), for 0 ≤ num/den ≤ 1: the number of successes in a row of chances x, x/2, x/3, …
// is even with that probability (its series).
func (s *sampler) exp(num, den *big.Int) bool {
	k := int64(1)
	for s.chance(num, new(big.Int).Mul(den, big.NewInt(k))) {
		k++
	}
	return k%2 == 1
}

// laplace draws x with probability proportional to e^(-|x|·den/num): the magnitude is geometric, drawn as a multiple of num
// and a rest, then divided by den; a sign is drawn, and the second zero that it would make is drawn again. This is the exact
// sampler of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), algorithm 2.
func (s *sampler) laplace(num, den *big.Int) *big.Int {
	one, two := big.NewInt(1), big.NewInt(2)
	for {
		rest := s.below(num)
		if !s.exp(rest, num) {
			continue
		}
		whole := new(big.Int)
		for s.exp(one, one) {
			whole.Add(whole, one)
		}
		x := whole.Mul(whole, num)
		x.Add(x, rest).Quo(x, den)
		negative := s.chance(one, two)
		if negative && x.Sign() == 0 {
			continue
		}
		if negative {
			x.Neg(x)
		}
		return x
	}
}
