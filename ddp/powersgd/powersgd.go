package powersgd

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Config configures New. The zero value of a field is its default, which is PyTorch's.
type Config struct {
	Rank    int     // of the matrices that are sent: 1 if 0
	Start   int     // so many first steps are all-reduced whole: 1000 if 0
	MinRate float64 // a matrix is compressed if that makes it smaller by more than this factor: 2 if 0
}

// New returns the hook, for ddp.Config. One may serve several models: each has its own errors.
func New(c Config) ddp.CommHook {
	if c.Rank < 0 || c.Start < 0 || !(c.MinRate >= 0) {
		panic(&tensor.Failure{Op: "powersgd.New", Err: fmt.Errorf("%+v, want no negative number; 0 is the default", c)})
	}
	if c.Rank == 0 {
		c.Rank = 1
	}
	if c.Start == 0 {
		c.Start = 1000
	}
	if c.MinRate == 0 {
		c.MinRate = 2
	}
	return &hook{c: c}
}

// hook is the ddp.CommHook, and its state for a model.
type hook struct {
	c     Config
	steps int
	low   map[*tensor.Param]*lowRank
	bad   map[*dist.Group]tensor.Tensor // NaN in a step that is not finite on the group's ranks, otherwise 0
	tape  *tensor.Tape
}

// lowRank is what a compressed parameter keeps. Narrow matrices lie transposed: each of their vectors is contiguous.
type lowRank struct {
	rank, rows, cols int
	q                tensor.Tensor // [rank, cols], the last step's; 0 if there is none
	random           tensor.Tensor // in place of vectors of q that are 0
	err              tensor.Tensor // [rows, cols], what this rank's parts of the sums lacked until now, times scale
	scale            float64       // of the loss
}

// String names the hook where ranks compare what they attach.
func (h *hook) String() string {
	return fmt.Sprintf("PowerSGD%+v", h.c)
}

// Attach returns a hook for the parameters of a model.
func (h *hook) Attach(params nn.Params, c ddp.Config) (ddp.StatefulHook, error) {
	if c.AllowUnused {
		return nil, errors.New("ddp: PowerSGD with Config.AllowUnused: what a parameter that no rank used should have got would be lost")
	}
	own := &hook{c: h.c, low: map[*tensor.Param]*lowRank{}, bad: map[*dist.Group]tensor.Tensor{}}
	for _, p := range params.Trainable() {
		if dt := p.Value.DType(); dt.IsHalf() {
			return nil, fmt.Errorf("ddp: PowerSGD needs gradients of float32 or float64, and %s has %v", p.Name(), dt)
		}
		if l := own.shape(p); l != nil {
			own.low[p] = l
			l.fill(p, c.Seed)
		}
	}
	return own, nil
}

// shape returns how p is compressed, nil if it is not.
func (h *hook) shape(p *tensor.Param) *lowRank {
	dims := p.Dims()
	if len(dims) < 2 || p.Len() == 0 {
		return nil
	}
	l := &lowRank{rows: dims[0], cols: p.Len() / dims[0], scale: 1}
	l.rank = min(h.c.Rank, l.rows, l.cols)
	if float64((l.rows+l.cols)*l.rank)*h.c.MinRate >= float64(l.rows*l.cols) {
		return nil
	}
	return l
}

const powerKey = 0x706f776572 // "power"

// fill makes the memory. The random vectors are the same on all ranks.
func (l *lowRank) fill(p *tensor.Param, seed uint64) {
	dev, dt := p.Value.Device(), p.Value.DType()
	l.q, l.random = tensor.NewFor(memory.Communication, dev, dt, l.rank, l.cols), tensor.NewFor(memory.Communication, dev, dt, l.rank, l.cols)
	l.err = tensor.NewFor(memory.Communication, dev, dt, l.rows, l.cols)
	parts := []uint64{powerKey}
	for _, c := range p.Name() {
		parts = append(parts, uint64(c))
	}
	tensor.NormalInit(0, 1).Fill(l.random, tensor.RandomKey(seed, parts...), 0)
	t := tensor.NewTape(dev, tensor.NoGrad())
	defer t.Close()
	tensor.Copy(l.random, orthonormal(t.Input(l.random)))
}

