package tensor_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// rectangle is the part of [rows, positions, columns] from lo to hi.
type rectangle struct{ lo, hi [3]int }

// boxes cuts dims into ways[d] parts of different sizes along each dimension d.
func boxes(dims, ways [3]int) (all []rectangle) {
	cut := func(d, k int) int { return dims[d] * k * (k + 1) / (ways[d] * (ways[d] + 1)) }
	for r := range ways[0] {
		for s := range ways[1] {
			for c := range ways[2] {
				all = append(all, rectangle{[3]int{cut(0, r), cut(1, s), cut(2, c)}, [3]int{cut(0, r+1), cut(1, s+1), cut(2, c+1)}})
			}
		}
	}
	return all
}

// of returns the elements of x, of shape dims, inside b.
func (b rectangle) of(v []float64, dims [3]int) (out []float64) {
	for r := b.lo[0]; r < b.hi[0]; r++ {
		for s := b.lo[1]; s < b.hi[1]; s++ {
			at := (r*dims[1] + s) * dims[2]
			out = append(out, v[at+b.lo[2]:at+b.hi[2]]...)
		}
	}
	return out
}

// tensor returns that part as a batch with its rows and positions.
func (b rectangle) tensor(v []float64, dims [3]int) Tensor {
	x := FromSlice(b.of(v, dims), b.hi[0]-b.lo[0], b.hi[1]-b.lo[1], b.hi[2]-b.lo[2])
	return x.WithRows(Rows{First: b.lo[0], Stride: 1, Total: dims[0], Seq: Spans{First: b.lo[1], Total: dims[1]}})
}

var odd = [3]int{5, 7, 6}

// WithRows does not change its receiver: ranks that share a batch have different rows.
func TestWithRowsIsAValue(t *testing.T) {
	x := random(hostDevice, Float32, 1, 4, 3)
	ranks := make([]Tensor, 8)
	var wg sync.WaitGroup
	for i := range ranks {
		wg.Go(func() { ranks[i] = x.WithRows(Rows{First: i, Stride: 1, Total: 20}) })
	}
	wg.Wait()
	for i, y := range ranks {
		tape := NewTape(hostDevice)
		tape.Input(y)
		require.Equal(t, Rows{First: i, Stride: 1, Total: 20}, tape.Rows())
		require.Equal(t, x.Ptr(), y.Ptr())
	}
	tape := NewTape(hostDevice)
	tape.Input(x)
	assert.Zero(t, tape.Rows())
	tape.Input(ranks[3].WithRows(Rows{}))
	assert.Zero(t, tape.Rows(), "taken away")
}

func TestRowsThatCannotBe(t *testing.T) {
	x := New(hostDevice, Float32, 4, 3)
	for msg, f := range map[string]func(){
		"4 rows of {First:2 Stride:1 Total:8":                         func() { x.WithRows(Rows{First: 2, Stride: 1, Total: 8, Group: 4}) },
		"Group:3} are not whole groups":                               func() { x.WithRows(Rows{First: 3, Stride: 1, Total: 12, Group: 3}) },
		"4 rows from 3 on, 1 apart, are not among the 6 of the batch": func() { x.WithRows(Rows{First: 3, Stride: 1, Total: 6}) },
		"4 rows from 0 on, 2 apart, are not among the 6 of the batch": func() { x.WithRows(Rows{Stride: 2, Total: 6}) },
		"positive Stride":           func() { x.WithRows(Rows{Total: 4}) },
		"needs a dimension of rows": func() { New(hostDevice, Float32).WithRows(Rows{Stride: 1, Total: 4}) },
		"dimension 1 is not {First:3 Total:5 Break:0 Skip:0}, a part of a sequence": func() {
			x.WithRows(Rows{Stride: 1, Total: 4, Seq: Spans{First: 3, Total: 5}})
		},
		"the tensor is on a tape: call WithRows before Tape.Input": func() { NewTape(hostDevice).Input(x).WithRows(Rows{Stride: 1, Total: 4}) },
		"does not fit the Region that was given: {Rows:{First:0 Total:0} Cols:{First:1": func() {
			ops.DropoutAt(NewTape(hostDevice).Input(x), 0.5, 1, Region{Cols: Span{First: 1, Total: 3}})
		},
	} {
		assert.ErrorContains(t, Try(f), msg)
	}
}

