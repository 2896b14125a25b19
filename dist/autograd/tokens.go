package autograd

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// TokenGather is AllGather along the first dimension, for layers that multiply the whole by weights. It does not keep the whole: each
// rank saves its own tokens, and gathers again when Backward computes the gradients of the weights (Korthikanti et al. 2022).
//
// With Chunks, the tokens come in so many messages from each other rank. A product multiplies the rows that are here while the rest is on
// its way: asynchronous tensor parallelism (Wang et al. 2023, "Overlap Communication with Dependent Computation via Decomposition").
type TokenGather struct {
	AllGather     // Dim is 0
	Chunks    int // 0 or 1: all in one message
}

// Name returns "autograd.TokenGather".
func (*TokenGather) Name() string { return "autograd.TokenGather" }

// Forward returns the whole, which may still be arriving.
func (f *TokenGather) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	x := in[0]
	if f.Group.Size() == 1 {
		return x
	}
	k := newCut(c, f, f.Group, 0, 0)
	k.join(x, f.Counts)
	y := c.New(x.DType(), k.dims()...)
	c.Save(x)
	k.arrive(y, x, f.Chunks)
	return y
}

// Fetch gathers again, where Backward reads the whole (tensor.Fetcher).
func (f *TokenGather) Fetch(c *tensor.Ctx, y tensor.Tensor) {
	k := oldCut(c, f, f.Group, 0)
	k.arrive(y, c.Saved(0), 1)
}

// TokenScatter is ReduceScatter along the first dimension, after a product. With Chunks, parts of the product are sent while the next
// ones are computed, and the gradient comes in parts, as in TokenGather.
type TokenScatter struct {
	ReduceScatter // Dim is 0
	Chunks        int
	counts        []int // rows of each rank in a chunk
}

// Name returns "autograd.TokenScatter".
func (*TokenScatter) Name() string { return "autograd.TokenScatter" }

// ByRows marks that Forward reads its input by Ctx.Rows.
func (*TokenScatter) ByRows() {}

// Forward returns this rank's part of the sum, which may still be arriving.
func (f *TokenScatter) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	x := in[0]
	if f.Group.Size() == 1 {
		y := c.Tape().NewLike(x)
		c.Rows(y, x, 0, x.Dim(0))
		return y
	}
	k := newCut(c, f, f.Group, 0, 0)
	k.split(x, f.Counts)
	y := c.New(x.DType(), k.partDims(f.Group.Rank())...)
	if f.counts == nil {
		f.counts = make([]int, k.n)
	}
	for i := range max(f.Chunks, 1) {
		f.chunk(&k, y, x, i)
	}
	return y
}

// chunk computes rows of x for all ranks and issues their reduce-scatter.
func (f *TokenScatter) chunk(k *cut, y, x tensor.Tensor, i int) {
	rows, even, counts := 0, true, f.counts
	for r, n := range k.counts() {
		lo, hi := piece(n, i, f.Chunks)
		counts[r] = hi - lo
		rows, even = rows+hi-lo, even && counts[r] == counts[0]
	}
	if rows == 0 {
		return
	}
	packed := k.c.New(x.DType(), k.sized(rows)...)
	if rows == x.Dim(0) { // one product
		k.c.Rows(packed, x, 0, rows)
	} else {
		f.compute(k, packed, x, i)
	}
	lo, hi := piece(k.counts()[k.g.Rank()], i, f.Chunks)
	sum := dist.Sum.In(k.c.Tape())
	if mine := y.Slice(0, lo, hi); even {
		k.c.Arrives(y, lo, hi, k.g.ReduceScatter(mine, packed, sum).Pending())
	} else {
		k.c.Arrives(y, lo, hi, k.g.ReduceScatterV(mine, packed, counts, sum).Pending())
	}
}

// compute writes the rows of a chunk, which has some rows of each rank, to packed.
func (f *TokenScatter) compute(k *cut, packed, x tensor.Tensor, i int) {
	at, first := 0, 0
	for _, n := range k.counts() {
		lo, hi := piece(n, i, f.Chunks)
		k.c.Rows(packed.Slice(0, at, at+hi-lo), x, first+lo, first+hi)
		at, first = at+hi-lo, first+n
	}
}

// Backward issues all-gathers of the gradient.
func (f *TokenScatter) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.Group.Size() == 1 {
		grads[0] = g
		return
	}
	k := oldCut(c, f, f.Group, 0)
	grads[0] = c.New(g.DType(), k.dims()...)
	k.arrive(grads[0], g, f.Chunks)
}

// piece returns which of n rows are in a chunk.
func piece(n, i, chunks int) (lo, hi int) {
	chunks = max(chunks, 1)
	return n * i / chunks, n * (i + 1) / chunks
}

// sized returns the dimensions of a tensor of so many rows, in memory that the next call overwrites.
func (k *cut) sized(rows int) []int {
	d := k.partDims(0)
	d[0] = rows
	return d
}

// arrive begins to fill y with the whole, along the first dimension. x is this rank's part.
func (k *cut) arrive(y, x tensor.Tensor, chunks int) {
	if chunks <= 1 {
		k.c.Arrives(y, 0, y.Dim(0), k.gatherInto(y.Reshape(-1), x).Pending())
		return
	}
	rank, first := k.g.Rank(), 0
	for _, n := range k.counts()[:rank] {
		first += n
	}
	mine := k.counts()[rank]
	tensor.Copy(y.Slice(0, first, first+mine), x)
	k.c.Arrives(y, first, first+mine, tensor.Pending{})
	for i := range chunks {
		first := 0
		for r, n := range k.counts() {
			if lo, hi := piece(n, i, chunks); r != rank && hi > lo {
				k.c.Arrives(y, first+lo, first+hi, k.g.Recv(y.Slice(0, first+lo, first+hi), r, 0).Pending())
			}
			first += n
		}
	}
	for i := range chunks {
		for r := range k.n {
			if lo, hi := piece(mine, i, chunks); r != rank && hi > lo {
				k.c.Arrives(y, 0, 0, k.g.Send(x.Slice(0, lo, hi), r, 0).Pending())
			}
		}
	}
}
