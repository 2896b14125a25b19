package cp

import (
	"fmt"
	"hash/crc64"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/rebuild"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// runs are the first positions and the ends of the two runs of a sequence that a rank has. The second one may be empty.
type runs [2][2]int

// part returns the share of r's positions that a rank has, in their order.
func (r runs) part(rank, ranks int) runs {
	lo, hi := layout.Share(r.size(), rank, ranks)
	for i, run := range r {
		n := run[1] - run[0]
		r[i] = [2]int{run[0] + min(max(lo, 0), n), run[0] + min(max(hi, 0), n)}
		lo, hi = lo-n, hi-n
	}
	return r
}

func (r runs) len(i int) int { return r[i][1] - r[i][0] }
func (r runs) size() int     { return r.len(0) + r.len(1) }

// seq is what Rows say of r.
func (r runs) seq(total int) tensor.Spans {
	return tensor.Spans{First: r[0][0], Total: total, Break: r.len(0), Skip: r[1][0] - r[0][1]}.Slice(0, r.size())
}

// parts makes the Part of a rank.
type parts struct {
	op       string
	compared int // tensors that ranks have compared
}

// cut returns this rank's positions of x, which the ranks of groups divide together.
func (p *parts) cut(x tensor.Tensor, divide func(total int) runs, groups ...*dist.Group) tensor.Tensor {
	if err := rebuild.Refuse("cp"); err != nil {
		panic(&tensor.Failure{Op: p.op, Err: err})
	}
	dims, r, ranks := x.Shape().Dims, x.Rows(), 1
	if len(dims) < 2 || r.Stride == 0 || r.Seq.Total != 0 {
		fail(p.op, "%v needs dimensions of rows and positions, and the rows of a loader or of Tensor.WithRows, whole", x.Shape())
	}
	for _, g := range groups {
		ranks *= g.Size()
	}
	if ranks == 1 {
		return x
	}
	rows, total := dims[0], dims[1]
	each := x.Len() / max(rows*total, 1)
	if total < ranks {
		fail(p.op, "%v: %d positions are fewer than the %d ranks that divide them", x.Shape(), total, ranks)
	}
	p.agree(x, groups...)
	mine := divide(total)
	dims[1] = mine.size()
	y, at := tensor.New(x.Device(), x.DType(), dims...), 0
	for i := range rows {
		for _, run := range mine {
			n := (run[1] - run[0]) * each
			tensor.Copy(y.Range(at, at+n), x.Range((i*total+run[0])*each, (i*total+run[1])*each))
			at += n
		}
	}
	r.Seq = mine.seq(total)
	for _, g := range groups {
		part := g.Rows(0, 0)
		r.SeqOver, r.Over, r.Head, r.Tail = r.SeqOver|part.Over, r.Over|part.Over, r.Head|part.Head, r.Tail|part.Tail
	}
	return y.WithRows(r)
}

// agree compares the first two tensors of Part, which are input and labels: parts of different batches would be joined to sequences that
// nobody has, without a sign. Values on a device are not compared: that would wait for it.
func (p *parts) agree(x tensor.Tensor, groups ...*dist.Group) {
	if p.compared == 2 {
		return
	}
	mine := fmt.Sprintf("%v, rows %d of %d", x.Shape(), x.Rows().First, x.Rows().Total)
	if x.Device().Host() {
		mine += fmt.Sprintf(", with the checksum %016x", crc64.Checksum(x.Bytes(), crc64.MakeTable(crc64.ECMA)))
	}
	all := []string{mine}
	for _, g := range slices.Backward(groups) { // those of the last group first: then all ranks know of all
		lists, err := dist.AllGatherObject(g.With(dist.Name("cp-checks")), all)
		if err != nil {
			panic(&tensor.Failure{Op: p.op, Err: err})
		}
		all = slices.Concat(lists...)
	}
	for rank, other := range all {
		if other != all[0] {
			fail(p.op, "ranks that divide sequences need the same batch: rank %d of %d has %s, rank 0 %s (give the loader the group of the "+
				"ranks with other rows)", rank, len(all), other, all[0])
		}
	}
	p.compared++
}

func fail(op, format string, a ...any) {
	panic(&tensor.Failure{Op: op, Err: fmt.Errorf(format, a...)})
}
