package nn

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// Recurrent is what LSTM and GRU have in common: layers that go through a sequence position by position. Files have PyTorch's names for
// the weights: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, and with _reverse those of the other direction.
type Recurrent struct {
	Cells []*Cell // of each layer, and in it of each direction

	hidden, directions int
}

// Cell has the weights of a layer of an LSTM or a GRU, in one direction. The gates are on top of each other: input, forget, cell and
// output of an LSTM; reset, update and new of a GRU.
type Cell struct {
	WIH *tensor.Param `nn:"weight_ih"` // [gates·hidden, in]
	WHH *tensor.Param `nn:"weight_hh"` // [gates·hidden, hidden]
	BIH *tensor.Param `nn:"bias_ih"`   // [gates·hidden]
	BHH *tensor.Param `nn:"bias_hh"`   // [gates·hidden]
}

// RecurrentOptions are the options of an LSTM or a GRU.
type RecurrentOptions struct {
	Layers        int  // 0: 1
	Bidirectional bool // half of the cells go from the last position to the first; outputs of both are side by side
}

// newRecurrent makes cells with PyTorch's initialization: all uniform in ±1/√hidden.
func newRecurrent(op string, in, hidden, gates int, o RecurrentOptions) Recurrent {
	if in < 1 || hidden < 1 || o.Layers < 0 {
		fail(op, "%d features in, %d hidden, %d layers", in, hidden, o.Layers)
	}
	r, init := Recurrent{hidden: hidden, directions: 1}, tensor.KaimingUniform(hidden)
	if o.Bidirectional {
		r.directions = 2
	}
	for layer := range max(o.Layers, 1) {
		if layer == 1 {
			in = r.directions * hidden
		}
		for range r.directions {
			r.Cells = append(r.Cells, &Cell{tensor.NewParam(init, gates*hidden, in), tensor.NewParam(init, gates*hidden, hidden),
				tensor.NewParam(init, gates*hidden), tensor.NewParam(init, gates*hidden)})
		}
	}
	return r
}

// Stored gives the parameters PyTorch's names.
func (r *Recurrent) Stored(name string, dims []int) ([]tensor.Stored, bool) {
	var cell int
	if _, err := fmt.Sscanf(name, "cells.%d.", &cell); err != nil {
		return nil, false
	}
	name = fmt.Sprintf("%s_l%d", name[strings.LastIndex(name, ".")+1:], cell/r.directions)
	if cell%r.directions == 1 {
		name += "_reverse"
	}
	return []tensor.Stored{{Name: name, Rows: dims[0], Total: dims[0]}}, false
}

// state is that of a cell: its output [batch, hidden], and of an LSTM the memory [batch, hidden].
type state [2]T

// run goes through x [batch, time, in]. states are [cells, batch, hidden] each, or none for zeros; so are those that it returns.
func (r *Recurrent) run(op string, x T, states state, step func(u, w, b T, s state) state) (T, state) {
	if x.NDim() != 3 || x.Dim(1) < 1 || x.Dim(2) != r.Cells[0].WIH.Dims()[1] {
		fail(op, "x is %v, not [batch, time, %d]", x.Shape(), r.Cells[0].WIH.Dims()[1])
	}
	t := tapeOf(x)
	if s := t.Spans(x); s != (tensor.Spans{}) {
		fail(op, "x is %v, a part of each sequence, and a position needs all before it; gather them: "+
			"x = tape.Apply(&autograd.AllGather{Group: g, Dim: 1}, x)", x.Shape())
	}
	rows := x
	var ends [2][]T
	for first := 0; first < len(r.Cells); first += r.directions {
		outputs, turned := make([]T, r.directions), x.Permute(1, 0, 2)
		for d := range outputs {
			var end state
			outputs[d], end = r.Cells[first+d].run(turned, r.begin(op, rows, states, first+d), d == 1, step)
			for k, e := range end {
				if !e.IsZero() {
					ends[k] = append(ends[k], e)
				}
			}
		}
		if x = outputs[0]; len(outputs) > 1 {
			x = tensor.Concat(2, outputs...)
		}
	}
	for k, list := range ends {
		if states[k] = (T{}); list != nil {
			states[k] = beside(list).Permute(1, 0, 2)
		}
	}
	return x, states
}

