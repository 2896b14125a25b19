package tensor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// shareOf is a rank's part of a batch: adjacent rows, or every n-th row.
func shareOf(x Tensor, rank, ranks int, contiguous bool) Tensor {
	total, row := x.Dim(0), x.Len()/x.Dim(0)
	r := Rows{First: rank, Stride: ranks, Total: total}
	n := (total - rank + ranks - 1) / ranks
	if contiguous { // the first ranks have one more
		r.First, r.Stride = 0, 1
		for k := range rank + 1 {
			n = total / ranks
			if k < total%ranks {
				n++
			}
			if k < rank {
				r.First += n
			}
		}
	}
	dims := append([]int{n}, x.Shape().Dims[1:]...)
	y := New(hostDevice, x.DType(), dims...)
	for i := range n {
		copy(y.Bytes()[i*row*x.DType().Size():], x.Bytes()[(r.First+i*r.Stride)*row*x.DType().Size():][:row*x.DType().Size()])
	}
	return y.WithRows(r)
}

// Dropout of a batch that is divided over ranks is the dropout of the whole, for all ways to divide it and any number of threads.
func TestDropoutOverRanks(t *testing.T) {
	x := New(hostDevice, Float32, 7, 3, 1000)
	Constant(1).Fill(x, 0, 0)
	drop := func(x Tensor, threads int) []float64 {
		dev := cpu.New(threads)
		defer dev.Close()
		tape := NewTape(dev, Seed(5))
		tape.SetStep(3, 1)
		in := tape.Input(x)
		flat := ops.Dropout(in.Reshape(in.Dim(0)*3, 1000), 0.3, HashName("blocks.0.drop")) // batch and positions flattened
		return Floats(flat)
	}
	want := drop(x, 1)
	kept := 0
	for _, v := range want {
		if v != 0 {
			require.InDelta(t, 1/0.7, v, 1e-6)
			kept++
		}
	}
	assert.InDelta(t, 0.7, float64(kept)/float64(len(want)), 0.01)
	for ranks := range 4 {
		for _, contiguous := range []bool{true, false} {
			for rank := range ranks {
				p := shareOf(x, rank, ranks, contiguous)
				got := drop(p, rank+1)
				r := p.Rows()
				for i := range p.Dim(0) {
					at := (r.First + i*r.Stride) * 3000
					require.Equal(t, want[at:at+3000], got[i*3000:(i+1)*3000], "%d of %d", rank, ranks)
				}
			}
		}
	}
}

// Random keys differ only if seed, step, microbatch or layer differ.
func TestRandomKeys(t *testing.T) {
	key := func(seed uint64, step, micro int, layer string) uint64 {
		tape := NewTape(hostDevice, Seed(seed))
		tape.SetStep(step, micro)
		return tape.RandomKey(HashName(layer))
	}
	seen := map[uint64]string{}
	for seed := range uint64(3) {
		for step := range 3 {
			for micro := range 3 {
				for _, layer := range []string{"a", "b"} {
					k, name := key(seed, step, micro, layer), fmt.Sprint(seed, step, micro, layer)
					assert.Empty(t, seen[k], name)
					seen[k] = name
					assert.Equal(t, k, key(seed, step, micro, layer))
				}
			}
		}
	}
	tape := NewTape(hostDevice)
	p := NewParam(Constant(1), 2)
	p.Make(hostDevice, Float32, 0)
	at := func() [2]int { return Micro(tape) }
	for _, want := range [][2]int{{0, 1}, {0, 2}} {
		tape.Backward(tape.Use(p).Sum(), More())
		assert.Equal(t, want, at())
	}
	tape.Backward(tape.Use(p).Sum())
	assert.Equal(t, [2]int{1, 0}, at())
}