// compressed is how a bucket travels.
type compressed struct {
	pieces        []piece
	first, second tensor.Tensor // what is sent first (P, and gradients that are whole), and then (Q)
	bad           tensor.Tensor // the group's
}

// piece is a parameter in it.
type piece struct {
	p    *tensor.Param
	low  *lowRank      // nil: whole
	grad tensor.Tensor // [rows, cols], or flat
	a, b tensor.Tensor // of first and second: P and Q; or the gradient, and nothing
}

// of returns how a bucket travels.
func of(b *ddp.Bucket) *compressed { return b.State.(*compressed) }

// layOut makes the pieces of a bucket.
func (h *hook) layOut(b *ddp.Bucket) *compressed {
	first, second := 0, 0
	for _, p := range b.Params {
		if l := h.low[p]; l != nil {
			first, second = first+l.rank*l.rows, second+l.rank*l.cols
		} else {
			first += p.Len()
		}
	}
	if b.Wire.IsZero() {
		b.Wire = b.Group.Alloc(b.Grad.DType(), first+second)
	}
	if h.bad[b.Group].IsZero() {
		h.bad[b.Group] = tensor.NewFor(memory.Communication, b.Grad.Device(), tensor.Float64, 1)
	}
	c := &compressed{first: b.Wire.Range(0, first), second: b.Wire.Range(first, first+second), bad: h.bad[b.Group]}
	at, i, k := 0, 0, 0
	for _, p := range b.Params {
		x := piece{p: p, low: h.low[p], grad: b.Grad.Range(at, at+p.Len())}
		at += p.Len()
		if l := x.low; l == nil {
			x.a = c.first.Range(i, i+p.Len())
			i += p.Len()
		} else {
			x.grad = x.grad.View(l.rows, l.cols)
			x.a, x.b = c.first.Range(i, i+l.rank*l.rows).View(l.rank, l.rows), c.second.Range(k, k+l.rank*l.cols).View(l.rank, l.cols)
			i, k = i+l.rank*l.rows, k+l.rank*l.cols
		}
		c.pieces = append(c.pieces, x)
	}
	return c
}

// uncompressed reports whether b travels whole.
func (h *hook) uncompressed(b *ddp.Bucket) bool {
	if h.steps < h.c.Start && b.Exec.Recording() != nil {
		panic(&tensor.Failure{Op: "powersgd",
			Err: fmt.Errorf("replays of a captured step would never compress: capture a step after the first %d", h.c.Start)})
	}
	return h.steps < h.c.Start
}

// Start adds this rank's errors to its gradients M, and sends P = M·Qᵀ.
func (h *hook) Start(b *ddp.Bucket) dist.Work {
	if h.uncompressed(b) {
		return b.Sum(b.Grad)
	}
	if b.State == nil {
		b.State = h.layOut(b)
	}
	if h.tape == nil {
		h.tape = tensor.NewTape(b.Grad.Device(), tensor.NoGrad())
	}
	for _, x := range of(b).pieces {
		if x.low == nil {
			tensor.Copy(x.a, x.grad)
			continue
		}
		m := h.tape.Input(x.grad)
		if !x.p.Frozen() {
			m = m.Add(x.low.rescaled(h.tape, cmp.Or(x.p.LossScale(), 1)))
			tensor.Copy(x.grad, m)
		}
		tensor.Copy(x.a, tensor.MatMul(x.low.startVectors(h.tape), m, false, true))
		h.tape.Reset()
	}
	return b.Sum(of(b).first)
}

// startVectors returns the vectors that an iteration begins with: the last step's, made orthonormal, or random ones.
func (l *lowRank) startVectors(t *tensor.Tape) tensor.Tensor {
	q := orthonormal(t.Input(l.q))
	missing := q.Square().Sum(1).Reshape(l.rank, 1).Affine(-1, 1) // 1 for each vector of q that is 0
	return q.Add(t.Input(l.random).Mul(missing))
}

// rescaled returns the errors in the gradients' scale, which is now that of the loss.
func (l *lowRank) rescaled(t *tensor.Tape, now float64) tensor.Tensor {
	err := t.Input(l.err)
	if now != l.scale {
		err = err.Scale(now / l.scale)
		tensor.Copy(l.err, err)
		l.scale = now
	}
	return err
}

