package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// graph is a function whose gradients may need fewer launches on the device than on the CPU.
type graph struct {
	name   string
	shapes [][]int
	f      func(tape *tensor.Tape, p []tensor.Tensor) tensor.Tensor
	frozen int                                     // bit mask of parameters
	passes int                                     // number of Backwards whose gradients are added; 0: one
	loss   bool                                    // f's value is the loss; otherwise the loss is the sum of its squares
	from   func(p []tensor.Tensor) []tensor.Tensor // in place of f: tensors that are given gradients
	scale  float64                                 // of the loss; 0: none
}

// values makes parameters on dev and returns the function's value and all gradients.
func (g graph) values(dev tensor.Device, d tensor.DType) [][]float64 {
	params := make([]*tensor.Param, len(g.shapes))
	for i, s := range g.shapes {
		params[i] = tensor.NewParam(tensor.UniformInit(-1, 1), s...)
		params[i].SetName(fmt.Sprint("p", i))
		params[i].Make(dev, d, 5)
		if g.frozen&(1<<i) != 0 {
			params[i].Freeze()
		}
	}
	tape := tensor.NewTape(dev)
	defer tape.Close()
	var all [][]float64
	for pass := range max(g.passes, 1) {
		var uses []tensor.Tensor
		for _, p := range params {
			uses = append(uses, tape.Use(p))
		}
		if g.from != nil {
			outs := g.from(uses)
			grads := make([]tensor.Tensor, len(outs))
			for i, y := range outs {
				grads[i] = y.Detach().Affine(0.5, 1)
			}
			tape.BackwardFrom(outs, grads)
			tape.Reset()
			continue
		}
		y := tape.Keep(g.f(tape, uses))
		loss, options := y, []tensor.BackwardOption{}
		if !g.loss {
			loss = y.Mul(y).Sum()
		}
		if pass+1 < g.passes {
			options = append(options, tensor.More())
		}
		if g.scale != 0 {
			options = append(options, tensor.Scale(g.scale))
		}
		tape.Backward(loss, options...)
		all = append(all, tensor.Floats(y))
		tape.Reset()
	}
	for i, p := range params {
		if g.frozen&(1<<i) == 0 {
			all = append(all, tensor.Floats(p.Grad))
		}
	}
	return all
}

// mlpGraphs are two layers with GELU between them; in each, one thing differs from the simple case.
func mlpGraphs(in, hidden, out int) []graph {
	shapes := [][]int{{6, in}, {hidden, in}, {hidden}, {out, hidden}, {out}}
	up := func(p []tensor.Tensor, act tensor.Activation) tensor.Tensor {
		return tensor.LinearAct(p[0], p[1], p[2], act)
	}
	plain := func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
		return tensor.Linear(up(p, tensor.ActGELUTanh), p[3], p[4])
	}
	square := [][]int{{6, in}, {hidden, in}, {hidden}, {hidden, hidden}, {hidden}}
	return []graph{
		{name: "mlp", shapes: shapes, f: plain},
		{name: "frozen bias", shapes: shapes, f: plain, frozen: 1 << 4},
		{name: "frozen weights", shapes: shapes, f: plain, frozen: 1<<1 | 1<<3},
		{name: "three passes", shapes: shapes, f: plain, passes: 3},
		{name: "exact GELU", shapes: shapes, f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return tensor.Linear(up(p, tensor.ActGELU), p[3], p[4])
		}},
		{name: "ReLU", shapes: shapes, f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return tensor.Linear(up(p, tensor.ActReLU), p[3], p[4])
		}},
		{name: "read twice", shapes: square, f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			h := up(p, tensor.ActGELUTanh)
			return h.Add(tensor.Linear(h, p[3], p[4]))
		}},
		{name: "read by a checkpoint too", shapes: square, f: func(tape *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			h := up(p, tensor.ActGELUTanh)
			c := tape.Checkpoint(func(x ...tensor.Tensor) tensor.Tensor { return x[0].Square() }, h)
			return tensor.Linear(h, p[3], p[4]).Add(c)
		}},
		{name: "residual", shapes: square, f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			r := up(p, tensor.NoActivation)
			h := tensor.LinearAct(r, p[3], p[4], tensor.ActGELUTanh)
			return tensor.LinearAdd(tensor.LinearAdd(h, p[3], p[4], r), p[3], tensor.Tensor{}, r)
		}},
		{name: "activation with a given gradient", shapes: shapes, from: func(p []tensor.Tensor) []tensor.Tensor {
			h := up(p, tensor.ActGELU)
			return []tensor.Tensor{tensor.Linear(h, p[3], p[4]), h}
		}},
		{name: "activation that a checkpoint returns", shapes: shapes, f: func(tape *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return tape.Checkpoint(func(x ...tensor.Tensor) tensor.Tensor {
				h := tensor.LinearAct(x[0], x[1], x[2], tensor.ActGELU)
				tensor.WithAux(x[4], tensor.Linear(h, x[3], x[4]).Square().Sum(), 1)
				return h
			}, p...)
		}},
		{name: "many rows", shapes: [][]int{{4096, 2}, {8, 2}, {8}, {8, 8}, {8}}, f: plain},
		{name: "in a checkpoint", shapes: shapes, f: func(tape *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return tape.Checkpoint(func(x ...tensor.Tensor) tensor.Tensor {
				return tensor.Linear(tensor.LinearAct(x[0], x[1], x[2], tensor.ActGELUTanh), x[3], x[4])
			}, p...)
		}},
	}
}

