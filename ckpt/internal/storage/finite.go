package storage

import (
	"encoding/binary"

	"github.com/ringo-ml/ringo/tensor"
)

// Nonfinite counts the numbers in b, of type d, that are NaN and infinite: those whose exponent has all bits. Integers have none.
func Nonfinite(d tensor.DType, b []byte) (nan, inf int64) {
	le := binary.LittleEndian
	note := func(fraction bool) {
		if fraction {
			nan++
		} else {
			inf++
		}
	}
	switch d {
	case tensor.Float64:
		for ; len(b) >= 8; b = b[8:] {
			if x := le.Uint64(b); x>>52&0x7ff == 0x7ff {
				note(x<<12 != 0)
			}
		}
	case tensor.Float32:
		for ; len(b) >= 4; b = b[4:] {
			if x := le.Uint32(b); x>>23&0xff == 0xff {
				note(x<<9 != 0)
			}
		}
	case tensor.BFloat16:
		for ; len(b) >= 2; b = b[2:] {
			if x := le.Uint16(b); x>>7&0xff == 0xff {
				note(x<<9 != 0)
			}
		}
	case tensor.Float16:
		for ; len(b) >= 2; b = b[2:] {
			if x := le.Uint16(b); x>>10&0x1f == 0x1f {
				note(x<<6 != 0)
			}
		}
	}
	return nan, inf
}