// Arrived makes P of all buckets orthonormal. An optimizer may skip the whole step because of one number, so that errors of all parameters
// wait until P of all is known, of each group for itself: all its ranks must decide the same.
func (h *hook) Arrived(buckets []*ddp.Bucket) {
	for _, b := range buckets {
		if h.uncompressed(b) {
			return
		}
		b.Exec.Fill(of(b).bad, 0)
	}
	for _, b := range buckets {
		h.orthonormal(of(b))
	}
}

// Again keeps what P·Pᵀ·M lacks of M, and sends Q = Pᵀ·M.
func (h *hook) Again(b *ddp.Bucket) dist.Work {
	if h.uncompressed(b) {
		return dist.Work{}
	}
	c := of(b)
	for _, x := range c.pieces {
		if x.low != nil {
			h.project(c, x)
		}
	}
	if c.second.Len() == 0 {
		return dist.Work{}
	}
	return b.Sum(c.second)
}

// orthonormal makes P of a bucket orthonormal, leaves gradients that are whole, and notes whether all that came is finite.
func (h *hook) orthonormal(c *compressed) {
	for _, x := range c.pieces {
		if x.low == nil {
			tensor.Copy(x.grad, x.a)
			continue
		}
		tensor.Copy(x.a, orthonormal(h.tape.Input(x.a)))
		h.tape.Reset()
	}
	tensor.Copy(c.bad, h.tape.Input(c.bad).Add(h.tape.Input(c.first).Scale(0).Sum().Cast(tensor.Float64)))
	h.tape.Reset()
}

// project computes this rank's Q, and its errors.
func (h *hook) project(c *compressed, x piece) {
	p, m := h.tape.Input(x.a), h.tape.Input(x.grad)
	q := tensor.MatMul(p, m, false, false)
	tensor.Copy(x.b, q)
	if !x.p.Frozen() {
		h.storeFinite(x.low.err, m.Sub(tensor.MatMul(p, q, true, false)), q, c.bad)
	}
	h.tape.Reset()
}

// storeFinite stores next in x, unless the step is bad, or q has no finite norm.
func (h *hook) storeFinite(x, next, q, bad tensor.Tensor) {
	sum := h.tape.Input(bad).Add(q.Square().Sum().Scale(0).Cast(tensor.Float64))
	tensor.Copy(x, ops.Where(sum.Eq(sum), next, h.tape.Input(x))) // NaN is not equal to itself
}

// Finish leaves P·Q in the gradients, and Q for the next step.
func (h *hook) Finish(b *ddp.Bucket) {
	if h.uncompressed(b) {
		return
	}
	c := of(b)
	for _, x := range c.pieces {
		if x.low == nil {
			continue
		}
		q := h.tape.Input(x.b)
		tensor.Copy(x.grad, tensor.MatMul(h.tape.Input(x.a), q, true, false))
		if !x.p.Frozen() {
			h.storeFinite(x.low.q, q, q, c.bad)
		}
		h.tape.Reset()
	}
}

// Done ends a step.
func (h *hook) Done() { h.steps++ }

// orthonormal makes the rows of x orthogonal to one another, and 1 long, by Gram and Schmidt's way. A row that depends on those before it
// leaves rounding errors, which have any direction: so it is done twice. A row of zeros stays. One whose length overflows becomes NaN.
func orthonormal(x tensor.Tensor) tensor.Tensor {
	tiny := 1e-37
	if x.DType() == tensor.Float64 {
		tiny = 1e-300
	}
	rows := make([]tensor.Tensor, x.Dim(0))
	for i := range rows {
		v := x.Slice(0, i, i+1)
		for range 2 {
			for _, u := range rows[:i] {
				v = v.Sub(u.Mul(tensor.MatMul(v, u, false, true)))
			}
			square := tensor.MatMul(v, v, false, true)
			v = v.Mul(square.Affine(1, tiny).Sqrt().Recip()).Add(square.Scale(0))
		}
		rows[i] = v
	}
	return tensor.Concat(0, rows...)
}