// Losses over parts of rows and of sequences add up to the loss of the whole.
func TestLossesOfSequencesAddUp(t *testing.T) {
	n := odd[0] * odd[1] * odd[2]
	x, y := Floats(random(hostDevice, Float64, 1, n)), Floats(random(hostDevice, Float64, 2, n))
	labels := func(b rectangle) Tensor {
		l := make([]int64, 0, n)
		for r := b.lo[0]; r < b.hi[0]; r++ {
			for s := b.lo[1]; s < b.hi[1]; s++ {
				l = append(l, int64(r*5+s*3)%int64(odd[2]))
			}
		}
		return FromSlice(l, b.hi[0]-b.lo[0], b.hi[1]-b.lo[1])
	}
	flat := func(x Tensor) Tensor { return x.Reshape(x.Dim(0)*x.Dim(1), x.Dim(2)) }
	for name, loss := range map[string]func(x, y, l Tensor) Tensor{
		"mse":           func(x, y, _ Tensor) Tensor { return ops.MSE(x, y) },
		"mse, flat":     func(x, y, _ Tensor) Tensor { return ops.MSE(flat(x), flat(y)) },
		"bce":           func(x, y, _ Tensor) Tensor { return ops.BCEWithLogits(x, y.Square()) },
		"global mean":   func(x, y, _ Tensor) Tensor { return GlobalMean(x.Sub(y).Square()) },
		"global count":  func(x, _, _ Tensor) Tensor { return x.Abs().Sum().Scale(1 / float64(GlobalCount(x))) },
		"cross entropy": func(x, _, l Tensor) Tensor { return ops.CrossEntropy(x, l, ops.CrossEntropyOptions{}) },
		"cross entropy, flat": func(x, _, l Tensor) Tensor {
			return ops.CrossEntropy(flat(x), l.Reshape(-1), ops.CrossEntropyOptions{})
		},
	} {
		var whole, wholeGrad float64
		for i, ways := range [][3]int{{1, 1, 1}, {1, 2, 1}, {3, 1, 1}, {2, 3, 1}, {4, 4, 1}} {
			p := NewParam(Constant(0.7), 1)
			p.Make(hostDevice, Float64, 0)
			sum := 0.0
			for _, b := range boxes(odd, ways) {
				tape := NewTape(hostDevice)
				in := tape.Input(b.tensor(x, odd))
				l := loss(in.Mul(tape.Use(p)), tape.Input(FromSlice(b.of(y, odd), in.Shape().Dims...)), tape.Input(labels(b)))
				sum += l.Item()
				tape.Backward(l, More())
				tape.Reset()
			}
			if i == 0 {
				whole, wholeGrad = sum, p.Grad.Item()
			}
			assert.InDelta(t, whole, sum, 1e-14, "%s, cut %v", name, ways)
			assert.InDelta(t, wholeGrad, p.Grad.Item(), 1e-14, "%s, cut %v", name, ways)
		}
	}
}

