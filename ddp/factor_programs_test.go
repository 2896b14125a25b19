package ddp_test

import (
	"slices"

	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// step is one step of a program on 3 or 4 of 7 rows.
type step func(r *rows)

func (r *rows) losses() nn.T { return r.B.Forward(r.hidden()).Square().Sum(1) } // [n]

func (r *rows) backward(loss nn.T, o ...tensor.BackwardOption) { r.tape.Backward(loss, o...) }

// some returns the losses of rows from lo on.
func (r *rows) some(lo, hi int) nn.T {
	x := r.x.Slice(0, lo, hi).WithRows(r.group.Rows(r.lo+lo, r.total))
	return r.B.Forward(r.A.Forward(r.tape.Input(x))).Square().Sum(1)
}

// task returns the loss of this rank's task.
func (r *rows) task(losses nn.T, scale float64) nn.T { return losses.Sum().Scale(scale) }

// row returns the loss of one row, which the host chose.
func (r *rows) row(losses nn.T, i int) nn.T {
	return ops.Gather(losses, 0, r.tape.Input(tensor.FromSlice([]int64{int64(i)}, 1)))
}

// teach trains on what a tape without gradients makes of the rows.
func (r *rows) teach(f func(x nn.T) nn.T) {
	teacher := tensor.NewTape(r.tape.Device(), tensor.NoGrad())
	defer teacher.Close()
	r.backward(nn.GlobalMean(r.B.Forward(r.A.Forward(r.tape.Input(f(teacher.Input(r.x))))).Square()))
}

// ownFactors are steps that multiply the sum of a rank's rows by a number of this rank.
var ownFactors = map[string]step{
	"mean of own rows":        func(r *rows) { r.backward(r.losses().Sum().Scale(1 / float64(r.n))) },
	"of rows, before the Sum": func(r *rows) { r.backward(r.losses().Scale(1 / float64(r.n)).Sum()) },
	"depth by a coin": func(r *rows) {
		h := r.hidden()
		r.backward(nn.GlobalMean(h.Add(h.Tanh().Scale(float64(r.group.Rank()))).Square()))
	},
	"above the mean of its own": func(r *rows) {
		l := r.losses()
		mean := l.Detach().Mean().Item()
		r.backward(nn.GlobalMean(l.Mul(l.Detach().Affine(20, -20*mean).Sigmoid())))
	},
	"mean by Affine":      func(r *rows) { r.backward(r.losses().Sum().Affine(1/float64(r.n), 1)) },
	"mean by Backward":    func(r *rows) { r.backward(r.losses().Sum(), tensor.Scale(1/float64(r.n))) },
	"a coin":              func(r *rows) { r.backward(nn.GlobalMean(r.losses()).Scale(float64(r.group.Rank() % 2))) },
	"a warmup of its own": func(r *rows) { r.backward(nn.GlobalMean(r.losses()), tensor.Scale(0.1*float64(1+r.group.Rank()))) },
	"of each column":      func(r *rows) { r.backward(r.hidden().Square().Sum(0).Scale(1 / float64(r.n)).Sum()) },
	"products of rows": func(r *rows) {
		r.backward(tensor.MatMul(r.hidden(), r.losses().Reshape(-1, 1), true, false).Scale(1 / float64(r.n)).Sum())
	},
	"one of two losses": func(r *rows) {
		r.backward(nn.MSE(r.D.Forward(r.hidden()), r.w).Add(r.losses().Sum().Scale(1 / float64(r.n))))
	},
	"twice, by halves": func(r *rows) {
		l := r.losses().Sum()
		r.backward(l.Scale(.5 / float64(r.n)).Sub(l.Scale(-.5 / float64(r.n))))
	},
	"a penalty of the share": func(r *rows) {
		pen := r.tape.Use(r.B.W).Square().Sum()
		r.backward(nn.GlobalMean(r.losses()).Add(pen.Scale(float64(r.n) / float64(r.total))))
	},
	"a loss of the share": func(r *rows) {
		h := r.hidden()
		r.backward(nn.MSE(r.D.Forward(h), r.w).Add(nn.GlobalMean(h.Square()).Scale(float64(r.n) / float64(r.total))))
	},
	"counts read from tensors": func(r *rows) {
		ones := r.tape.Input(r.filled(1, 2).WithRows(r.group.Rows(r.lo, r.total)))
		r.backward(r.losses().Sum().Scale(ones.Mean().Item() / ones.Sum().Item()))
	},
	"microbatches of its own": func(r *rows) {
		r.backward(nn.GlobalMean(r.some(0, 2)).Scale(2/float64(r.n)), tensor.More())
		r.backward(nn.GlobalMean(r.some(2, r.n)).Scale(float64(r.n-2) / float64(r.n)))
	},
	"in a Checkpoint": func(r *rows) {
		r.backward(r.tape.Checkpoint(func(in ...nn.T) nn.T { return in[0].Square().Sum().Scale(1 / float64(r.n)) }, r.hidden()))
	},
	"before a Checkpoint": func(r *rows) {
		mean := r.losses().Sum().Scale(1 / float64(r.n))
		r.backward(r.tape.Checkpoint(func(in ...nn.T) nn.T { return in[0].Scale(2) }, mean))
	},
	"around a Checkpoint": func(r *rows) {
		r.backward(r.tape.Checkpoint(func(in ...nn.T) nn.T { return in[0].Square().Sum() }, r.hidden()).Scale(1 / float64(r.n)))
	},
	"WithAux": func(r *rows) {
		h := r.hidden()
		r.backward(nn.GlobalMean(r.B.Forward(tensor.WithAux(h, h.Square().Sum(), 1/float64(r.n))).Square()))
	},
	"in front of autograd.Sum": func(r *rows) {
		r.backward(r.tape.Apply(&autograd.Sum{Group: r.group}, r.losses().Sum().Scale(1/float64(r.n))).Sqrt())
	},
	"in front of AllReduce": func(r *rows) {
		h := r.hidden()
		mean := r.tape.Apply(&autograd.AllReduce{Group: r.group}, h.Sum(0).Scale(0.5/float64(r.n)))
		r.backward(nn.GlobalMean(r.B.Forward(h.Sub(mean)).Square()))
	},
	"WithAux of what all ranks have": func(r *rows) {
		pen := r.tape.Use(r.B.W).Square().Sum()
		r.backward(tensor.WithAux(nn.GlobalMean(r.losses()), pen, float64(r.n)/float64(r.total)))
	},
	"a teacher's number": func(r *rows) { r.teach(func(x nn.T) nn.T { return x.Scale(1 / float64(r.n)) }) },
	"a teacher's Clamp":  func(r *rows) { r.teach(func(x nn.T) nn.T { return ops.Clamp(x, 0, 1/float64(r.n)) }) },
	"a bound of Clamp":   func(r *rows) { r.backward(nn.GlobalMean(ops.Clamp(r.losses(), 0, float64(r.n)))) },
	"the lower bound":    func(r *rows) { r.backward(nn.GlobalMean(ops.Clamp(r.losses(), 1/float64(r.n), 9))) },
	"LayerNorm's eps": func(r *rows) {
		r.backward(nn.GlobalMean(ops.LayerNorm(r.hidden(), nn.T{}, nn.T{}, 1/float64(r.n)).Square()))
	},
	"RMSNorm's eps": func(r *rows) { r.backward(nn.GlobalMean(ops.RMSNorm(r.hidden(), nn.T{}, 1/float64(r.n)).Square())) },
	"Dropout":       func(r *rows) { r.backward(nn.GlobalMean(ops.Dropout(r.hidden(), 1/float64(r.n), 1).Square())) },
	"no Dropout on one": func(r *rows) {
		r.backward(nn.GlobalMean(ops.Dropout(r.hidden(), 0.5*float64(r.group.Rank()), 1).Square()))
	},
	"Smoothing": func(r *rows) {
		r.backward(ops.CrossEntropy(r.C.Forward(r.hidden()), r.y, ops.CrossEntropyOptions{Smoothing: 1 / float64(r.n)}))
	},
	"TopK": func(r *rows) {
		best, _ := ops.TopK(r.hidden(), r.n/2)
		r.backward(nn.GlobalMean(best.Mean(1)))
	},
	"a temperature": func(r *rows) {
		r.backward(nn.GlobalMean(r.hidden().Mul(r.tape.Zeros(tensor.Float64, 1).Affine(1, float64(r.n))).Square()))
	},
	"an input, scaled": func(r *rows) {
		one := r.tape.Input(tensor.FromSlice([]float64{1}, 1))
		r.backward(nn.GlobalMean(r.hidden().Mul(one.Scale(1 / float64(r.n))).Square()))
	},
	"Arange": func(r *rows) {
		share := 1 / float64(r.n)
		r.backward(nn.GlobalMean(r.hidden().Mul(ops.Arange(r.tape, tensor.Float64, share, share+.5, 1)).Square()))
	},
	"a threshold for each row": func(r *rows) {
		l := r.losses()
		easy := l.Detach().Lt(r.tape.Zeros(tensor.Float64, r.n).Affine(1, float64(10*r.n))).Cast(tensor.Float64)
		r.backward(nn.GlobalMean(l.Mul(easy)))
	},
	"a column of one number": func(r *rows) {
		h := r.hidden()
		r.backward(nn.GlobalMean(ops.LogSumExp(tensor.Concat(1, h, r.tape.Input(r.filled(1, 1)).Scale(1/float64(r.n))))))
	},
	"ones, scaled": func(r *rows) {
		r.backward(nn.GlobalMean(r.hidden().Mul(r.tape.Zeros(tensor.Float64, r.n, 8).Affine(0, 1).Scale(float64(r.n))).Square()))
	},
	"chosen rows, AsPart": func(r *rows) {
		r.backward(tensor.AsPart(r.row(r.losses(), 0).Sum().Scale(1/float64(r.n)), r.group.Axes()))
	},
	"chosen rows, before the Sum": func(r *rows) {
		r.backward(tensor.AsPart(r.row(r.losses(), 0).Scale(1/float64(r.n)).Sum().Neg(), r.group.Axes()))
	},
	"mean of columns, AsPart": func(r *rows) {
		best, _ := ops.Sort(r.hidden(), 0, false)
		r.backward(tensor.AsPart(best.Square().Sum(0).Scale(1/float64(r.n)).Sum(), r.group.Axes()))
	},
	"a parameter": func(r *rows) {
		r.backward(nn.GlobalMean(r.hidden().Mul(r.tape.Use(r.Gain).Scale(1 / float64(r.n))).Square()))
	},
	"what all ranks have": func(r *rows) {
		r.backward(r.summed(nn.GlobalMean(r.losses())).Affine(1, float64(r.n)).Sqrt())
	},
	"in a Function": func(r *rows) {
		r.backward(nn.GlobalMean(r.tape.Apply(&scaled{by: 1 / float64(r.n)}, r.hidden()).Square()))
	},
	"in a Function that is a value": func(r *rows) {
		f := scaledByValue{}
		f.options.by = 1 / float64(r.n)
		r.backward(nn.GlobalMean(r.tape.Apply(f, r.hidden()).Square()))
	},
}

// scaledByValue multiplies by a number in a struct.
type scaledByValue struct{ options struct{ by float64 } }

func (scaledByValue) Name() string                            { return "scaled by value" }
func (f scaledByValue) Forward(_ *tensor.Ctx, in []nn.T) nn.T { return in[0].Scale(f.options.by) }
func (f scaledByValue) Backward(_ *tensor.Ctx, g nn.T, grads []nn.T) {
	grads[0] = g.Scale(f.options.by)
}

// scaled multiplies by a number, and keeps a result.
type scaled struct{ by, largest float64 }

func (*scaled) Name() string { return "scaled" }

func (f *scaled) Forward(_ *tensor.Ctx, in []nn.T) nn.T {
	f.largest = slices.Max(tensor.Floats(in[0]))
	return in[0].Scale(f.by)
}

func (f *scaled) Backward(_ *tensor.Ctx, g nn.T, grads []nn.T) { grads[0] = g.Scale(f.by) }

// wholeFactors are right steps that have such numbers.
var wholeFactors = map[string]step{
	"a sum":                  func(r *rows) { r.backward(r.losses().Sum()) },
	"mean of all rows":       func(r *rows) { r.backward(r.losses().Sum().Scale(1 / float64(r.total))) },
	"GlobalMean by Backward": func(r *rows) { r.backward(nn.GlobalMean(r.losses()), tensor.Scale(1024)) },
	"own mean times share": func(r *rows) {
		r.backward(r.losses().Sum().Scale(1 / float64(max(r.n, 1))).Scale(float64(r.n) / float64(r.total)))
	},
	"own mean, Backward": func(r *rows) {
		r.backward(r.losses().Sum().Scale(1/float64(r.n)), tensor.Scale(float64(r.n)/float64(r.total)))
	},
	"mean of the rank's own, times share": func(r *rows) {
		r.backward(tensor.AsPart(r.losses().Mean().Scale(float64(r.n)/float64(r.total)), r.group.Axes()))
	},
	"means of columns of the rank's own, times share": func(r *rows) {
		if r.n > 1 {
			best, _ := ops.Sort(r.hidden(), 0, false)
			r.backward(tensor.AsPart(best.Mean(0).Mean().Scale(float64(r.n)/float64(r.total)), r.group.Axes()))
		}
	},
	"rows one by one, each with its number": func(r *rows) {
		losses := r.losses()
		l := nn.GlobalMean(losses)
		for i := range r.n {
			l = l.Add(tensor.AsPart(r.row(losses, i).Sum().Scale(1/float64(1+r.lo+i)), r.group.Axes()))
		}
		r.backward(l)
	},
	"a teacher's number": func(r *rows) {
		other := tensor.NewTape(r.tape.Device(), tensor.NoGrad())
		defer other.Close()
		other.Input(r.x).Sum().Scale(1 / float64(max(r.n, 1))).Item() // shown on this rank
		r.teach(func(x nn.T) nn.T { return ops.Clamp(x.Scale(2), 0, 1) })
	},
	"numbers from the first row on": func(r *rows) {
		ops.Arange(r.tape, tensor.Float64, 0, float64(r.total), 1).Affine(1, -float64(r.lo))
		ops.Arange(r.tape, tensor.Float64, float64(r.lo), float64(r.lo+r.n), 1).Scale(2)
		r.backward(nn.GlobalMean(r.losses()))
	},
	"a Function that keeps a result": func(r *rows) {
		f := &scaled{by: 2}
		r.backward(nn.GlobalMean(r.tape.Apply(f, r.tape.Apply(f, r.hidden())).Square()))
	},
	"a document on each rank, the mean of its words": func(r *rows) {
		w := r.filled(1/float64(2*max(r.n, 1)), 1).Reshape(-1).WithRows(r.group.Rows(r.lo, r.total))
		r.backward(r.losses().Mul(r.tape.Input(w)).Sum())
	},
	"share as a 32-bit float": func(r *rows) {
		r.backward(r.losses().Sum().Scale(1/float64(r.n)), tensor.Scale(float64(float32(r.n)/float32(r.total))))
	},
	"own means of two, times share": func(r *rows) {
		a, b := r.losses().Sum().Scale(.5/float64(r.n)), r.hidden().Sum().Scale(1/float64(r.n))
		r.backward(a.Add(b).Scale(float64(r.n) / float64(r.total)))
	},
	"microbatches of other sizes": func(r *rows) {
		for lo := 0; lo < r.n; lo += 3 { // 3 rows are 1 microbatch, and 4 are 2
			hi := min(lo+3, r.n)
			o := []tensor.BackwardOption{tensor.Scale(float64(hi-lo) / float64(r.total))}
			if hi < r.n {
				o = append(o, tensor.More())
			}
			r.backward(r.some(lo, hi).Sum().Scale(1/float64(hi-lo)), o...)
		}
	},
	"one loss on a rank, another on the other": func(r *rows) {
		if r.group.Rank() == 0 {
			r.backward(r.task(r.losses(), 0.3))
		} else {
			r.backward(r.task(r.D.Forward(r.hidden()).Square(), 0.7))
		}
	},
	"a loss that a rank leaves out": func(r *rows) {
		l := nn.GlobalMean(r.losses())
		if r.group.Rank() == 0 {
			l = l.Add(nn.GlobalMean(r.hidden()).Scale(0.1))
		}
		r.backward(l)
	},
	"nothing counts on a rank": func(r *rows) {
		if r.group.Rank() == 0 {
			r.backward(r.losses().Sum().Scale(0))
		} else {
			r.backward(r.losses().Sum().Scale(0.5))
		}
	},
	"in a Checkpoint": func(r *rows) {
		mean := r.tape.Checkpoint(func(in ...nn.T) nn.T { return in[0].Square().Sum().Scale(1 / float64(r.n)) }, r.hidden())
		r.backward(mean.Scale(float64(r.n) / float64(r.total)))
	},
	"many": func(r *rows) {
		l := nn.GlobalMean(r.losses())
		for i := range 70 {
			l = l.Add(r.hidden().Sum().Scale(float64(i + r.group.Rank())))
		}
		r.backward(l)
	},
	"more losses of one line on a rank": func(r *rows) {
		h, l := r.hidden(), nn.GlobalMean(r.losses())
		for i := range 1 + r.group.Rank() {
			l = l.Add(h.Sum().Scale(float64(i + 1)))
		}
		r.backward(l)
	},
	"a penalty": func(r *rows) {
		r.backward(nn.GlobalMean(r.losses()).Add(r.tape.Use(r.B.W).Square().Sum().Scale(0.1)))
	},
	"a penalty on the first rank": func(r *rows) {
		first := 1 - float64(r.group.Rank())
		r.backward(nn.GlobalMean(r.losses()).Add(r.tape.Use(r.B.W).Square().Sum().Scale(first)))
	},
	"WithAux": func(r *rows) {
		h := r.hidden()
		r.backward(nn.GlobalMean(r.B.Forward(tensor.WithAux(h, h.Square().Sum().Scale(1/float64(r.n)), float64(r.n)/float64(r.total))).Square()))
	},
}

// otherGathers are steps that fsdp refuses: ranks would gather units in different orders.
var otherGathers = map[string]bool{
	"microbatches of other sizes": true, "one loss on a rank, another on the other": true, "a loss that a rank leaves out": true,
}
