package vp8

import (
	"encoding/binary"
	"math/bits"
)

// reader decodes Booleans of a partition, each with the probability that it is false, in 1/256 (RFC 6386, 7).
type reader struct {
	data  []byte
	at    int    // the next byte
	value uint64 // from the highest bit on
	last  uint64 // value of the interval, 127 to 254
	n     int    // bits of value; behind the end, negative
	short bool   // data ended too early
}

func newReader(data []byte) reader { return reader{data: data, last: 254} }

// enough bits are those of four Booleans: the last one needs eight, and each takes up to seven.
const enough = 3*7 + 8

// fill takes bytes if there may not be enough bits.
func (r *reader) fill(value uint64, n int) (uint64, int) {
	if n >= enough {
		return value, n
	}
	if r.at+8 <= len(r.data) {
		value |= binary.BigEndian.Uint64(r.data[r.at:]) >> (n & 63)
		more := (63 - n) >> 3
		r.at += more
		return value, n + 8*more
	}
	for n <= 56 && r.at < len(r.data) {
		value |= uint64(r.data[r.at]) << (56 - n)
		r.at++
		n += 8
	}
	return value, n
}

// part is the last value of the lower part of the interval, which stands for false.
func part(last uint64, p byte) uint64 { return last * uint64(p) >> 8 }

// lower and upper take a part of the interval, scaled to at least 128 values.
func lower(value, last uint64, n int) (uint64, uint64, int) {
	s := shifts[uint8(last)]
	return value << (s & 63), uint64(lasts[uint8(last)]), n - int(s)
}

func upper(value, last, part uint64, n int) (uint64, uint64, int) {
	return lower(value-(part+1)<<56, last-part-1, n)
}

// number is a Boolean as 0 or 1, without a branch: for those that are as often one as the other.
func number(value, last uint64, n int, p byte) (uint64, uint64, int, uint64) {
	low := part(last, p)
	mask := uint64(int64(low-value>>56) >> 63)
	last = low + (last-2*low-1)&mask
	s := shifts[uint8(last)]
	return (value - (low+1)<<56&mask) << (s & 63), uint64(lasts[uint8(last)]), n - int(s), mask & 1
}

// shifts and lasts are, of intervals by their last value, how far they are scaled, and the last value then.
var shifts, lasts = func() (shifts, lasts [256]uint8) {
	for i := range 255 {
		shifts[i] = uint8(bits.LeadingZeros8(uint8(i + 1)))
		lasts[i] = uint8((i+1)<<shifts[i] - 1)
	}
	return shifts, lasts
}()

func (r *reader) bit(p byte) int {
	if r.n < 8 {
		r.value, r.n = r.fill(r.value, r.n)
		r.short = r.short || r.n < 8
	}
	var b uint64
	r.value, r.last, r.n, b = number(r.value, r.last, r.n, p)
	return int(b)
}

func (r *reader) flag() bool { return r.bit(128) == 1 }

func (r *reader) uint(bits int) (v int) {
	for range bits {
		v = 2*v + r.bit(128)
	}
	return v
}

// int is zero, or a number with its sign behind.
func (r *reader) int(bits int) int {
	if !r.flag() {
		return 0
	}
	v := r.uint(bits)
	if r.flag() {
		return -v
	}
	return v
}