// The loss of a tensor that cannot be the batch is an error; it is not divided by the batch's rows.
func TestLossOfSomethingElse(t *testing.T) {
	tape := NewTape(hostDevice)
	tape.Input(New(hostDevice, Float64, 3, 4).WithRows(Rows{Stride: 1, Total: 12}))
	w := tape.Input(random(hostDevice, Float64, 3, 5, 2)) // a weight, say
	const msg = "float64[5,2]: leading dimensions are not those of the step's input (3 rows of 12)"
	for _, f := range []func(){
		func() { ops.MSE(w, New(hostDevice, Float64, 5, 2)) },
		func() { ops.BCEWithLogits(w, New(hostDevice, Float64, 5, 2)) },
		func() { GlobalMean(w) },
		func() { GlobalCount(w) },
	} {
		assert.ErrorContains(t, Try(f), msg)
	}
	err := Try(func() { ops.CrossEntropy(w, New(hostDevice, Int64, 5), ops.CrossEntropyOptions{}) })
	assert.ErrorContains(t, err, "int64[5]: leading dimensions are not those of the step's input (3 rows of 12)")
	err = Try(func() { ops.CrossEntropy(w, New(hostDevice, Int64, 5), ops.CrossEntropyOptions{Count: 5}) })
	assert.NoError(t, err, "it says what it divides by")
	assert.InDelta(t, w.Square().Sum().Item()/10, w.Square().Mean().Item(), 1e-15)
	tape.Input(New(hostDevice, Float64, 3, 4, 2).WithRows(Rows{Stride: 1, Total: 12, Seq: Spans{First: 0, Total: 8}}))
	err = Try(func() { GlobalMean(tape.Input(New(hostDevice, Float64, 3, 2))) })
	assert.ErrorContains(t, err, "(3 rows of 12, 4 positions of 8)")
	assert.Equal(t, 12*8*2, GlobalCount(tape.Input(New(hostDevice, Float64, 3, 8, 2))), "the gathered sequence")
	assert.Equal(t, 12*8*2, GlobalCount(tape.Input(New(hostDevice, Float64, 3, 4, 2))))
}

// A bfloat16 mean is summed up in float32.
func TestGlobalMeanOfHalves(t *testing.T) {
	tape := NewTape(hostDevice)
	x := New(hostDevice, BFloat16, 1000, 3)
	Constant(1).Fill(x, 0, 0)
	got := GlobalMean(tape.Input(x.WithRows(Rows{Stride: 1, Total: 4000})))
	assert.Equal(t, Float32, got.DType())
	assert.InDelta(t, 0.25, got.Item(), 1e-7)
}

// Dropout of a part of an activation (rows, positions, columns) is the same part of the whole's dropout.
func TestDropoutOfRegions(t *testing.T) {
	n := odd[0] * odd[1] * odd[2]
	x := Floats(random(hostDevice, Float64, 1, n))
	drop := func(b rectangle) (out, grad []float64) {
		tape := NewTape(hostDevice, Seed(4))
		whole := rectangle{[3]int{b.lo[0], b.lo[1], 0}, [3]int{b.hi[0], b.hi[1], odd[2]}} // all columns
		p := NewParam(Constant(1), 1)
		p.Make(hostDevice, Float64, 0)
		in := tape.Input(whole.tensor(x, odd)).Mul(tape.Use(p))
		y := tape.Keep(ops.DropoutAt(in.Slice(2, b.lo[2], b.hi[2]), 0.5, 77, Region{Cols: Span{First: b.lo[2], Total: odd[2]}}))
		out = Floats(y)
		tape.Backward(y.Sum())
		return out, []float64{p.Grad.Item()}
	}
	whole, grad := drop(rectangle{hi: odd})
	for _, ways := range [][3]int{{1, 1, 2}, {1, 2, 1}, {2, 1, 1}, {2, 3, 3}, {1, 1, 6}} {
		sum := 0.0
		for _, b := range boxes(odd, ways) {
			got, g := drop(b)
			require.Equal(t, fmt.Sprint(b.of(whole, odd)), fmt.Sprint(got), "%v", b)
			sum += g[0]
		}
		require.InDelta(t, grad[0], sum, 1e-12, "the gradient has the same mask")
	}
}

