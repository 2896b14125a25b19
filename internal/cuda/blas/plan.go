package blas

import (
	"errors"
	"runtime"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// Attributes of descriptors, from cublasLt.h.
const (
	descTransA        = 3 // CUBLASLT_MATMUL_DESC_*
	descTransB        = 4
	descEpilogue      = 7
	descBias          = 8
	descBiasStride    = 10
	descAux           = 11
	descAuxLD         = 12
	descScaleA        = 17
	descScaleB        = 18
	descFastAccum     = 25
	descScaleModeA    = 31
	descScaleModeB    = 32
	scalePerRow       = 3 // CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
	layoutBatch       = 5 // CUBLASLT_MATRIX_LAYOUT_*
	layoutStride      = 6
	prefWorkspace     = 1 // CUBLASLT_MATMUL_PREF_*
	prefReduction     = 3
	prefAlignA        = 5 // and B, C, D
	reduceInCompute   = 2 // CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
	transpose         = 1 // CUBLAS_OP_T
	maxWorkspaceBytes = 32 << 20
)

// plan is kept for a product: its descriptors and its algorithm.
type plan struct {
	desc        uintptr
	a, b, c     uintptr // layouts, of cuBLASLt's A and B
	algo        heuristic
	found       []heuristic // the candidates, the heuristic's best first
	tuned       bool        // algo is the last word
	unsupported error
	bias, aux   cuda.Ptr // addresses that the descriptor holds
	scales      [2]cuda.Ptr
	note        *cuda.Func
}

// heuristic is a cublasLtMatmulHeuristicResult_t.
type heuristic struct {
	algo      [8]uint64
	workspace uint64
	state     int32
	waves     float32
	_         [4]int32
}

// scratch is memory for the arguments of calls. A variable whose address goes to C,
// and a list of arguments, would otherwise be allocated in each call. It is part of
// Handle, which is on the heap, where nothing moves.
type scratch struct {
	call   [16]uintptr
	i8     int8
	i32    int32
	u32    uint32
	i64    int64
	count  int32
	scale  [2]float32
	double [2]float64
}

// set sets an attribute of a descriptor, a layout or a preference to the value at
// p.
func set[T any](call string, fn, object uintptr, attr uintptr, p *T, g *Gemm) error {
	return check(call, dl.Call(fn, object, attr, uintptr(unsafe.Pointer(p)), unsafe.Sizeof(*p)), g)
}

// newPlan makes the descriptors of a product and asks for an algorithm. If there is
// none, the plan keeps that answer.
func (h *Handle) newPlan(g *Gemm) (*plan, error) {
	p := &plan{note: &cuda.Func{Name: "cublasLtMatmul " + g.String()}}
	err := g.auxFits()
	if err == nil {
		err = errors.Join(h.describe(p, g), h.layouts(p, g))
	}
	if err == nil {
		err = h.ask(p, g)
	}
	if err == nil && g.Epilogue == BiasGradA {
		err = h.worthwhile(p, g)
	}
	if IsUnsupported(err) {
		p.unsupported, err = err, nil
	}
	if err != nil {
		h.destroy(p)
		return nil, err
	}
	return p, nil
}

// auxFits returns an unsupported error for an Aux that cuBLASLt does not accept:
// the status that it returns for one is not documented.
func (g *Gemm) auxFits() error {
	if g.epilogue()&aux == 0 || g.LDAux%8 == 0 && alignment(g.Aux) >= 4 && g.Batch <= 1 {
		return nil
	}
	return check("cublasLtMatmulAlgoGetHeuristic", uintptr(notSupported), g)
}

func (h *Handle) describe(p *plan, g *Gemm) error {
	t, fn := types[g.Type], &h.lib.fn
	compute := t.compute
	if g.TF32 && g.Type == Float32 {
		compute = computeTF32
	}
	if err := check("cublasLtMatmulDescCreate", dl.Call(fn.DescCreate, uintptr(unsafe.Pointer(&p.desc)), compute, t.scale), g); err != nil {
		return err
	}
	put := func(attr uintptr, v uint32) error {
		h.tmp.u32 = v
		return set("cublasLtMatmulDescSetAttribute", fn.DescSet, p.desc, attr, &h.tmp.u32, g)
	}
	var errs []error
	if g.TransB {
		errs = append(errs, put(descTransA, transpose))
	}
	if g.TransA {
		errs = append(errs, put(descTransB, transpose))
	}
	errs = append(errs, put(descEpilogue, uint32(g.epilogue())))
	if g.PerRow {
		if h.lib.Version < rowScalesVersion {
			return check("cublasLtMatmulDescSetAttribute", uintptr(notSupported), g)
		}
		errs = append(errs, put(descScaleModeA, scalePerRow), put(descScaleModeB, scalePerRow))
	}
	if g.FastAccum {
		h.tmp.i8 = 1
		errs = append(errs, set("cublasLtMatmulDescSetAttribute", fn.DescSet, p.desc, descFastAccum, &h.tmp.i8, g))
	}
	if g.epilogue().usesBias() && g.Batch > 1 {
		h.tmp.i64 = int64(g.StrideBias)
		errs = append(errs, set("cublasLtMatmulDescSetAttribute", fn.DescSet, p.desc, descBiasStride, &h.tmp.i64, g))
	}
	if g.epilogue()&aux != 0 {
		h.tmp.i64 = int64(g.LDAux)
		errs = append(errs, set("cublasLtMatmulDescSetAttribute", fn.DescSet, p.desc, descAuxLD, &h.tmp.i64, g))
	}
	return errors.Join(append(errs, h.point(p, g))...)
}

// point sets the addresses of the scales and of the epilogue's operands in the
// descriptor.
func (h *Handle) point(p *plan, g *Gemm) error {
	if scales := [2]cuda.Ptr{g.ScaleB, g.ScaleA}; g.A8 != 0 && p.scales != scales { // our B is cuBLASLt's A
		p.scales = scales
		if err := errors.Join(h.setPointer(p, descScaleA, &p.scales[0], g), h.setPointer(p, descScaleB, &p.scales[1], g)); err != nil {
			return err
		}
	}
	if e := g.epilogue(); e.usesBias() && p.bias != g.Bias {
		p.bias = g.Bias
		if err := h.setPointer(p, descBias, &p.bias, g); err != nil {
			return err
		}
	}
	if g.epilogue()&aux != 0 && p.aux != g.Aux {
		p.aux = g.Aux
		return h.setPointer(p, descAux, &p.aux, g)
	}
	return nil
}

// setPointer is set for a pointer, without an allocation.
func (h *Handle) setPointer(p *plan, attr uintptr, ptr *cuda.Ptr, g *Gemm) error {
	args := h.tmp.call[:4]
	args[0], args[1], args[2], args[3] = p.desc, attr, uintptr(unsafe.Pointer(ptr)), unsafe.Sizeof(*ptr)
	r := dl.Call(h.lib.fn.DescSet, args...)
	runtime.KeepAlive(p)
	return check("cublasLtMatmulDescSetAttribute", r, g)
}

// layouts makes the three layouts. A row-major matrix is a column-major one with
// rows and columns exchanged.
func (h *Handle) layouts(p *plan, g *Gemm) error {
	shape := func(rows, cols int, t bool) (int, int) {
		if t {
			return rows, cols
		}
		return cols, rows
	}
	ar, ac := shape(g.K, g.N, g.TransB)
	br, bc := shape(g.M, g.K, g.TransA)
	return errors.Join(h.layout(&p.a, ar, ac, g.LDB, g.StrideB, g.B8, g), h.layout(&p.b, br, bc, g.LDA, g.StrideA, g.A8, g),
		h.layout(&p.c, g.N, g.M, g.LDC, g.StrideC, 0, g))
}

// layout describes a matrix of 8-bit floats of format f or, if f is none, of g's
// type.
func (h *Handle) layout(l *uintptr, rows, cols, ld, stride int, f Float8, g *Gemm) error {
	fn, typ := &h.lib.fn, uintptr(f)
	if f == 0 {
		typ = types[g.Type].data
	}
	r := dl.Call(fn.LayoutCreate, uintptr(unsafe.Pointer(l)), typ, uintptr(rows), uintptr(cols), uintptr(ld))
	if err := check("cublasLtMatrixLayoutCreate", r, g); err != nil || g.Batch <= 1 {
		return err
	}
	h.tmp.i32, h.tmp.i64 = int32(g.Batch), int64(stride)
	return errors.Join(set("cublasLtMatrixLayoutSetAttribute", fn.LayoutSet, *l, layoutBatch, &h.tmp.i32, g),
		set("cublasLtMatrixLayoutSetAttribute", fn.LayoutSet, *l, layoutStride, &h.tmp.i64, g))
}

// preference describes the algorithms that are accepted: they add in the type of
// the sums, and fit the operands' alignment.
func (h *Handle) preference(g *Gemm) (uintptr, error) {
	fn := &h.lib.fn
	var pref uintptr
	if err := check("cublasLtMatmulPreferenceCreate", dl.Call(fn.PreferenceCreate, uintptr(unsafe.Pointer(&pref))), g); err != nil {
		return 0, err
	}
	workspace := uint64(maxWorkspaceBytes)
	errs := []error{set("cublasLtMatmulPreferenceSetAttribute", fn.PreferenceSet, pref, prefWorkspace, &workspace, g)}
	put := func(attr uintptr, v uint32) {
		h.tmp.u32 = v
		errs = append(errs, set("cublasLtMatmulPreferenceSetAttribute", fn.PreferenceSet, pref, attr, &h.tmp.u32, g))
	}
	put(prefReduction, reduceInCompute)
	d := alignment(g.Out())
	if g.epilogue().usesBias() { // bias has no preference of its own; PyTorch uses D's for it, too
		d = min(d, g.biasAlignment())
	}
	for i, bits := range [4]uint8{alignment(g.B), alignment(g.A), alignment(g.C), d} {
		put(prefAlignA+uintptr(i), 1<<bits)
	}
	return pref, errors.Join(errs...)
}

// ask gets the candidates from cuBLASLt. The heuristic's best is the algorithm until another one is chosen.
func (h *Handle) ask(p *plan, g *Gemm) error {
	fn := &h.lib.fn
	pref, err := h.preference(g)
	if pref != 0 {
		defer dl.Call(fn.PreferenceDestroy, pref)
	}
	if err != nil {
		return err
	}
	want := 1
	if h.folder != "" {
		want = candidates
	}
	found := make([]heuristic, want)
	r := dl.Call(fn.GetHeuristic, h.handle, p.desc, p.a, p.b, p.c, p.c, pref, uintptr(want),
		uintptr(unsafe.Pointer(&found[0])), uintptr(unsafe.Pointer(&h.tmp.count)))
	// Whether cuBLASLt has the gradients of the biases of a batch, and which status says no, is not documented and was not tried yet. If the
	// product itself is wrong, the plan without them says so.
	if g.Epilogue == BiasGradA && g.Batch > 1 && status(int32(r)) == invalidValue {
		r = uintptr(notSupported)
	}
	if err := check("cublasLtMatmulAlgoGetHeuristic", r, g); err != nil {
		return err
	}
	p.found = slices.DeleteFunc(found[:h.tmp.count], func(r heuristic) bool { return status(r.state) != success })
	if len(p.found) == 0 {
		return check("cublasLtMatmulAlgoGetHeuristic", uintptr(notSupported), g)
	}
	p.algo = p.found[0]
	return nil
}

// worthwhile returns an unsupported error for the gradient of a bias, if it would
// leave more of the device idle than the product alone: a product with few large
// tiles and long sums needs an algorithm that splits the sums.
func (h *Handle) worthwhile(p *plan, g *Gemm) error {
	plain := *g
	plain.Epilogue = None
	alone, err := h.plan(&plain)
	if err != nil || alone.unsupported != nil || 1.5*p.algo.waves >= min(alone.algo.waves, 1) {
		return err
	}
	return check("cublasLtMatmulAlgoGetHeuristic", uintptr(notSupported), g)
}

func (h *Handle) destroy(p *plan) {
	if p.desc != 0 {
		dl.Call(h.lib.fn.DescDestroy, p.desc)
	}
	for _, l := range [3]uintptr{p.a, p.b, p.c} {
		if l != 0 {
			dl.Call(h.lib.fn.LayoutDestroy, l)
		}
	}
}
