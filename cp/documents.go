package cp

import "github.com/ringo-ml/ringo/tensor"

// documents says which queries and keys can meet. The zero value: all that the causal mask allows.
type documents struct {
	ids    tensor.Tensor // the document of each position of whole sequences [rows, positions]
	shared []int         // whether runs i and j of 2·ranks share a document in any row: element i·2·ranks + j
}

// take learns the documents. Ranks compare the first ones: with different ids, one would wait for keys that nobody sends.
func (p *circle) take(ids tensor.Tensor) {
	if d := ids.Shape().Dims; len(d) != 2 || d[0] != p.rows || d[1] != p.total || ids.DType() != tensor.Int64 {
		fail(p.Name(), "documents %v: wants the id of each position of whole sequences, int64[%d %d]", ids.Shape(), p.rows, p.total)
	}
	if p.c.Ints(1)[0] != 0 {
		p.checked.op = p.Name()
		p.checked.agree(ids, p.groups()...)
	}
	if p.ids = ids; p.ranks == 1 {
		return
	}
	n := 2 * p.ranks
	p.shared = p.c.Ints(1 + n*n)[1:]
	p.overlap(p.c.HostInts(ids))
}

// overlap finds which runs share a document.
func (p *circle) overlap(list []int64) {
	n := 2 * p.ranks
	least, most := make([]int64, n), make([]int64, n)
	for row := range p.rows {
		for rank := range p.ranks {
			for i, run := range zigzag(p.total, rank, p.ranks) {
				k := [2]int{rank, n - 1 - rank}[i]
				least[k], most[k] = 1, 0 // none
				for at, id := range list[row*p.total+run[0] : row*p.total+run[1]] {
					if at == 0 {
						least[k], most[k] = id, id
					}
					least[k], most[k] = min(least[k], id), max(most[k], id)
				}
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
	n := 2 * p.ranks
	p.ids, p.shared = ids, p.c.Ints(1 + n*n)[1:]
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
			if seen(p.total, q, k, p.ranks, a) > 0 && p.sees(q, k, a) {
				return i
			}
		}
	}
	return 0
}

// mask sets the documents of queries of run a and of so many keys.
func (p *circle) mask(o *tensor.AttentionOptions, a, before, keys int) {
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

// Imbalance returns what the rank with most work multiplies, in the mean of all ranks: pairs of a query and a key, in each pass in which
// documents can meet. 1 is even, which whole sequences are. ids are as in Ring, in host memory.
func (f *Ring) Imbalance(ids tensor.Tensor) float64 {
	list, n := tensor.Data[int64](ids), f.Group.Size()
	p := circle{Ring: f, ranks: n, total: ids.Dim(1), rows: ids.Dim(0)}
	p.shared = make([]int, 4*n*n)
	p.overlap(list)
	most, sum := 0, 0
	for q := range n {
		work := 0
		for k := range n {
			for a := range 2 {
				if mine := zigzag(p.total, q, n).len(a); p.sees(q, k, a) {
					work += mine * seen(p.total, q, k, n, a)
					if q == k {
						work -= mine * (mine - 1) / 2 // keys of later positions
					}
				}
			}
		}
		most, sum = max(most, work), sum+work
	}
	return float64(most*n) / float64(sum)
}
