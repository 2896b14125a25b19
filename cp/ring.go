package cp

import (
	"cmp"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Ring divides sequences over the ranks of Group, and sends keys and values around while it computes (Liu et al. 2023, "Ring Attention with
// Blockwise Transformers"). It is nn.Core's Mix: causal attention of this rank's queries [rows, positions, heads·HeadDim] over keys and
// values of whole sequences, with any number of heads. Each rank has all parameters, so give the ranks to ddp or fsdp, too.
//
// A sequence is cut into 2n runs, of which rank r has runs r and 2n-1-r (zigzag). So each rank computes as much in each pass: the keys of
// an earlier rank are seen by all queries, but only their first run; those of a later rank by the queries of the second run.
//
// A fourth input says which document each position is of: ids [rows, positions] of whole sequences, Int64 or Int32, without Rows, and the
// same on all ranks, which compare them in each step. Then a query sees only keys of its own document, and keys are neither sent nor
// multiplied where no documents can meet. Ids should rise along a sequence: of a run, the smallest and the largest are compared.
// PartOfDocuments takes the place of Part.
type Ring struct {
	Group   *dist.Group // such as mesh.Group("ring")
	HeadDim int
	Even    bool // documents move no runs: each step has the same parts, as stages of a pipeline want (package pp)

	heads *unified // what ranks exchange before and after, or nil
	parts
}

// Part returns this rank's positions of what a loader gives, x [rows, positions, ...]: of inputs, and of labels. Ranks compare the x of the
// first step, in host memory: it must be the same on all of them.
func (f *Ring) Part(x tensor.Tensor) tensor.Tensor {
	f.op = f.Name() + ".Part"
	return f.cut(x, func(total int) runs { return f.runs(f.even(total)) }, f.groups()...)
}

// PartOfDocuments is Part of sequences that have several documents: ids are those of Ring, in host memory. Each rank has as many positions
// as with Part, but they are chosen so that ranks have nearly as much to compute, over all rows.
func (f *Ring) PartOfDocuments(x, ids tensor.Tensor) tensor.Tensor {
	f.op = f.Name() + ".PartOfDocuments"
	c, _ := f.plan(tensor.Data[int64](int64s(f.op, ids, x.Shape().Dims[:min(2, x.NDim())]...)), ids.Dim(1))
	return f.cut(x, func(int) runs { return f.runs(c) }, f.groups()...)
}

// plan returns the cuts of sequences with these documents, and their areas.
func (f *Ring) plan(ids []int64, total int) (cuts, areas) {
	c, area := f.even(total), areasOf(ids, total)
	if !f.Even {
		c.balance(area)
	}
	return c, area
}

func (f *Ring) even(total int) cuts {
	c := make(cuts, 2*f.Group.Size()+1)
	c.even(total)
	return c
}

// runs returns this rank's part of sequences.
func (f *Ring) runs(c cuts) runs {
	r := c.of(f.Group.Rank())
	if f.heads != nil {
		r = r.part(f.heads.there.Group.Rank(), f.heads.there.Group.Size())
	}
	return r
}

// Name returns "cp.Ring", or "cp.Unified".
func (f *Ring) Name() string {
	if f.heads != nil {
		return "cp.Unified"
	}
	return "cp.Ring"
}

// Types wants parts of sequences.
func (f *Ring) Types(in []tensor.Types, _ tensor.Axes) (_ []tensor.Types, err error) {
	var axes tensor.Axes
	for _, g := range f.groups() {
		axes |= g.Axes()
	}
	for i := range in[:3] {
		if in[i], err = in[i].Convert(axes, tensor.Varying, tensor.Varying); err != nil {
			return nil, err
		}
	}
	return in[:1], nil
}

// circle is the state of one call of Ring, forward or backward. before is how many places before this rank in the ring another rank is: in
// pass i, the keys are those of the rank i places before.
type circle struct {
	*Ring
	c           *tensor.Ctx
	rank, ranks int
	k           tensor.Tensor // this rank's keys
	cuts        cuts
	sees        []int // see count
	documents
}

// circle returns that of a call with keys k, on a step with sequences of so many positions. 0: each rank has whole ones, as where it
// generates a text; then it is alone.
func (f *Ring) circle(c *tensor.Ctx, k tensor.Tensor, total int) circle {
	p := circle{Ring: f, c: c, rank: f.Group.Rank(), ranks: f.Group.Size(), k: k}
	if total == 0 {
		p.rank, p.ranks = 0, 1
	}
	ints, n := c.Ints(2+5*p.ranks), 2+2*p.ranks
	ints[0], p.cuts, p.sees = total, ints[1:n], ints[n:]
	return p
}

// seqTotal returns how many positions the sequences of the step have; 0: each rank has whole ones.
func (p *circle) seqTotal() int { return p.c.Ints(1)[0] }

// at returns the rank so many places before this one, and runsOf returns its runs.
func (p *circle) at(before int) int { return (p.rank - before + 2*p.ranks) % p.ranks }

func (p *circle) runsOf(before int) runs { return p.cuts.of(p.at(before)) }

// byRun returns the two runs of x along dim.
func (p *circle) byRun(x tensor.Tensor, dim int) [2]tensor.Tensor {
	n := p.runsOf(0).len(0)
	return [2]tensor.Tensor{x.Slice(dim, 0, n), x.Slice(dim, n, x.Dim(dim))}
}

// buffer returns memory for the keys and values of any rank, and view those of the one so many places before this one in it, [2·rows,
// positions, width].
func (p *circle) buffer(d tensor.DType) tensor.Tensor {
	return p.c.New(d, 2*p.k.Dim(0)*p.k.Dim(2)*(p.cuts.of(0).size()+1))
}

func (p *circle) view(buffer tensor.Tensor, before int) tensor.Tensor {
	rows, n, width := 2*p.k.Dim(0), p.runsOf(before).size(), p.k.Dim(2)
	return buffer.Slice(0, 0, rows*n*width).Reshape(rows, n, width)
}

// some is x, or none of its rows.
func (p *circle) some(x tensor.Tensor, all bool) tensor.Tensor {
	if all {
		return x
	}
	return x.Slice(0, 0, 0)
}

func (p *circle) wait(w dist.Work) {
	if err := w.Wait(); err != nil {
		panic(&tensor.Failure{Op: p.Name(), Err: err})
	}
}

// around calls visit with the keys and values of each rank, beginning with this one, while those of the next one come. Keys go no further
// than to the last rank that sees them: in pass i, kv are those of the rank i places before if i ≤ last(i), and else have no meaning. With
// documents, the first message of Forward has a tag to compare, also if it has no keys.
func (p *circle) around(k, v tensor.Tensor, visit func(before int, kv tensor.Tensor)) {
	here, next := p.buffer(k.DType()), p.buffer(k.DType())
	n := k.Len()
	tensor.Copy(here.Slice(0, 0, n), k.Reshape(n))
	tensor.Copy(here.Slice(0, n, 2*n), v.Reshape(n))
	for i := range p.ranks {
		kv := p.view(here, i)
		out, in := p.some(kv, i < p.last(i)), p.some(p.view(next, i+1), i < p.last(i+1))
		work := p.Group.Batch(func(b *dist.Batch) {
			if out.Len() > 0 || i == 0 && p.tag != 0 {
				b.Send(out, p.at(-1), p.tag)
			}
			if in.Len() > 0 || i == 0 && p.tag != 0 {
				b.Recv(in, p.at(1), p.tag)
			}
		})
		visit(i, kv)
		p.wait(work)
		here, next = next, here
	}
}

// sight returns what of the keys of the rank so many places before this one queries of run a see: so many keys, from the first one on.
func (p *circle) sight(a, before int) (keys int, o ops.AttentionOptions) {
	if keys = p.sees[3*before+a]; keys > 0 && before == 0 {
		o.Causal, o.Offset = true, a*p.runsOf(0).len(0)
	}
	if keys > 0 && !p.ids.IsZero() {
		its := p.runsOf(before)
		o.QueryDocs, o.KeyDocs = p.docs(p.runsOf(0)[a]), p.docs(its[0])
		if keys > its.len(0) {
			o.KeyDocs = tensor.Concat(1, o.KeyDocs, p.docs(its[1]))
		}
	}
	return keys, o
}

// first returns so many of the keys, and of the values.
func (p *circle) first(keys int, kv tensor.Tensor) (k, v tensor.Tensor) {
	if keys < kv.Dim(1) {
		kv = kv.Slice(1, 0, keys)
	}
	rows := kv.Dim(0)
	return kv.Slice(0, 0, rows/2), kv.Slice(0, rows/2, rows)
}

// Forward returns the attention of this rank's queries: of the keys of each rank, joined by the log-sum-exp of their scores.
func (f *Ring) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	if q, k := in[0], in[1]; q.NDim() != 3 || k.NDim() != 3 || q.Dim(2)%f.HeadDim != 0 {
		fail(f.Name(), "wants queries and keys [rows, positions, heads·%d], not %v and %v", f.HeadDim, q.Shape(), k.Shape())
	}
	p := f.circle(c, in[1], c.Tape().Rows().Seq.Total)
	p.cuts.even(cmp.Or(p.seqTotal(), in[1].Dim(1)))
	if p.count(nil); len(in) > 3 {
		p.take(in[3])
	}
	p.check(in[0], in[1])
	q, k, v := p.exchange(in[0], false), p.exchange(in[1], false), p.exchange(in[2], false)
	p.k = k
	y, l := p.attend(q, k, v)
	for _, x := range [5]tensor.Tensor{q, k, v, y, l} {
		c.Save(x)
	}
	if len(in) > 3 {
		c.Save(in[3])
	}
	return p.exchange(y, true)
}

// attend returns the attention of queries x, and the log-sum-exp of their scores.
func (p *circle) attend(x, k, v tensor.Tensor) (y, sums tensor.Tensor) {
	if p.ranks == 1 {
		return ops.CrossAttentionLSE(x, k, v, p.HeadDim, ops.AttentionOptions{Causal: true, QueryDocs: p.ids, KeyDocs: p.ids})
	}
	q, heads := p.byRun(x, 1), x.Dim(2)/p.HeadDim
	var out, lse [2]tensor.Tensor
	for a := range out {
		out[a] = p.c.New(statOf(q[a]), x.Dim(0), q[a].Dim(1), q[a].Dim(2))
		lse[a] = p.c.New(statOf(q[a]), x.Dim(0), heads, q[a].Dim(1))
	}
	p.around(k, v, func(before int, kv tensor.Tensor) {
		for a := range q {
			keys, o := p.sight(a, before)
			if keys == 0 {
				continue
			}
			p.c.Tape().Scope(func(in ...tensor.Tensor) tensor.Tensor {
				k, v := p.first(keys, in[1])
				y, l := ops.CrossAttentionLSE(in[0], k, v, p.HeadDim, o)
				if y = y.Cast(statOf(y)); before > 0 {
					y, l = join(out[a], lse[a], y, l)
				}
				tensor.Copy(out[a], y)
				tensor.Copy(lse[a], l)
				return in[0]
			}, q[a], kv)
		}
	})
	return tensor.Concat(1, out[0], out[1]).Cast(x.DType()), tensor.Concat(2, lse[0], lse[1])
}

// check refuses other queries and keys than those of this rank's positions.
func (p *circle) check(q, k tensor.Tensor) {
	seq, name := p.c.Tape().Rows().Seq, p.Name()
	rank, ranks := p.place()
	if seq.Total == 0 {
		if p.c.Need(0) && ranks > 1 {
			fail(name, "the step's input has whole sequences: give each rank its part (Ring.Part)")
		}
		return
	}
	part := "Ring.Part"
	if !p.ids.IsZero() {
		part = "Ring.PartOfDocuments"
	}
	if want := p.runs(p.cuts); seq != want.seq(seq.Total) || q.Dim(1) != want.size() || k.Dim(1) != want.size() {
		fail(name, "%v: rank %d of %d has positions %+v of a step with %+v, not those of %s", q.Shape(), rank, ranks, want, seq, part)
	}
	if heads, n := k.Dim(2)/p.HeadDim, ranks/p.Group.Size(); heads%n != 0 {
		fail(name, "%d heads of keys and values do not divide over the %d ranks of its second group: give it a number that divides %d, "+
			"and the ring more ranks; a cp.Ring over all of them has no such limit", heads, n, heads)
	}
}

// statOf is the type of sums.
func statOf(x tensor.Tensor) tensor.DType {
	if x.DType() == tensor.Float64 {
		return tensor.Float64
	}
	return tensor.Float32
}

// join returns the attention over two sets of keys, of which each query sees some of the first: out is the mean of the values, with the
// weights exp(lse).
func join(out, lse, y, l tensor.Tensor) (_, sum tensor.Tensor) {
	top := ops.Maximum(lse, l)
	sum = lse.Sub(top).Exp().Add(l.Sub(top).Exp()).Log().Add(top)
	rows, heads, n := lse.Dim(0), lse.Dim(1), lse.Dim(2)
	weight := l.Sub(sum).Exp().Transpose(1, 2).Reshape(rows, n, heads, 1)
	each := func(x tensor.Tensor) tensor.Tensor { return x.Reshape(rows, n, heads, out.Dim(2)/heads) }
	return each(y).Sub(each(out)).Mul(weight).Add(each(out)).Reshape(rows, n, out.Dim(2)), sum
}

// Backward sends keys and values around again, and their gradients one pass behind them. A rank adds its part to these, in Float32 or
// Float64. The last rank that sees the keys sends them home.
func (f *Ring) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	p := f.circle(c, c.Saved(1), c.Ints(1)[0]) // seqTotal of Forward
	if len(grads) > 3 {
		p.ids = c.Saved(5)
	}
	dq, dk, dv := p.back(c.Saved(0), c.Saved(1), c.Saved(2), c.Saved(3), p.exchange(g, false), c.Saved(4))
	grads[0], grads[1], grads[2] = p.exchange(dq, true), p.exchange(dk, true), p.exchange(dv, true)
}

