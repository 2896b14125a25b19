package cp

import (
	"slices"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// documents says which queries and keys can meet. The zero value: all that the causal mask allows.
type documents struct {
	ids    tensor.Tensor // the document of each position of whole sequences [rows, positions]
	shared []int         // whether runs i and j of 2·ranks share a document in any row: element i·2·ranks + j
}

// take learns the documents. Ranks compare the first ones: with different ids, one would wait for keys that nobody sends.
func (p *circle) take(ids tensor.Tensor) {
	d, total := ids.Shape().Dims, p.cuts.total()
	if len(d) != 2 || d[0] != p.rows || d[1] != total || ids.DType() != tensor.Int64 {
		fail(p.Name(), "documents %v: wants the id of each position of whole sequences, int64[%d %d]", ids.Shape(), p.rows, total)
	}
	if p.c.Ints(1)[0] != 0 {
		p.checked.op = p.Name()
		p.checked.agree(ids, p.groups()...)
	}
	if p.again(ids); p.ranks == 1 {
		return
	}
	list := p.c.HostInts(ids)
	p.balance(p.cuts, areasOf(list, total))
	p.overlap(list)
}

// overlap finds which runs share a document.
func (p *circle) overlap(list []int64) {
	n := 2 * p.ranks
	least, most := make([]int64, n), make([]int64, n)
	for row := range p.rows {
		at := row * p.cuts.total()
		for k := range n {
			least[k], most[k] = 1, 0 // none
			if run := list[at+p.cuts[k] : at+p.cuts[k+1]]; len(run) > 0 {
				least[k], most[k] = slices.Min(run), slices.Max(run)
			}
		}
		for i := range p.shared {
			if a, b := i/n, i%n; max(least[a], least[b]) <= min(most[a], most[b]) {
				p.shared[i] = 1
			}
		}
	}
}

// again learns what take of Forward did.
func (p *circle) again(ids tensor.Tensor) {
	if p.ids = ids; p.ranks > 1 {
		n := 1 + len(p.cuts)
		ints := p.c.Ints(n + 4*p.ranks*p.ranks)
		p.cuts, p.shared = ints[1:n], ints[n:]
	}
}

// sees reports whether queries of run a of rank q see any of those keys of rank k that are not hidden by their positions.
func (p *circle) sees(q, k, a int) bool {
	if p.shared == nil {
		return true
	}
	n := 2 * p.ranks
	row := p.shared[[2]int{q, n - 1 - q}[a]*n:]
	return row[k] != 0 || (k > q || k == q && a == 1) && row[n-1-k] != 0
}

// last returns how many places behind its own rank the last one is that sees the keys of the rank so many places before this one.
func (p *circle) last(before int) int {
	k := p.at(before)
	for i := p.ranks - 1; i > 0; i-- {
		q := (k + i) % p.ranks
		for a := range 2 {
			if p.cuts.seen(q, k, a) > 0 && p.sees(q, k, a) {
				return i
			}
		}
	}
	return 0
}

// mask sets the documents of queries of run a and of so many keys.
func (p *circle) mask(o *ops.AttentionOptions, a, before, keys int) {
	if p.shared == nil {
		return
	}
	mine, its := p.of(0), p.of(before)
	of := func(run [2]int) tensor.Tensor { return p.ids.Slice(1, run[0], run[1]) }
	o.QueryDocs, o.KeyDocs = of(mine[a]), of(its[0])
	if keys > its.len(0) {
		o.KeyDocs = tensor.Concat(1, o.KeyDocs, of(its[1]))
	}
}

// Imbalance returns the area of the rank with the largest one, in the mean of all ranks: pairs of a query and a key of its document, over
// all rows. 1 is even. ids are as in Ring, in host memory.
func (f *Ring) Imbalance(ids tensor.Tensor) float64 {
	c, area := f.plan(ids)
	return float64(area.most(c)*f.Group.Size()) / float64(area[ids.Dim(1)])
}