func normGraphs(cols int) []graph {
	shapes := [][]int{{5, 3}, {cols, 3}, {cols}, {cols}, {cols}}
	rows := func(p []tensor.Tensor) tensor.Tensor { return tensor.Linear(p[0], p[1], p[2]) }
	norm := func(p []tensor.Tensor, x tensor.Tensor) tensor.Tensor { return ops.LayerNorm(x, p[3], p[4], 1e-3) }
	plain := func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor { return norm(p, rows(p)) }
	return []graph{
		{name: "norm", shapes: shapes, f: plain},
		{name: "norm without bias", shapes: shapes[:4], f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return ops.LayerNorm(rows(p), p[3], tensor.Tensor{}, 1e-3)
		}},
		{name: "norm without weight", shapes: shapes[:4], f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return ops.LayerNorm(rows(p), tensor.Tensor{}, p[3], 1e-3)
		}},
		{name: "norm with one vector", shapes: shapes[:4], f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return ops.LayerNorm(rows(p), p[3], p[3], 1e-3)
		}},
		{name: "rms", shapes: shapes[:4], f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			x := rows(p)
			return x.Add(ops.RMSNorm(x, p[3], 1e-3).Affine(0.5, 0))
		}},
		{name: "norm, frozen weight", shapes: shapes, f: plain, frozen: 1 << 3},
		{name: "norm, frozen input", shapes: shapes, f: plain, frozen: 7},
		{name: "norm, two passes", shapes: shapes, f: plain, passes: 2},
		{name: "residual", shapes: shapes, f: func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			x := rows(p)
			x = x.Add(norm(p, x).Affine(0.5, 0))
			return x.Add(norm(p, x).Square())
		}},
	}
}

