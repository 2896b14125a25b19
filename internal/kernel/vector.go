package kernel

import "unsafe"

// The vec functions, which gen writes, run a kernel in assembly over the first elements of their slices and return how many
// they did: all but fewer than vectorStep, or none without assembly. The code after the call does the others, and defines
// what the assembly computes, to the bit.

// vectorSet names the assembly of the vec functions.
type vectorSet uint8

const (
	vecNone vectorSet = iota
	vecAVX2
	vecAVX512
	vecNEON
)

// complete reports whether s has all kernels. NEON lacks dropout and the probes of memory.
func (s vectorSet) complete() bool { return s == vecAVX2 || s == vecAVX512 }

// vectorStep is the number of elements that the assembly does at a time.
const vectorStep = 16

// dropStep is the same for dropout.
const dropStep = 32

// vectorLen is the number of the first of n elements that the assembly does.
func vectorLen(n int) int {
	if active.vectors == vecNone {
		return 0
	}
	return n &^ (vectorStep - 1)
}

// vectorLenOf is vectorLen for elements of type T: a float of at most size bytes.
func vectorLenOf[T Number](n, size int) int {
	if !isFloat[T]() || int(unsafe.Sizeof(*new(T))) > size {
		return 0
	}
	return vectorLen(n)
}

// farBytes is the size from which on the output of an elementwise kernel is written past the caches, which could not hold it:
// that saves reading it first. Tests change it.
var farBytes = 8 << 20

// pastCaches reports whether dst should be written past the caches, and begins at a cache line, as it must then.
func pastCaches[T any](dst []T) bool {
	return len(dst)*int(unsafe.Sizeof(*new(T))) >= farBytes && uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%64 == 0
}

// rowsPastCaches is pastCaches for the rows of dst, which all begin at a cache line then. Those of xs, inputs that dst may be,
// are in the caches already. [rowsDone] must follow.
func rowsPastCaches[T any](dst []T, cols int, xs ...[]T) bool {
	if !pastCaches(dst) || cols*int(unsafe.Sizeof(*new(T)))%64 != 0 {
		return false
	}
	for _, x := range xs {
		if unsafe.SliceData(x) == unsafe.SliceData(dst) {
			return false
		}
	}
	return true
}

// rowsDone ends the writing of rows past the caches. One fence for each row would cost more than is gained.
func rowsDone(far bool) {
	if far {
		storeFence()
	}
}
