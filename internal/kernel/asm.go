package kernel

import (
	"fmt"
	"os"
	"strings"
)

// isa is the set of kernels for one instruction set.
type isa struct {
	name    string
	gemm32  *engine[float32]
	gemm64  *engine[float64]
	bf16    []*engineBF16 // best first, the last one without instructions for bfloat16
	vectors vectorSet
	grain   float64 // least number of multiply-adds for which it pays to wake another thread
}

// isas are the instruction sets that this CPU and build support, best first.
// The last is always generic.
var isas = append(assemblyISAs(), &isa{
	name: "generic", gemm32: genericEngine[float32](), gemm64: genericEngine[float64](), grain: 1 << 15,
})

// In init, because the conversions in widened use isas.
func init() {
	for _, s := range isas {
		s.bf16 = append(s.bf16, widened(s.gemm32))
	}
}

var active, cpuError = chooseISA(os.Getenv("RINGO_CPU"))

// chooseISA returns the best instruction set, or the one that RINGO_CPU names.
func chooseISA(name string) (*isa, error) {
	if name == "" {
		return isas[0], nil
	}
	var names []string
	for _, s := range isas {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return isas[len(isas)-1], fmt.Errorf("RINGO_CPU=%s: this CPU and build support %s", name, strings.Join(names, ", "))
}

// CPU names the instruction set of the kernels: avx512, avx2, neon or generic. It
// is chosen once, when the program starts: the best one that the CPU supports,
// unless the environment variable RINGO_CPU names another.
func CPU() string { return active.name }

// CPUError returns an error if RINGO_CPU is unknown or not supported here; then
// [CPU] is generic. Otherwise it returns nil.
func CPUError() error { return cpuError }

// asmChunk is the longest vector, in elements, for one assembly call. The Go
// scheduler cannot preempt assembly, so a call must be short.
const asmChunk = 1 << 14

// AddTo32 writes a + b to dst. The slices have the same length; dst may be a or
// b, other overlaps are not allowed.
func AddTo32(dst, a, b []float32) { addChecked(dst, a, b) }

// AddTo64 is [AddTo32] for float64.
func AddTo64(dst, a, b []float64) { addChecked(dst, a, b) }

func addChecked[T Float](dst, a, b []T) {
	if len(a) != len(dst) || len(b) != len(dst) {
		panic(fmt.Sprintf("kernel: AddTo: lengths %d, %d and %d", len(dst), len(a), len(b)))
	}
	sumOf(dst, a, b)
}

// AddTwice32 writes a + b to dst and to too. The slices have the same length; dst
// and too may be a or b. Other overlaps are not allowed.
func AddTwice32(dst, too, a, b []float32) {
	if len(too) != len(dst) || len(a) != len(dst) || len(b) != len(dst) {
		panic(fmt.Sprintf("kernel: AddTwice32: lengths %d, %d, %d and %d", len(dst), len(too), len(a), len(b)))
	}
	k := vecAddTwice(dst, too, a, b)
	for i := k; i < len(dst); i++ {
		v := a[i] + b[i]
		dst[i], too[i] = v, v
	}
}

// Move copies src to dst, which has its length and does not overlap it.
func Move(dst, src []byte) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("kernel: Move: lengths %d and %d", len(dst), len(src)))
	}
	if len(src) < moveFrom {
		copy(dst, src)
	} else {
		move(dst, src)
	}
}

// moveFrom is the least number of bytes for which the processor's copy instruction
// is worth its start-up time.
const moveFrom = 4 << 10
