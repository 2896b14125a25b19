package tensor

import "github.com/ringo-ml/ringo/tensor/compare"

// fedInputs is what a tape got since the last Backward: parts of the batch, and numbers of the host.
type fedInputs struct {
	compare.Inputs
	factors []Factor // see Param.Factors
	same    int      // how many of them are Same
	asked   bool     // GlobalCount was called
}

func (f *fedInputs) reset() {
	f.Reset()
	f.factors, f.same, f.asked = f.factors[:0], 0, false
}

// valuesOf returns the values of h, an input with rows b, for a comparison between ranks. sum is a digest of them.
func valuesOf(h *header, b batch, sum uint64) *compare.Values {
	x := &compare.Values{Batch: b, Len: h.n, Digest: sum, Equal: uniform(h, -1), SameRows: uniform(h, 0)}
	x.Rounding = map[DType]float64{Float32: 1e-5, Float64: 1e-10}[h.dtype]
	if h.ld == 0 && (x.Rounding != 0 || !h.dtype.IsFloat()) {
		x.At = func(i int) float64 { return loadFloat(h.ptr(), h.dtype, i) }
	}
	return x
}

// Fed returns the parts of the global batch that the tape which used p last got since its last Backward. all is false if they were too many
// to remember. An owner of gradients asks for them in GradReady.
func (p *Param) Fed() (list []compare.Fed, all bool) {
	if p.last == nil {
		return nil, true
	}
	return p.last.t.fed.Fed()
}

// Factors returns the different factors of the tape that used p last, since its last Backward: valid until the next one. If there were too
// many to remember, the last is of ManyFactors.
func (p *Param) Factors() []Factor {
	if p.last == nil {
		return nil
	}
	list := p.last.t.fed.factors
	for i := range list {
		if f := &list[i]; f.from != 0 {
			f.At, f.from = p.last.t.lineOf(f.from), 0
		}
	}
	return list
}

// DrawsBeside reports whether the tape that last used p draws random numbers, such as for dropout, and is neither t nor shares its memory.
func (p *Param) DrawsBeside(t *Tape) bool {
	return p.last != nil && p.last.t.drawn && (t == nil || p.last.t.mem != t.mem)
}

// Tape returns the tape whose Backward runs, if it was the last one to use p; otherwise nil. An owner of gradients asks in BackwardBegin.
func (p *Param) Tape() *Tape {
	if p.last == nil || !p.last.t.inBackward {
		return nil
	}
	return p.last.t
}