// lossGraphs are losses over so many classes. Backward starts with their gradients, scales them, or reaches them later.
func lossGraphs(classes int) []graph {
	ids, ignored := make([]int64, 6), int64(1)
	for i := range ids {
		ids[i] = int64(i*i+1) % int64(classes)
	}
	labels := tensor.FromSlice(ids, 6)
	with := func(o ops.CrossEntropyOptions) func(*tensor.Tape, []tensor.Tensor) tensor.Tensor {
		return func(_ *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return ops.CrossEntropy(tensor.Linear(p[0], p[1], tensor.Tensor{}), labels, o)
		}
	}
	plain := with(ops.CrossEntropyOptions{})
	graphs := []graph{
		{name: "loss", f: plain},
		{name: "scaled loss", f: plain, scale: 8},
		{name: "loss, two passes", f: plain, passes: 2},
		{name: "smooth loss", f: with(ops.CrossEntropyOptions{Smoothing: 0.2})},
		{name: "loss with a count", f: with(ops.CrossEntropyOptions{Ignore: &ignored, Count: 4})},
		{name: "loss of some labels", f: with(ops.CrossEntropyOptions{Ignore: &ignored})},
		{name: "half of a loss", f: func(tape *tensor.Tape, p []tensor.Tensor) tensor.Tensor { return plain(tape, p).Affine(0.5, 0) }},
		{name: "two losses", f: func(tape *tensor.Tape, p []tensor.Tensor) tensor.Tensor { return plain(tape, p).Add(plain(tape, p)) }},
		{name: "loss in a checkpoint", f: func(tape *tensor.Tape, p []tensor.Tensor) tensor.Tensor {
			return tape.Checkpoint(func(x ...tensor.Tensor) tensor.Tensor { return plain(tape, x) }, p...)
		}},
	}
	for i := range graphs {
		graphs[i].name += fmt.Sprint(" of ", classes)
		graphs[i].shapes, graphs[i].loss = [][]int{{6, 5}, {classes, 5}}, true
	}
	return graphs
}

// fusedGraphs have shapes that fit cuBLASLt's epilogues and 16-byte vectors, shapes that do not, and rows that are too long for one block.
func fusedGraphs() []graph {
	graphs := append(mlpGraphs(8, 16, 24), mlpGraphs(5, 13, 3)...)
	graphs = append(append(graphs, normGraphs(16)...), normGraphs(7)...)
	graphs = append(append(graphs, lossGraphs(7)...), lossGraphs(2064)...)
	for _, cols := range []int{272, 521} { // of several warps, and too long for a block
		for _, g := range normGraphs(cols) {
			if g.name == "residual" || g.name == "rms" {
				graphs = append(graphs, g)
			}
		}
	}
	return graphs
}

// Gradients that a device computes with fewer launches equal those of the CPU.
func TestFusedGradients(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		host := cpu.New(1)
		defer host.Close()
		tol := map[tensor.DType]float64{tensor.Float32: 1e-5, tensor.Float64: 1e-12, tensor.BFloat16: 0.03, tensor.Float16: 0.004}
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, g := range fusedGraphs() {
				if !turn(t, d/2, i, 2) { // of the two types
					continue
				}
				want, got := g.values(host, d), g.values(dev, d)
				require.Len(t, got, len(want))
				for i := range want {
					most := 0.0
					for _, v := range want[i] {
						most = max(most, math.Abs(v))
					}
					require.InDeltaSlice(t, want[i], got[i], tol[d]*most, fmt.Sprintf("%s: tensor %d", g.name, i))
				}
			}
		})
	})
}

// Without gradients, the input of an activation is not kept.
func TestFusedInference(t *testing.T) {
	dev, host := device(t), cpu.New(1)
	defer host.Close()
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		for _, out := range []int{16, 13} {
			for _, act := range []tensor.Activation{tensor.ActReLU, tensor.ActGELU, tensor.ActGELUTanh, tensor.ActSiLU} {
				run := func(dev tensor.Device) []float64 {
					var x [3]tensor.Tensor
					for i, s := range [][]int{{9, 24}, {out, 24}, {out}} {
						x[i] = tensor.New(dev, d, s...)
						tensor.UniformInit(-0.5, 0.5).Fill(x[i], uint64(i), 0)
					}
					return tensor.Floats(tensor.LinearAct(tensor.NewTape(dev, tensor.NoGrad()).Input(x[0]), x[1], x[2], act))
				}
				require.InDeltaSlice(t, run(host), run(dev), map[bool]float64{true: 0.02, false: 1e-6}[d.IsHalf()], fmt.Sprint(act, out))
			}
		}
	})
}
