package cuda

import (
	"errors"
	"fmt"
	"strings"
)

// Result codes of the driver that this package checks for.
const (
	codeOutOfMemory = 2
	codePeerEnabled = 704
	codeNotReady    = 600
)

// Error is a failed call of the driver.
type Error struct {
	Call     string   // the function, with the kernel for a launch
	Device   int      // its index; -1 when no device was involved
	Code     int      // CUresult
	Name     string   // CUDA_ERROR_ILLEGAL_ADDRESS
	Text     string   // the driver's explanation
	Launches []string // if earlier work failed: the last launches, newest first
}

// Error returns the call, the device, CUDA's name and text of the error and, if one
// of them may be the cause, the last launches.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cuda: %s", e.Call)
	if e.Device >= 0 {
		fmt.Fprintf(&b, " on device %d", e.Device)
	}
	fmt.Fprintf(&b, ": %s (%d): %s", e.Name, e.Code, e.Text)
	if len(e.Launches) > 0 {
		fmt.Fprintf(&b, "; it may come from an earlier launch, newest first: %s (RINGO_CUDA_DEBUG=1 finds which)", strings.Join(e.Launches, ", "))
	}
	return b.String()
}

// IsOutOfMemory reports whether err is, or wraps, the driver's error that there is
// no memory.
func IsOutOfMemory(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == codeOutOfMemory
}

// asynchronous reports whether a code is for work that was queued earlier:
// exceptions inside kernels and their consequences. Other codes of the same
// hundreds are for the call itself: 701 is a launch with more threads than there
// are registers for, 720 a cooperative launch of too many blocks.
func asynchronous(code int) bool {
	switch code {
	case 214, 220, 226: // ECC, NVLink, contained
		return true
	case 700, 702: // illegal address, timeout
		return true
	}
	return code == 710 || code >= 714 && code <= 719 || code == 721 // assertions, instructions, tensor memory
}
