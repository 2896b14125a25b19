package cuda

import (
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

const (
	groupTile = 64 // TILE of gemm.cu
	groupSide = 16 // SIDE

	groupMMATile   = 128              // TILE of grouped_mma.cu
	groupMMALanes  = 256              // LANES
	groupMMAShared = 2 * 3 * 5120 * 2 // two sides of STAGES of STAGE elements
)

// groupMMAKernels compute products of groups on tensor cores: with b, with b transposed, and the gradient of b.
type groupMMAKernels struct{ plain, tb, grad *kernel }

var groupMMATable = func() (table [tensor.NumDTypes]groupMMAKernels) {
	for _, t := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		of := func(name string) *kernel {
			k := newKernel("grouped_mma.cu", name, elems[t])
			k.shared = groupMMAShared
			return k
		}
		table[t] = groupMMAKernels{of("grouped_mma"), of("grouped_mma_tb"), of("grouped_mma_grad")}
	}
	return table
}()

// groupsOnTensorCores returns the kernels for a launch, or nil if the plain kernel computes it: for other types than bfloat16 and float16,
// rows that are not aligned to 16 bytes, devices before sm_80, and 2^30 rows or columns or more.
func groupsOnTensorCores(q *Queue, a *tensor.Args) *groupMMAKernels {
	rows, n, k := a.Dim[0], a.Dim[1], a.Dim[2]
	if !a.DType.IsHalf() || n%8 != 0 || k%8 != 0 || q.dev.gpu.Major < 8 || q.dev.plain || max(rows, n, k) >= 1<<30 {
		return nil
	}
	for _, p := range a.X[:3] { // all but the groups' sizes
		if uintptr(p)%16 != 0 {
			return nil
		}
	}
	return &groupMMATable[a.DType]
}

func tilesOf(n, tile int) int { return (n + tile - 1) / tile }

// groups adds the first parameters of all kernels: rows, n, k, groups.
func (q *Queue) groups(a *tensor.Args) *Queue {
	q.ptrs(a, 4)
	for _, n := range a.Dim[:4] {
		q.i64(n)
	}
	return q
}

// grouped launches a block for each tile that the result may have. Only the device knows the groups' sizes, but each group has at most one
// tile that is not full.
func grouped(q *Queue, k *kernel, a *tensor.Args) {
	rows, n, groups := a.Dim[0], a.Dim[1], a.Dim[3]
	if ks := groupsOnTensorCores(q, a); ks != nil {
		of := ks.plain
		if a.I[0] != 0 {
			of = ks.tb
		}
		q.runGroupsMMA(of, a, tilesOf(n, groupMMATile)*(rows/groupMMATile+groups))
		return
	}
	q.groups(a).args.I32(a.I[0])
	q.wide(a.DType, a.F[0]).check()
	q.runTiles(k, cuda.Dim{X: rows/groupTile + groups, Y: tilesOf(n, groupTile)}) // y is at most 65535
}

func groupedGrad(q *Queue, k *kernel, a *tensor.Args) {
	n, inner, groups := a.Dim[1], a.Dim[2], a.Dim[3]
	if groups == 0 {
		return // no gradient to write
	}
	if ks := groupsOnTensorCores(q, a); ks != nil {
		q.runGroupsMMA(ks.grad, a, tilesOf(inner, groupMMATile)*tilesOf(n, groupMMATile)*groups)
		return
	}
	q.groups(a).wide(a.DType, a.F[0]).check()
	q.runTiles(k, cuda.Dim{X: tilesOf(inner, groupTile), Y: tilesOf(n, groupTile), Z: groups})
}

func (q *Queue) runTiles(k *kernel, grid cuda.Dim) {
	if grid.X > 0 && grid.Y > 0 {
		q.run(k, grid, cuda.Dim{X: groupSide, Y: groupSide}, 0)
	}
}

// runGroupsMMA launches a kernel on tensor cores, a block for each tile.
func (q *Queue) runGroupsMMA(k *kernel, a *tensor.Args, tiles int) {
	if tiles > 0 {
		q.groups(a).wide(a.DType, a.F[0]).check()
		q.run(k, cuda.Dim{X: tiles}, cuda.Dim{X: groupMMALanes}, k.shared)
	}
}
