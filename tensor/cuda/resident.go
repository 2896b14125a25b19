package cuda

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// residentPacks are the largest numbers of packs of 16 bytes that a lane has of a warp's row: the variants of resident_*.cu, before the one
// in which a block has a row.
var residentPacks = []int{1, 2, 3, 4, 6, 8}

const (
	warpPacks         = 8 * 32 // of the longest row of a warp
	blockPacks        = 4      // of each thread of a block
	blockRow          = 512 * blockPacks
	residentGradPacks = 6 * 32 // of the longest row in norm_grad
)

// fewestPacks is the index in residentPacks of the variant for a warp's row of so many packs.
func fewestPacks(row int) int {
	i, _ := slices.BinarySearch(residentPacks, (row+31)/32)
	return i
}

func newResident(file, name string, t tensor.DType, packs int, block bool) *kernel {
	k := newKernel("resident_"+file, name, elems[t])
	k.defines = []string{fmt.Sprintf("-DPACKS=%d", packs), fmt.Sprintf("-DBLOCK=%d", truth(block))}
	return k
}

// resident makes a row of kernels that keep a row of a matrix in registers. Others compute float64, rows that are too long, and those that
// are not whole packs: kernels of this name in file, launched by other. The first n operands are parameters; those in whole are read or
// written by packs. more adds the parameters after the size.
func resident(file, name string, n int, whole []int, more func(*Queue, *tensor.Args),
	other func(int, func(*Queue, *tensor.Args)) launcher) [tensor.NumDTypes]tensor.Kernel {
	r := floats(file, name, other(n, more))
	for _, t := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
		var warps []*kernel
		for _, p := range residentPacks {
			warps = append(warps, newResident(file, name, t, p, false))
		}
		block, rest := newResident(file, name, t, blockPacks, true), r[t]
		r[t] = cell(nil, func(q *Queue, _ *kernel, a *tensor.Args) {
			rows, cols := a.Dim[0], a.Dim[1]
			packs := cols * t.Size() / 16
			if rows == 0 || packs == 0 || packs > blockRow || !wholeRows(a, cols*t.Size(), whole...) {
				rest(q, a)
				return
			}
			if q.ptrs(a, n).i64(rows).args.I32(cols); more != nil {
				more(q, a)
			}
			if packs <= warpPacks {
				q.run(warps[fewestPacks(packs)], cuda.Dim{X: (rows + 7) / 8}, cuda.Dim{X: 32, Y: 8}, 0)
			} else {
				q.run(block, cuda.Dim{X: rows}, cuda.Dim{X: ((packs+blockPacks-1)/blockPacks + 31) &^ 31}, 0)
			}
		})
	}
	return r
}

// residentGrads are the kernels of all gradients of a norm, for rows of a warp. Shared memory has two rows of two matrices for each warp;
// its sums, at the end, need no more.
func residentGrads(t tensor.DType) (ks []*kernel) {
	for _, p := range residentPacks {
		if 32*p <= residentGradPacks && t != tensor.Float64 {
			k := newResident("norm.cu", "norm_grad", t, p, false)
			k.shared = normWarps * 32 * p * 16 * 2 * 2
			ks = append(ks, k)
		}
	}
	return ks
}
