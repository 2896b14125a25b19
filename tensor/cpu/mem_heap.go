//go:build !unix || race

package cpu

import (
	"errors"
	"unsafe"
)

// mapMemory returns memory of the Go heap, because the race detector sees only that.
func mapMemory(n int) ([]byte, error) {
	if err := mappable(n); err != nil {
		return nil, err
	}
	p := alignedBytes(n)
	return unsafe.Slice((*byte)(p), n), nil
}

func unmapMemory([]byte) {}

// mappable returns an error if no machine has n bytes.
func mappable(n int) error {
	if n > 1<<42 {
		return errors.New("out of memory")
	}
	return nil
}
