package cuda

import (
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const (
	groupTile = 64 // TILE of gemm.cu
	groupSide = 16 // SIDE

	groupMMATile   = 128              // TILE of grouped_mma.cu
	groupMMALanes  = 256              // LANES
	groupMMAShared = 2 * 3 * 5120 * 2 // two sides of STAGES of STAGE elements

	groupWGMMALanes  = 384                  // LANES of grouped_wgmma.cu
	groupWGMMAShared = 4*(384*64*2) + 1<<10 // STAGES of (TILE_M + TILE_N) * DEPTH elements, and what aligns them
)

// groupKernels compute products of groups on tensor cores: with b, with b transposed, and the gradient of b.
type groupKernels struct{ plain, tb, grad *kernel }

// groupMMA are for sm_80 and later, groupWGMMA for compute capability 9.0 if RINGO_HOPPER=1 asks for them.
var (
	groupMMA   = groupTable("grouped_mma", func(k *kernel) { k.shared = groupMMAShared })
	groupWGMMA = groupTable("grouped_wgmma", func(k *kernel) { k.shared, k.specific = groupWGMMAShared, true })
)

func groupTable(name string, set func(*kernel)) (table [tensor.NumDTypes]groupKernels) {
	for _, t := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		of := func(end string) *kernel {
			k := newKernel(name+".cu", name+end, elems[t])
			set(k)
			return k
		}
		table[t] = groupKernels{of(""), of("_tb"), of("_grad")}
	}
	return table
}

// groupsOnTensorCores returns the kernels for a launch, or nil if the plain kernel computes it: for other types than bfloat16 and float16,
// rows that are not aligned to 16 bytes, devices before sm_80, and 2^30 rows or columns or more. The kernels for compute capability 9.0 are
// those of launches that are not empty, with RINGO_HOPPER=1.
func groupsOnTensorCores(q *Queue, a *tensor.Args) *groupKernels {
	rows, n, k := a.Dim[0], a.Dim[1], a.Dim[2]
	if !a.DType.IsHalf() || n%8 != 0 || k%8 != 0 || q.dev.gpu.Major < 8 || q.dev.plain || max(rows, n, k) >= 1<<30 {
		return nil
	}
	for _, p := range a.X[:3] { // all but the groups' sizes
		if uintptr(p)%16 != 0 {
			return nil
		}
	}
	if q.dev.hopper && min(rows, n, k, a.Dim[3]) > 0 { // a tensor map has no empty dimension
		return &groupWGMMA[a.DType]
	}
	return &groupMMA[a.DType]
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
// tile that is not full. Without groups, a block finds that rows have none.
func grouped(q *Queue, k *kernel, a *tensor.Args) {
	rows, n, groups := a.Dim[0], a.Dim[1], a.Dim[3]
	if ks := groupsOnTensorCores(q, a); ks != nil {
		of := ks.plain
		if a.I[0] != 0 {
			of = ks.tb
		}
		q.runGroups(of, a, tilesOf(n, groupMMATile)*(rows/groupMMATile+max(groups, 1)))
		return
	}
	q.groups(a).args.I32(a.I[0])
	q.wide(a.DType, a.F[0]).check()
	q.runTiles(k, cuda.Dim{X: rows/groupTile + max(groups, 1), Y: tilesOf(n, groupTile)}) // y is at most 65535
}

func groupedGrad(q *Queue, k *kernel, a *tensor.Args) {
	n, inner, groups := a.Dim[1], a.Dim[2], a.Dim[3]
	if groups == 0 {
		return // no gradient to write
	}
	if ks := groupsOnTensorCores(q, a); ks != nil {
		q.runGroups(ks.grad, a, tilesOf(inner, groupMMATile)*tilesOf(n, groupMMATile)*groups)
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

// runGroups launches a kernel on tensor cores: a block for each tile, or for each multiprocessor, which then computes several.
func (q *Queue) runGroups(k *kernel, a *tensor.Args, tiles int) {
	if k.specific {
		x, b := boxesOfGroups(a)
		q.ptr(a, 0).boxes(a, 1, x).boxes(a, 2, b).ptr(a, 3)
		for _, n := range a.Dim[:4] {
			q.i64(n)
		}
		q.wide(a.DType, a.F[0]).check()
		q.run(k, cuda.Dim{X: q.dev.sms}, cuda.Dim{X: groupWGMMALanes}, k.shared)
	} else if tiles > 0 {
		q.groups(a).wide(a.DType, a.F[0]).check()
		q.run(k, cuda.Dim{X: tiles}, cuda.Dim{X: groupMMALanes}, k.shared)
	}
}

// boxes says how an operand is copied to shared memory: `matrices` of rows x cols elements, in boxes of `height` rows of 64 elements.
type boxes struct{ matrices, rows, cols, height int }

// boxesOfGroups returns the boxes that grouped_wgmma.cu fetches of its two factors. Where k is along the rows, a box has 128 of them, else
// it is a step of 64 along k.
func boxesOfGroups(a *tensor.Args) (x, b boxes) {
	rows, n, k, groups := a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3]
	switch {
	case a.Op == ops.OpGroupedGrad:
		return boxes{1, rows, n, 64}, boxes{1, rows, k, 64}
	case a.I[0] != 0:
		return boxes{1, rows, k, 128}, boxes{groups, n, k, 128}
	}
	return boxes{1, rows, k, 128}, boxes{groups, k, n, 64}
}

// boxes adds the tensor map of operand i.
func (q *Queue) boxes(a *tensor.Args, i int, b boxes) *Queue {
	dims, box := [3]int{b.cols, b.rows, b.matrices}, [2]int{64, b.height}
	if err := q.tmap.Set(q.dev.gpu, a.DType == tensor.BFloat16, devPtr(a.X[i]), dims, box); err != nil {
		panic(q.dev.fail(a.Op.String(), err))
	}
	q.args.TensorMap(&q.tmap)
	return q
}