// Flat tokens of one position of each sequence are no whole sequences, also with as many features as there are positions.
func TestTokensOfOnePosition(t *testing.T) {
	const rows, time = 3, 5
	tape, x := NewTape(hostDevice, Seed(4)), New(hostDevice, Float64, rows, 1, time)
	Constant(1).Fill(x, 0, 0)
	in := tape.Input(x.WithRows(Rows{First: 2, Stride: 1, Total: 7, Seq: Spans{First: 3, Total: time}, Over: 2, SeqOver: 2}))
	flat := in.Reshape(rows, time)
	require.Equal(t, 7*time*time, GlobalCount(flat))
	require.Equal(t, Floats(ops.Dropout(in, 0.5, 7)), Floats(ops.Dropout(flat, 0.5, 7)))
	whole := tape.Input(New(hostDevice, Float64, rows, time).WithTypes(flat.Types().With(2, Cut))) // as after an exchange for heads
	require.Equal(t, 7*time, GlobalCount(whole))
}

// A weight has the same mask in each microbatch.
func TestDropoutOfAWeight(t *testing.T) {
	w := NewParam(Constant(1), 3, 4)
	w.Make(hostDevice, Float64, 1)
	var masks [][]float64
	for _, r := range []Rows{{Stride: 1, Total: 9}, {First: 3, Stride: 1, Total: 9}, {First: 0, Stride: 1, Total: 3}, {}} {
		tape := NewTape(hostDevice, Seed(4))
		tape.Input(New(hostDevice, Float32, 3, 2).WithRows(r))
		masks = append(masks, Floats(ops.Dropout(tape.Use(w), 0.5, 7)))
	}
	for _, m := range masks[1:] {
		require.Equal(t, masks[0], m)
	}
}

// Flat tokens of whole rows may be cut anywhere, as under sequence parallelism, and also by columns.
func TestDropoutOfTokens(t *testing.T) {
	const rows, first, total, steps, width = 3, 2, 9, 4, 6
	r := Rows{First: first, Stride: 1, Total: total}
	drop := func(lo, hi, col, cols int) []float64 {
		tape := NewTape(hostDevice, Seed(4))
		tape.Input(New(hostDevice, Float32, rows, steps).WithRows(r))
		x := New(hostDevice, Float32, hi-lo, cols)
		Constant(1).Fill(x, 0, 0)
		return Floats(ops.DropoutAt(tape.Input(x), 0.5, 7, Region{Span{First: lo, Total: rows * steps}, Span{First: col, Total: width}}))
	}
	whole := drop(0, rows*steps, 0, width)
	tape := NewTape(hostDevice, Seed(4))
	ones := New(hostDevice, Float32, rows, steps, width)
	Constant(1).Fill(ones, 0, 0)
	require.Equal(t, Floats(ops.Dropout(tape.Input(ones.WithRows(r)), 0.5, 7)), whole, "the same as not flat")
	for _, cut := range [][]int{{0, 12}, {0, 5, 12}, {0, 1, 2, 7, 12}} {
		for i, hi := range cut[1:] {
			lo := cut[i]
			require.Equal(t, whole[lo*width:hi*width], drop(lo, hi, 0, width))
			for j, v := range drop(lo, hi, 2, 3) {
				require.Equal(t, whole[(lo+j/3)*width+2+j%3], v)
			}
		}
	}
	for tokens, r := range map[int]Rows{
		13: r, 12: {First: first, Stride: 1, Total: total, Seq: Spans{First: 1, Total: 6}, Over: 1, SeqOver: 1},
	} {
		err := Try(func() {
			tape := NewTape(hostDevice)
			tape.Input(New(hostDevice, Float32, rows, 3).WithRows(r))
			ops.DropoutAt(tape.Input(New(hostDevice, Float32, 5, width)), 0.5, 7, Region{Rows: Span{Total: tokens}})
		})
		assert.ErrorContains(t, err, "which are not the tokens of the step's input (3 rows of 9")
	}
}