// begin returns the state of a cell in front of the first position.
func (r *Recurrent) begin(op string, x T, states state, cell int) (s state) {
	for k, all := range states {
		if all.IsZero() { // zeros of these rows, so that the weights for states have gradients with one position, too
			s[k] = tensor.RowsLike(tapeOf(x).Zeros(x.DType(), x.Dim(0), r.hidden), x)
			continue
		}
		if all.NDim() != 3 || all.Dim(0) != len(r.Cells) || all.Dim(1) != x.Dim(0) || all.Dim(2) != r.hidden {
			fail(op, "the state is %v, not [%d, %d, %d]: cells, batch, hidden", all.Shape(), len(r.Cells), x.Dim(0), r.hidden)
		}
		s[k] = all.Slice(0, cell, cell+1).Reshape(-1, r.hidden)
	}
	return s
}

// run returns the outputs [batch, time, hidden] for x [time, batch, in], and the last state. The products with x are one product.
func (c *Cell) run(x T, s state, reverse bool, step func(u, w, b T, s state) state) (T, state) {
	t, n := tapeOf(x), x.Dim(0)
	w, b, outputs := t.Use(c.WHH), t.Use(c.BHH), make([]T, n)
	inputs := tensor.Linear(x, t.Use(c.WIH), t.Use(c.BIH))
	for i := range n {
		if reverse {
			i = n - 1 - i
		}
		s = step(inputs.Slice(0, i, i+1).Reshape(-1, inputs.Dim(2)), w, b, s)
		outputs[i] = s[0]
	}
	return beside(outputs), s
}

// beside returns [batch, n, hidden] of n times [batch, hidden]. Rows are never behind a dimension of 1, which may stand for one group.
func beside(list []T) T { return tensor.Concat(1, list...).Reshape(-1, len(list), list[0].Dim(1)) }

// gate returns columns of the k-th gate.
func gate(x T, k, hidden int) T { return x.Slice(1, k*hidden, (k+1)*hidden) }

// LSTM is a long short-term memory (Hochreiter and Schmidhuber 1997), torch.nn.LSTM with batch_first.
type LSTM struct{ Recurrent }

// NewLSTM returns layers from in to hidden features.
func NewLSTM(in, hidden int, o RecurrentOptions) *LSTM {
	return &LSTM{newRecurrent("NewLSTM", in, hidden, 4, o)}
}

// Forward returns [batch, time, hidden] for x [batch, time, in]; twice as many features in both directions.
func (l *LSTM) Forward(x T) T {
	y, _, _ := l.ForwardFrom(x, T{}, T{})
	return y
}

// ForwardFrom is Forward from a state: outputs h and memories c, [cells, batch, hidden], each none for zeros. It also returns the state
// behind the last position.
func (l *LSTM) ForwardFrom(x, h, c T) (y, hEnd, cEnd T) {
	y, s := l.run("LSTM", x, state{h, c}, lstmStep)
	return y, s[0], s[1]
}

func lstmStep(u, w, b T, s state) state {
	n := s[0].Dim(1)
	u = tensor.LinearAdd(s[0], w, b, u)
	c := gate(u, 1, n).Sigmoid().Mul(s[1]).Add(gate(u, 0, n).Sigmoid().Mul(gate(u, 2, n).Tanh()))
	return state{gate(u, 3, n).Sigmoid().Mul(c.Tanh()), c}
}

// GRU is a gated recurrent unit (Cho et al. 2014), torch.nn.GRU with batch_first.
type GRU struct{ Recurrent }

// NewGRU returns layers from in to hidden features.
func NewGRU(in, hidden int, o RecurrentOptions) *GRU {
	return &GRU{newRecurrent("NewGRU", in, hidden, 3, o)}
}

// Forward returns [batch, time, hidden] for x [batch, time, in]; twice as many features in both directions.
func (g *GRU) Forward(x T) T {
	y, _ := g.ForwardFrom(x, T{})
	return y
}

// ForwardFrom is Forward from a state h [cells, batch, hidden], none for zeros. It also returns the state behind the last position.
func (g *GRU) ForwardFrom(x, h T) (y, end T) {
	y, s := g.run("GRU", x, state{h}, gruStep)
	return y, s[0]
}

func gruStep(u, w, b T, s state) state {
	n := s[0].Dim(1)
	v := tensor.Linear(s[0], w, b)
	reset, update := gate(u, 0, n).Add(gate(v, 0, n)).Sigmoid(), gate(u, 1, n).Add(gate(v, 1, n)).Sigmoid()
	fresh := gate(u, 2, n).Add(reset.Mul(gate(v, 2, n))).Tanh()
	return state{fresh.Add(update.Mul(s[0].Sub(fresh)))}
}
