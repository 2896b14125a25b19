package blas

import (
	"fmt"
	"math/bits"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// Type is the element type of all matrices of a product.
type Type uint8

// The element types. Sums of 16-bit floats are float32.
const (
	Float32 Type = iota
	Float64
	BFloat16
	Float16
)

// The numbers of cudaDataType and cublasComputeType_t are those of NVIDIA's
// headers library_types.h and cublas_api.h, 12 and 13.
var types = [...]struct {
	name                 string
	size                 int
	data, compute, scale uintptr
}{
	Float32:  {"float32", 4, 0, 68, 0},
	Float64:  {"float64", 8, 1, 70, 1},
	BFloat16: {"bfloat16", 2, 14, 68, 0},
	Float16:  {"float16", 2, 2, 68, 0},
}

// Float8 is a format of 8-bit floats; the values are cudaDataType's. The zero value
// is none.
type Float8 uint8

// The formats, PyTorch's float8_e4m3fn and float8_e5m2.
const (
	E4M3 Float8 = 28
	E5M2 Float8 = 29
)

const computeTF32 = 77 // CUBLAS_COMPUTE_32F_FAST_TF32

// String returns the type's name.
func (t Type) String() string { return types[t].name }

// Epilogue is what is done to Alpha·op(A)·op(B) + Beta·C before it is stored. The
// values are cublasLtEpilogue_t's.
type Epilogue uint32

// The epilogues. GELU is the tanh approximation. The gradient of ReLU needs no
// epilogue operand: ReLU's output is its mask.
const (
	None        Epilogue = 1
	ReLU        Epilogue = 2
	Bias        Epilogue = 4           // adds Bias [N] to each row
	ReLUBias    Epilogue = ReLU | Bias // adds Bias, then ReLU
	GELU        Epilogue = 32          //
	GELUBias    Epilogue = GELU | Bias //
	GELUAux     Epilogue = GELU | aux  // GELU, and stores its input in Aux
	GELUAuxBias Epilogue = GELUAux | Bias
	DGELU       Epilogue = 64 | aux   // times the derivative of GELU at Aux
	DGELUBias   Epilogue = DGELU | 16 // DGELU, and Bias [N] becomes the sum of C's rows
	BiasGradA   Epilogue = 512        // Bias [M] becomes the sum of op(A)'s columns (cuBLASLt's B)

	aux Epilogue = 128
)

var epilogueNames = map[Epilogue]string{None: "", ReLU: " relu", Bias: " bias", ReLUBias: " bias+relu", GELU: " gelu",
	GELUBias: " bias+gelu", GELUAux: " gelu(aux)", GELUAuxBias: " bias+gelu(aux)", DGELU: " dgelu", DGELUBias: " dgelu+bias gradient",
	BiasGradA: " bias gradient"}

func (e Epilogue) usesBias() bool { return e&(Bias|16|BiasGradA) != 0 }

// Gemm is D = Alpha·op(A)·op(B) + Beta·C and an epilogue, on row-major matrices; op
// transposes if its flag is set. If Beta is 0, C is not read. If D is 0, D is C.
type Gemm struct {
	Type             Type
	TransA, TransB   bool // A is then [K, M], B is [N, K]
	M, N, K          int  // op(A) [M, K], op(B) [K, N], C and D [M, N]; none may be 0
	Alpha, Beta      float64
	A, B, C, D       cuda.Ptr
	LDA, LDB, LDC    int // elements from one row to the next; LDC is D's, too
	Batch            int // number of products, at least 1
	StrideA, StrideB int // elements from one matrix of the batch to the next; 0 repeats a matrix
	StrideC          int
	Epilogue         Epilogue // 0 is None
	Bias             cuda.Ptr
	StrideBias       int      // elements from one bias, or gradient of one, to the next of the batch
	Aux              cuda.Ptr // [M, N] of Type, 16-byte aligned, rows LDAux apart
	LDAux            int      // a multiple of 8
	TF32             bool     // Float32 operands may be rounded to TensorFloat-32

	// A8 and B8 are the formats of A and B in a product of 8-bit floats; Type is
	// that of C. A and B must have K along their rows (TransB). Both are multiplied
	// by a scale, float32 on the device: one for the whole or, with PerRow, one for
	// each row, of A [M] and of B [N].
	A8, B8         Float8
	ScaleA, ScaleB cuda.Ptr
	PerRow         bool
	FastAccum      bool // sums of 8-bit floats may keep fewer bits than float32: 14 on Hopper
}

// String describes the product for errors and profiles: "bfloat16 TN 64x512x784 bias".
func (g *Gemm) String() string {
	op := func(t bool) string {
		if t {
			return "T"
		}
		return "N"
	}
	s := fmt.Sprintf("%v %s%s %dx%dx%d", g.Type, op(g.TransA), op(g.TransB), g.M, g.N, g.K)
	if g.Batch > 1 {
		s = fmt.Sprintf("%s, %d of them,", s, g.Batch)
	}
	if g.A8 != 0 {
		s += map[bool]string{false: " of scaled 8-bit floats", true: " of 8-bit floats scaled per row"}[g.PerRow]
		if g.FastAccum {
			s += " with fast accumulation"
		}
	}
	return s + epilogueNames[g.epilogue()]
}

// Out is where the result is stored: D, or C.
func (g *Gemm) Out() cuda.Ptr {
	if g.D != 0 {
		return g.D
	}
	return g.C
}

func (g *Gemm) epilogue() Epilogue { return max(g.Epilogue, None) }

// key holds all that the choice of an algorithm depends on.
type key struct {
	typ                     Type
	transA, transB, tf32    bool
	aligned                 [6]uint8 // A, B, C, bias, aux, D: bytes, up to 256
	epilogue                Epilogue
	m, n, k, lda, ldb, ldc  int
	batch, strideA, strideB int
	strideC, ldAux          int
	strideBias              int
	a8, b8                  Float8
	perRow, fastAccum       bool
}

func (g *Gemm) key() key {
	k := key{typ: g.Type, transA: g.TransA, transB: g.TransB, tf32: g.TF32, epilogue: g.epilogue(),
		m: g.M, n: g.N, k: g.K, lda: g.LDA, ldb: g.LDB, ldc: g.LDC, a8: g.A8, b8: g.B8, perRow: g.PerRow, fastAccum: g.FastAccum,
		aligned: [6]uint8{alignment(g.A), alignment(g.B), alignment(g.C), 5: alignment(g.Out())}}
	if k.batch = max(g.Batch, 1); k.batch > 1 {
		k.strideA, k.strideB, k.strideC = g.StrideA, g.StrideB, g.StrideC
	}
	if k.epilogue.usesBias() {
		k.aligned[3] = g.biasAlignment()
		if k.batch > 1 {
			k.strideBias = g.StrideBias
		}
	}
	if k.epilogue&aux != 0 {
		k.aligned[4], k.ldAux = alignment(g.Aux), g.LDAux
	}
	return k
}

// alignment is the logarithm of the largest power of 2 that divides p, up to 8
// (256 bytes, more than any algorithm asks for).
func alignment(p cuda.Ptr) uint8 { return uint8(min(bits.TrailingZeros64(uint64(p)), 8)) }

// biasAlignment is the least alignment of the biases of a batch.
func (g *Gemm) biasAlignment() uint8 {
	if g.Batch > 1 {
		return min(alignment(g.Bias), alignment(cuda.Ptr(g.StrideBias*types[g.Type].size)))
	}
	return alignment(g.Bias)
}