// The model on 1, 2 and 3 ranks: losses add up to the whole loss, and gradients to the whole gradient, with dropout, recomputation and
// parts of different sizes.
func TestRanksAddUp(t *testing.T) {
	run := func(ranks int, checkpoint bool) (loss float64, grads [][]float64) {
		ps := &params{dev: hostDevice, dtype: Float64}
		m := newGPT(ps, 11, 6, 8, 2, 2)
		m.drop, m.checkpoint = 0.2, checkpoint
		tokens := randomTokens(hostDevice, 11, 7, 7)
		tape := NewTape(hostDevice, Seed(2))
		for rank := range ranks {
			tape.SetStep(4, 0)
			ids, labels := gptBatch(tape, shareOf(tokens, rank, ranks, true))
			l := ops.CrossEntropy(m.forward(tape, ids), labels, ops.CrossEntropyOptions{Smoothing: 0.1})
			loss += l.Item()
			if rank == 0 {
				tape.Input(New(hostDevice, Int64, 3).WithRows(Rows{First: 1, Stride: 1, Total: 5})) // another batch, before the recomputation
			}
			tape.Backward(l, More())
			tape.Reset()
		}
		return loss, ps.grads()
	}
	loss, grads := run(1, false)
	for _, ranks := range []int{1, 2, 3, 7} {
		for _, checkpoint := range []bool{false, true} {
			l, g := run(ranks, checkpoint)
			assert.InDelta(t, loss, l, 1e-13, "%d ranks", ranks)
			requireGrads(t, grads, g, 1e-13, fmt.Sprint(ranks, " ranks"))
		}
	}
}

// On one rank, a mean of what has no rows does not depend on how many there are, as in the last batch of an epoch.
func TestMeansOfWeights(t *testing.T) {
	w := NewParam(NormalInit(0, 1), 4, 3)
	w.Make(hostDevice, Float64, 1)
	for _, rows := range []int{4, 3, 2, 1} {
		for _, f := range []func(x Tensor) Tensor{
			func(x Tensor) Tensor { return GlobalMean(x.Square()) },
			func(x Tensor) Tensor { return ops.MSE(x, x.Tape().Input(New(hostDevice, Float64, 4, 3))) },
		} {
			tape := NewTape(hostDevice)
			tape.Input(New(hostDevice, Float64, rows, 3).WithRows(Rows{Stride: 1, Total: rows}))
			x := tape.Use(w)
			require.InDelta(t, x.Square().Mean().Item(), f(x).Item(), 1e-15, rows)
			tape.Input(New(hostDevice, Float64, 3, 3).WithRows(Rows{Stride: 1, Total: 6})) // a microbatch
			require.ErrorContains(t, Try(func() { f(x) }), "leading dimensions are not those of the step's input")
		}
	}
}

// The other losses add up, too. A rank may have no rows.
func TestLossesAddUp(t *testing.T) {
	x, y := random(hostDevice, Float64, 1, 5, 3), random(hostDevice, Float64, 2, 5, 3)
	labels := randomTokens(hostDevice, 3, 5)
	ignore := int64(2)
	for name, loss := range map[string]func(x, y, labels Tensor) Tensor{
		"mse":           func(x, y, _ Tensor) Tensor { return ops.MSE(x, y) },
		"bce":           func(x, y, _ Tensor) Tensor { return ops.BCEWithLogits(x, y.Square()) },
		"cross entropy": func(x, _, l Tensor) Tensor { return ops.CrossEntropy(x, l, ops.CrossEntropyOptions{}) },
		"cross entropy, ignored": func(x, _, l Tensor) Tensor {
			return ops.CrossEntropy(x, l, ops.CrossEntropyOptions{Ignore: &ignore, Count: 4})
		},
	} {
		whole := 0.0
		for ranks := 1; ranks <= 6; ranks++ {
			sum := 0.0
			for rank := range ranks {
				tape := NewTape(hostDevice)
				cut := func(v Tensor) Tensor { return tape.Input(shareOf(v, rank, ranks, true)) }
				sum += loss(cut(x), cut(y), cut(labels)).Item()
			}
			if ranks == 1 {
				whole = sum
			}
			assert.InDelta(t, whole, sum, 1e-14, "%s on %d ranks", name, ranks)
		}
	}
	tape := NewTape(hostDevice)
	shared := tape.Input(shareOf(x, 0, 2, true))
	err := Try(func() {
		ops.CrossEntropy(shared, shareOf(labels, 0, 2, true), ops.CrossEntropyOptions{Ignore: &ignore})
	})
	assert.ErrorContains(t, err, "give Count")
	err = Try(func() { x := tape.Input(New(hostDevice, Float64, 4, 3)); ops.Dropout(x, 0.5, 1) })
	assert.ErrorContains(t, err, "dropout float64[4,3]: shapes do not fit")
	none := shared.Slice(0, 0, 0)
	assert.Zero(t, ops.MSE(none, none).Item(), "no elements, of a batch with rows")
	tape.Input(New(hostDevice, Float64, 0, 3).WithRows(Rows{First: 2, Stride: 1, Total: 4}))
	err = Try(func() { x := tape.Input(New(hostDevice, Float64, 4, 3)); ops.Dropout(x, 0.5, 1) })
	assert.ErrorContains(t, err, "dropout float64[4,3]: shapes do not fit")
	tape.Reset() // forgets the rows
	assert.NoError(t, Try(func() { x := tape.Input(New(hostDevice, Float64, 4, 3)); ops.Dropout(x, 0.5, 1) }))
}

