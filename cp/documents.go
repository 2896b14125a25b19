package cp

import (
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// documents are those of all positions.
type documents struct {
	ids tensor.Tensor
	tag int // of keys in Forward: a checksum of ids
}

// int64s returns ids [rows, positions] as Int64.
func int64s(op string, ids tensor.Tensor, dims ...int) tensor.Tensor {
	switch d := ids.DType(); {
	case d != tensor.Int64 && d != tensor.Int32 || !slices.Equal(ids.Shape().Dims, dims):
		fail(op, "documents %v: wants the id of each position of whole sequences, int64%v or int32%v", ids.Shape(), dims, dims)
	case d == tensor.Int32:
		return ids.Cast(tensor.Int64)
	}
	return ids
}

// take learns the documents. Ranks compare them in each step, by the tags of messages: with others, one would wait for keys that nobody
// sends. In a ring, keys have this tag; ranks that exchange heads send each other a message without elements.
func (p *circle) take(ids tensor.Tensor) {
	total := p.cuts.total()
	ints := int64s(p.Name(), ids, p.k.Dim(0), total)
	if p.ids = ids; p.seqTotal() == 0 || p.ranks == 1 && p.c.Tape().Recording() != nil { // whole sequences; a graph cannot compare
		return
	}
	list, sum := p.c.HostInts(ints), uint64(1)
	for _, id := range list { // FNV-1a, of words
		sum = (sum ^ uint64(id)) * 0x100000001b3
	}
	p.tag = 2 + int(sum>>2) // 0 and 1 are other messages
	for _, g := range p.groups()[1:] {
		r, n, none := g.Rank(), g.Size(), p.c.New(ids.DType(), 0) // ids can be one tensor of all ranks
		p.wait(g.Batch(func(b *dist.Batch) {
			if n > 1 {
				b.Send(none, (r+1)%n, p.tag)
				b.Recv(none, (r+n-1)%n, p.tag)
			}
		}))
	}
	if p.ranks > 1 {
		c, _ := p.plan(list, total)
		copy(p.cuts, c)
		p.count(p.sharing(list))
	}
}

// sharing returns whether runs i and j of the 2·ranks can have a document in common, in any row.
func (p *circle) sharing(ids []int64) func(i, j int) bool {
	n, total := 2*p.ranks, p.cuts.total()
	ends := make([][2]int64, len(ids)/total*n) // the smallest and the largest id of each run
	for i := range ends {
		at, k := i/n*total, i%n
		if ends[i] = [2]int64{1, 0}; p.cuts[k] < p.cuts[k+1] { // else there is none
			run := ids[at+p.cuts[k] : at+p.cuts[k+1]]
			ends[i] = [2]int64{slices.Min(run), slices.Max(run)}
		}
	}
	return func(i, j int) bool {
		for row := 0; row < len(ends); row += n {
			if a, b := ends[row+i], ends[row+j]; max(a[0], b[0]) <= min(a[1], b[1]) {
				return true
			}
		}
		return false
	}
}

// docs returns the documents of a run.
func (p *circle) docs(run [2]int) tensor.Tensor { return p.ids.Slice(1, run[0], run[1]) }

// Imbalance returns the area of the rank with the largest one, in the mean of all ranks: pairs of a query and a key of its document, over
// all rows. 1 is even. ids are as in Ring, in host memory.
func (f *Ring) Imbalance(ids tensor.Tensor) float64 {
	c, area := f.plan(tensor.Data[int64](int64s(f.Name()+".Imbalance", ids, ids.Shape().Dims...)), ids.Dim(1))
	return float64(area.most(c)*f.Group.Size()) / float64(area[ids.Dim(1)])
}