// Tokens of a part of the rows, which may be apart, and of their positions, may be cut anywhere, and by columns: their masks, and those of
// their gradients, are the whole's, also where a Checkpoint computes them again.
func TestDropoutOfTokensOfPartsOfSequences(t *testing.T) {
	dims := [3]int{7, 5, 6}
	flat := func(first, stride, rows int, pos [2]int, cut [2]int, cols [2]int, again bool) (y, grad []float64) {
		tape := NewTape(hostDevice, Seed(4))
		defer tape.Close()
		n := pos[1] - pos[0]
		r := Rows{First: first, Stride: stride, Total: dims[0], Over: 3}
		if n < dims[1] {
			r.Seq, r.SeqOver = Spans{First: pos[0], Total: dims[1]}, 2
		}
		tape.Input(New(hostDevice, Int64, rows, n).WithRows(r))
		x := New(hostDevice, Float64, cut[1]-cut[0], cols[1]-cols[0])
		Constant(1).Fill(x, 0, 0)
		in := tape.Leaf(x)
		f := func(in ...Tensor) Tensor {
			return ops.DropoutAt(in[0].Exp(), 0.5, 7, Region{Span{First: cut[0], Total: rows * n}, Span{First: cols[0], Total: dims[2]}})
		}
		out := Tensor{}
		if again {
			out = tape.Checkpoint(f, in)
		} else {
			out = f(in)
		}
		y = Floats(out)
		tape.Backward(out.Sum())
		return y, Floats(tape.GradOf(in))
	}
	whole, _ := flat(0, 1, dims[0], [2]int{0, dims[1]}, [2]int{0, dims[0] * dims[1]}, [2]int{0, dims[2]}, false)
	for _, rows := range [][3]int{{0, 1, 7}, {2, 1, 3}, {6, 1, 1}, {1, 2, 3}, {0, 3, 3}} { // first, stride, number
		for _, pos := range [][2]int{{0, 5}, {0, 3}, {3, 5}, {1, 2}} {
			n := pos[1] - pos[0]
			var place []int // of each token in the whole
			for i := range rows[2] * n {
				place = append(place, (rows[0]+i/n*rows[1])*dims[1]+pos[0]+i%n)
			}
			for _, ranks := range []int{1, 2, 3, 4} {
				for rank := range ranks {
					lo, hi := layout.Share(len(place), rank, ranks)
					for _, cols := range [][2]int{{0, 6}, {2, 5}, {1, 6}} { // five columns look like whole sequences
						want := []float64{}
						for _, p := range place[lo:hi] {
							want = append(want, whole[p*dims[2]+cols[0]:p*dims[2]+cols[1]]...)
						}
						y, grad := flat(rows[0], rows[1], rows[2], pos, [2]int{lo, hi}, cols, rank%2 == 1)
						require.Equal(t, want, y, "%v rows, positions %v, tokens %d to %d, columns %v", rows, pos, lo, hi, cols)
						require.Equal(t, want, grad)
					}
				}
			}
		}
	}
}

// A Checkpoint that runs again uses the rectangle of its first run, even if another batch came since.
func TestCheckpointKeepsTheRegion(t *testing.T) {
	n := odd[0] * odd[1] * odd[2]
	x := Floats(random(hostDevice, Float64, 1, n))
	b := boxes(odd, [3]int{2, 2, 1})[3]
	grad := func(checkpoint bool) float64 {
		tape := NewTape(hostDevice, Seed(4))
		p := NewParam(Constant(1.5), 1)
		p.Make(hostDevice, Float64, 0)
		f := func(in ...Tensor) Tensor { return GlobalMean(ops.Dropout(in[0].Square(), 0.5, 9).Square()) }
		in := tape.Input(b.tensor(x, odd)).Mul(tape.Use(p))
		var l Tensor
		if checkpoint {
			l = tape.Checkpoint(f, in)
			tape.Input(New(hostDevice, Int64, 3).WithRows(Rows{First: 1, Stride: 1, Total: 5}))
		} else {
			l = f(in)
		}
		tape.Backward(l)
		return p.Grad.Item()
	}
	assert.Equal(t, grad(false), grad(true))
}