// Initial values depend only on the seed, the name and the index of the element, so a shard is made without the whole.
func TestInitializers(t *testing.T) {
	whole, shard := New(hostDevice, Float32, 1000), New(hostDevice, Float32, 300)
	for _, in := range []Initializer{UniformInit(-3, 5), NormalInit(2, 0.5), KaimingUniform(16), Constant(7)} {
		in.Fill(whole, 9, 0)
		in.Fill(shard, 9, 500)
		assert.Equal(t, Floats(whole)[500:800], Floats(shard))
	}
	moments := func(in Initializer) (lo, hi, mean float64) {
		in.Fill(whole, 1, 0)
		v := Floats(whole)
		lo, hi = v[0], v[0]
		for _, x := range v {
			lo, hi, mean = min(lo, x), max(hi, x), mean+x/1000
		}
		return lo, hi, mean
	}
	lo, hi, mean := moments(UniformInit(-3, 5))
	assert.True(t, lo >= -3 && lo < -2.9 && hi < 5 && hi > 4.9)
	assert.InDelta(t, 1, mean, 0.3)
	lo, hi, _ = moments(KaimingUniform(16))
	assert.True(t, lo >= -0.25 && hi < 0.25 && hi > 0.24)
	_, _, mean = moments(NormalInit(2, 0.5))
	assert.InDelta(t, 2, mean, 0.06)
	a, b := NewParam(NormalInit(0, 1), 5), NewParam(NormalInit(0, 1), 5)
	a.SetName("a")
	b.SetName("b")
	a.Make(hostDevice, Float32, 1)
	b.Make(hostDevice, Float32, 1)
	assert.NotEqual(t, Floats(a.Value), Floats(b.Value))
}

// The rows of a loss must be those of the step's input: it is an error if the targets have other rows, or have rows and no input has.
func TestTargetsOfOtherRows(t *testing.T) {
	rows := Rows{First: 2, Stride: 1, Total: 12, Seq: Spans{First: 3, Total: 6}}
	targets := func(loss string) Tensor {
		if loss == "labels" {
			return New(hostDevice, Int64, 4, 3)
		}
		return New(hostDevice, Float32, 4, 3, 5)
	}
	losses := map[string]func(x, y Tensor) Tensor{
		"mse":              ops.MSE,
		"bce":              ops.BCEWithLogits,
		"labels":           func(x, y Tensor) Tensor { return ops.CrossEntropy(x, y, ops.CrossEntropyOptions{}) },
		"soft targets":     func(x, y Tensor) Tensor { return ops.CrossEntropy(x, y, ops.CrossEntropyOptions{}) },
		"loss of each row": func(x, y Tensor) Tensor { return ops.CrossEntropy(x, y, ops.CrossEntropyOptions{PerRow: true}) },
	}
	for name, loss := range losses {
		for what, change := range map[string]func(r *Rows){
			"":                func(*Rows) {},
			"whole sequences": func(r *Rows) { r.Seq = Spans{} },
			"First":           func(r *Rows) { r.First = 3 },
			"Stride":          func(r *Rows) { r.Stride = 2 },
			"Total":           func(r *Rows) { r.Total = 13 },
			"Seq":             func(r *Rows) { r.Seq.First = 0 },
			"two runs":        func(r *Rows) { r.Seq = Spans{First: 2, Total: 6, Break: 1, Skip: 1} },
		} {
			tape := NewTape(hostDevice)
			x := tape.Input(New(hostDevice, Float32, 4, 3, 5).WithRows(rows))
			other := rows
			change(&other)
			y := targets(name).WithRows(other)
			if what == "" || what == "whole sequences" {
				loss(x, y)
				continue
			}
			f := Try(func() { loss(x, y) })
			assert.ErrorContains(t, f, "not of the rows of the step's input", "%s, %s", name, what)
		}
		tape := NewTape(hostDevice)
		x := tape.Input(New(hostDevice, Float32, 4, 3, 5))
		f := Try(func() { loss(x, targets(name).WithRows(rows)) })
		assert.ErrorContains(t, f, "no input of the step has rows", name)
	}
}

