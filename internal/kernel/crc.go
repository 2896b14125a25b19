package kernel

import (
	"hash/crc32"
	"math/bits"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C continues the CRC-32 with Castagnoli's polynomial of earlier bytes, 0 if there are none, with those of p: it is
// crc32.Update, three times as fast where the processor multiplies 512 bits without carries.
func CRC32C(crc uint32, p []byte) uint32 {
	if folds && len(p) >= crcFrom {
		n := len(p) &^ (crcBlock - 1)
		crc = foldBlocks(crc, p[:n])
		p = p[n:]
	}
	return crc32.Update(crc, castagnoli, p)
}

const (
	crcBlock = 256
	crcFrom  = 1 << 10
)

// crcFactors multiply the lower and the upper half of 128 bits that move forward by crcBlock bytes.
var crcFactors = [2]uint64{crcFactor(8*crcBlock + 32), crcFactor(8*crcBlock - 32)}

// crcFactor is x^n modulo the polynomial. As in the checksum, the highest power is the lowest bit; the product of two such
// numbers comes out one bit too low.
func crcFactor(n int) uint64 {
	r := uint32(1)
	for range n {
		carry := r >> 31
		r = r<<1 ^ carry*bits.Reverse32(crc32.Castagnoli)
	}
	return uint64(bits.Reverse32(r)) << 1
}
