// SPDX-License-Identifier: Apache-2.0

package did

import (
	"crypto/mlkem"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
)

// fieldPrime is 2^255 - 19. It is only read.
var fieldPrime = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))

// littleEndian reads 32 bytes as an integer, all 256 bits of it.
func littleEndian(b []byte) *big.Int {
	b = slices.Clone(b)
	slices.Reverse(b)
	return new(big.Int).SetBytes(b)
}

// edwardsSmallOrder are the y-coordinates of the eight points of order 1, 2, 4 and 8 of edwards25519,
// little-endian.
var edwardsSmallOrder = mustHex(
	"0000000000000000000000000000000000000000000000000000000000000000", // order 4
	"0100000000000000000000000000000000000000000000000000000000000000", // order 1
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // order 2
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", // order 8
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", // order 8
)

// montgomerySmallOrder are the u-coordinates of the points of small order of curve25519 and its twist,
// little-endian (https://cr.yp.to/ecdh.html#validate).
var montgomerySmallOrder = mustHex(
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
	"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
)

func mustHex(list ...string) map[[32]byte]bool {
	set := make(map[[32]byte]bool, len(list))
	for _, s := range list {
		b, err := hex.DecodeString(s)
		if err != nil {
			panic(err) // a constant above is misspelt
		}
		set[[32]byte(b)] = true
	}
	return set
}

// checkEd25519 accepts the canonical encoding (RFC 8032 section 5.1.3) of a point of edwards25519 that is not
// of small order. Go's crypto/ed25519 would verify signatures under such points.
func checkEd25519(key []byte) error {
	if len(key) != 32 {
		return fmt.Errorf("%w: Ed25519 key of %d bytes", ErrKey, len(key))
	}
	y := [32]byte(key)
	y[31] &= 0x7f
	if edwardsSmallOrder[y] {
		return fmt.Errorf("%w: Ed25519 key of small order", ErrWeakKey)
	}
	v := littleEndian(y[:])
	if v.Cmp(fieldPrime) >= 0 {
		return fmt.Errorf("%w: Ed25519 key not canonical", ErrWeakKey)
	}
	// On the curve if x² = (y²-1)/(dy²+1) has a root, which is so if (y²-1)(dy²+1) has one. d = -121665/121666.
	one := big.NewInt(1)
	yy := v.Mul(v, v)
	num := new(big.Int).Sub(yy, one)
	// 121666 (dy²+1) = 121666 - 121665y². The factor is put on (y²-1) as well, so that the product has a square
	// of it too much, which does not change the answer.
	den := new(big.Int).Mul(yy, big.NewInt(-121665))
	den.Add(den, big.NewInt(121666))
	num.Mul(num, big.NewInt(121666))
	num.Mul(num, den).Mod(num, fieldPrime)
	if big.Jacobi(num, fieldPrime) != 1 {
		return fmt.Errorf("%w: Ed25519 key not on the curve", ErrKey)
	}
	return nil
}

// checkXWing accepts an ML-KEM-768 encapsulation key that passes the checks of FIPS 203 section 7.2, followed by an X25519
// key that checkX25519 accepts. X-Wing itself leaves the second open.
func checkXWing(key []byte) error {
	if len(key) != XWingSize {
		return fmt.Errorf("%w: X-Wing key of %d bytes", ErrKey, len(key))
	}
	if _, err := mlkem.NewEncapsulationKey768(key[:mlkem.EncapsulationKeySize768]); err != nil {
		return fmt.Errorf("%w: X-Wing key not canonical", ErrWeakKey)
	}
	return checkX25519(key[mlkem.EncapsulationKeySize768:])
}

// checkX25519 accepts canonical u-coordinates that are not of small order. Every other coordinate is a valid
// key, on the curve or its twist (RFC 7748 section 6.1).
func checkX25519(key []byte) error {
	if len(key) != 32 {
		return fmt.Errorf("%w: X25519 key of %d bytes", ErrKey, len(key))
	}
	if montgomerySmallOrder[[32]byte(key)] {
		return fmt.Errorf("%w: X25519 key of small order", ErrWeakKey)
	}
	if littleEndian(key).Cmp(fieldPrime) >= 0 {
		return fmt.Errorf("%w: X25519 key not canonical", ErrWeakKey)
	}
	return nil
}