// Two views of a batch behind each other, and steps in front of the rows, have the masks of one rank, also where they are cut and turned.
func TestDropoutOfRowsElsewhere(t *testing.T) {
	const total, width = 7, 5
	forms := map[string]func(x Tensor) Tensor{
		"two views":          func(x Tensor) Tensor { return Concat(0, x, x.Scale(2)) },
		"time first":         func(x Tensor) Tensor { return x.Reshape(-1, width, 1).Permute(1, 0, 2) },
		"tokens, time first": func(x Tensor) Tensor { return x.Reshape(-1, width, 1).Permute(1, 0, 2).Reshape(-1, 1) },
		"features first":     func(x Tensor) Tensor { return x.Transpose(0, 1) },
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			run := func(first, stride, n int) (y, grad [][]float64) { // by row
				tape := NewTape(hostDevice, Seed(3))
				defer tape.Close()
				x := New(hostDevice, Float64, n, width)
				Constant(1).Fill(x, 0, 0)
				in := tape.Leaf(x.WithRows(Rows{First: first, Stride: stride, Total: total, Over: 1}))
				h := form(in)
				out := ops.Dropout(h, 0.4, 9)
				place, values := PlaceOf(h).Rows(), Floats(out)
				right := 1
				for d := h.NDim() - 1; place.Dims()>>d == 0; d-- {
					right *= h.Dim(d)
				}
				y, grad = make([][]float64, n), make([][]float64, n)
				for i, v := range values {
					row := i / right % n
					y[row] = append(y[row], v)
				}
				tape.Backward(AsPart(out.Sum(), 1))
				for i, v := range Floats(tape.GradOf(in)) {
					grad[i/width] = append(grad[i/width], v)
				}
				return y, grad
			}
			want, wantGrad := run(0, 1, total)
			for _, part := range [][3]int{{0, 1, 3}, {3, 1, 1}, {4, 1, 3}, {1, 2, 3}, {0, 3, 3}} {
				got, grad := run(part[0], part[1], part[2])
				for i := range part[2] {
					require.Equal(t, want[part[0]+i*part[1]], got[i], part)
					require.Equal(t, wantGrad[part[0]+i*part[1]], grad[i], part)
				}
			}
		})
	}
	masks := func(rows int, form func(x Tensor) Tensor) []float64 {
		tape := NewTape(hostDevice, Seed(3))
		defer tape.Close()
		x := New(hostDevice, Float64, rows, width)
		Constant(1).Fill(x, 0, 0)
		return Floats(ops.Dropout(form(tape.Input(x.WithRows(Rows{Stride: 1, Total: rows, Over: 1}))), 0.4, 9))
	}
	require.Equal(t, masks(2*total, func(x Tensor) Tensor { return x }), masks(total, func(x Tensor) Tensor { return Concat(0, x, x) }),
		"views have masks of their own")
	tape := NewTape(hostDevice)
	defer tape.Close()
	x := tape.Input(New(hostDevice, Float64, 4, 2).WithRows(Rows{Stride: 1, Total: total, Over: 1}))
	require.ErrorContains(t, Try(func() { ops.Dropout(x.Slice(0, 1, 3), 0.5, 1) }), "which are not known here")
}
