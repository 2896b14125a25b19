package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

// Same is the Op of a Factor that says what a constant has for all of a rank's rows, such as a mask of features: its Value is a digest of
// it. A constant of other sizes has another Site.
const Same = "the same for all rows"

const maxSame = 8

// noteSame notes the inputs of an operation on rows, to out, that each row of this rank meets, such as a mask of features: all ranks need
// the same. Of inputs that are floats, reductions carry a digest (Agreement); integers may be indices of a rank's own rows there, so it
// matters how they are used. A rank with one row may have a mask for it.
func (t *Tape) noteSame(out *header, in []*header) {
	b := t.batchAt(out.at)
	if b.N < 2 || out.at.Rows().Dims() == 0 || !t.noting() {
		return
	}
	for _, h := range in {
		if h == nil || h.at.Of != 0 || h.needs || h.n < 2 || h.ty != (Types{}) || !h.st.dev.Host() || h.ld != 0 {
			continue
		}
		line, own, each := t.callSite(), false, h.n // each: elements of one, if it repeats one for each row
		site := line
		for d, n := range h.dims[:h.ndim] {
			flat := h.at.Flat()>>d&1 != 0
			own = own || n > 1 && !flat && out.at.Dims()>>(d+int(out.ndim-h.ndim))&1 != 0
			if flat && each == product(h.dims[d:h.ndim]) {
				each /= max(n, 1)
			} else {
				site = kernel.Key(site, uint64(n))
			}
		}
		if !own && t.fed.same < maxSame {
			t.noteFactor(Factor{Site: site, Value: float64(checksumOf(h, each) >> 44), Op: Same, from: line})
		}
	}
}
