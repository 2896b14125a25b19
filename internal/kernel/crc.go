package kernel

import (
	"hash/crc32"
	"math/bits"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C returns the CRC-32 (Castagnoli's polynomial) of earlier bytes followed by
// p; crc is the sum of the earlier bytes, 0 if there are none. It is crc32.Update,
// but twice as fast on processors with a carry-less multiplication of 512 bits.
func CRC32C(crc uint32, p []byte) uint32 {
	if folds() && len(p) >= crcFrom {
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

// crcFactors multiply the lower and the upper half of 128 bits, to move them
// forward by crcBlock bytes.
var crcFactors = [2]uint64{crcFactor(8*crcBlock + 32), crcFactor(8*crcBlock - 32)}

// crcFactor is x^n modulo the polynomial. As in the checksum, the highest power is
// the lowest bit. The product of two such numbers is one bit too low.
func crcFactor(n int) uint64 {
	r := uint32(1)
	for range n {
		carry := r >> 31
		r = r<<1 ^ carry*bits.Reverse32(crc32.Castagnoli)
	}
	return uint64(bits.Reverse32(r)) << 1
}