// back returns the gradients of queries x, keys and values, for the gradient g of their attention y.
func (p *circle) back(x, k, v, y, g, sums tensor.Tensor) (_, _, _ tensor.Tensor) {
	if p.ranks == 1 {
		return ops.CrossAttentionGrad(x, k, v, y, g, sums, p.HeadDim, ops.AttentionOptions{Causal: true, QueryDocs: p.ids, KeyDocs: p.ids})
	}
	q, out, gs, lse := p.byRun(x, 1), p.byRun(y, 1), p.byRun(g, 1), p.byRun(sums, 2)
	var dq [2]tensor.Tensor
	for a := range dq {
		dq[a] = p.c.New(statOf(g), x.Dim(0), q[a].Dim(1), q[a].Dim(2))
	}
	// What leaves, what the ranks before have sent, and what came home.
	sum, came, home := p.buffer(statOf(g)), p.buffer(statOf(g)), p.buffer(statOf(g))
	var work dist.Work
	p.around(k, v, func(before int, kv tensor.Tensor) {
		mine := p.view(sum, before)
		if p.last(before) == 0 {
			mine = p.view(home, 0)
		}
		p.c.Tape().Scope(func(in ...tensor.Tensor) tensor.Tensor {
			var d tensor.Tensor
			for a := range q {
				keys, o := p.sight(a, before)
				if keys == 0 {
					continue
				}
				k, v := p.first(keys, in[0])
				x, dk, dv := ops.CrossAttentionGrad(q[a], k, v, out[a], gs[a], lse[a], p.HeadDim, o)
				if x = x.Cast(statOf(x)); before > 0 {
					x = x.Add(dq[a])
				}
				tensor.Copy(dq[a], x)
				d = plus(d, ops.Pad(tensor.Concat(0, dk, dv).Cast(statOf(x)), 1, 0, mine.Dim(1)-keys))
			}
			if p.wait(work); before > 0 && before <= p.last(before) {
				d = plus(d, p.view(came, before))
			}
			if !d.IsZero() {
				tensor.Copy(mine, d)
			}
			return in[0]
		}, kv)
		work = p.pass(before, mine, came, home)
	})
	p.wait(work)
	dk, dv := p.first(k.Dim(1), p.view(home, 0).Cast(x.DType()))
	return tensor.Concat(1, dq[0], dq[1]).Cast(x.DType()), dk, dv
}

// pass sends gradients x of keys on, or home, and begins to receive those that come in this pass.
func (p *circle) pass(before int, x, came, home tensor.Tensor) dist.Work {
	return p.Group.Batch(func(b *dist.Batch) {
		switch last := p.last(before); {
		case before < last:
			b.Send(x, p.at(-1), 1)
		case before == last && before > 0:
			b.Send(x, p.at(before), 1)
		}
		if before < p.last(before+1) {
			b.Recv(p.view(came, before+1), p.at(1), 1)
		}
		if before > 0 && before == p.last(0) {
			b.Recv(p.view(home, 0), p.at(-before), 1)
		}
	})
}

// plus is x + y where x may be none yet.
func plus(x, y tensor.Tensor) tensor.Tensor {
	if x.IsZero() {
		return y
	}
	return x.Add(y)
}
