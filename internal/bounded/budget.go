package bounded

import (
	"bytes"
	"errors"
	"fmt"
)

// The memory that a reader of a file may take: PerByte bytes for each byte of the file, and Base beside.
const (
	PerByte = 16
	Base    = 64 << 20
)

// maxFile keeps the products small enough for an int64.
const maxFile = 1 << 56

// Budget is what a reader of a file may still take, in bytes. It is for one goroutine.
type Budget struct{ file, taken int64 }

// New returns the budget of a file of so many bytes.
func New(file int64) *Budget { return &Budget{file: min(file, maxFile)} }

// Grow adds what so many further bytes of a file justify.
func (b *Budget) Grow(file int64) { b.file = min(b.file+min(file, maxFile), maxFile) }

// Take takes n bytes. It returns an error if they are not left.
func (b *Budget) Take(n int64) error {
	if limit := Base + PerByte*b.file; n < 0 || n > limit-b.taken {
		return tooMuch{fmt.Errorf("it would take more than %d bytes of memory, and a file of %d bytes may take no more", limit, b.file)}
	}
	b.taken += n
	return nil
}

type tooMuch struct{ error }

// IsTooMuch tells whether an error is, or wraps, one of Take.
func IsTooMuch(err error) bool {
	_, is := errors.AsType[tooMuch](err)
	return is
}

// Give gives back n bytes that were taken.
func (b *Budget) Give(n int64) { b.taken -= n }

// JSON returns an error if decoding a JSON text may take more memory than its length justifies. one is the memory of the
// largest value in it, in bytes, with its part of the list or map that has it, also while that grows.
func JSON(text []byte, one int64) error {
	values := int64(1)
	for _, c := range [][]byte{{','}, {'{'}} {
		values += int64(bytes.Count(text, c))
	}
	return New(int64(len(text))).Take(values * one)
}
