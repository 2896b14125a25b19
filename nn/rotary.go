package nn

import (
	"math"
	"sync"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Rotary turns the features of queries and keys by angles that grow with the position (RoPE, Su et al., "RoFormer", 2021; Llama's
// and GPT-NeoX' positions). It has no parameters.
type Rotary struct {
	HeadDim     int     // even
	Positions   int     // longest sequence, a cache's tokens included
	Base        float64 // pair i of a head turns by Base^(−2i/HeadDim) a position: 10,000 in the paper and Llama 2
	Interleaved bool    // features 2i and 2i+1 are a pair, as in the paper; otherwise i and i+HeadDim/2, as in Hugging Face's files
	Scaling     RotaryScaling

	mu     sync.Mutex
	tables map[tableKey]T
}

// tableKey says where a table lies; dev is nil for all that is in the host's memory.
type tableKey struct {
	dev   tensor.Device
	dtype tensor.DType
}

// NewRotary returns a layer for heads of headDim features, an even number, in sequences of up to so many positions, with Base
// 10,000.
func NewRotary(headDim, positions int) *Rotary {
	r := &Rotary{HeadDim: headDim, Positions: positions, Base: 10_000}
	r.check()
	return r
}

func (r *Rotary) check() {
	if r.HeadDim <= 0 || r.HeadDim%2 != 0 || r.Positions <= 0 || !(r.Base > 0) {
		fail("Rotary", "heads of %d features, %d positions, base %v: needs an even number of features, and positions and a base above 0",
			r.HeadDim, r.Positions, r.Base)
	}
	if err := r.Scaling.Check(); err != nil {
		fail("Rotary", "%w", err)
	}
}

// Forward returns queries or keys x [batch, time, heads·HeadDim], turned. The first ones of each sequence are at position first,
// which is the number of tokens that a cache holds, else 0. Where the step has a part of each sequence (tensor.Rows.Seq), that of
// each position in it comes on top. It panics where a position is not below Positions.
func (r *Rotary) Forward(x T, first int) T {
	return ops.Rotary(x, r.table(tapeOf(x).Device(), x.DType()), ops.RotaryOptions{First: first, Interleaved: r.Interleaved})
}

// table returns cosines and sines for x of a type, where its device reaches them. They are computed once, in float64.
func (r *Rotary) table(dev tensor.Device, dtype tensor.DType) T {
	if dtype != tensor.Float64 {
		dtype = tensor.Float32
	}
	at := tableKey{dev, dtype}
	if dev.Host() {
		at.dev = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	table, there := r.tables[at]
	if !there {
		r.check()
		if dtype == tensor.Float64 {
			table = tensor.ToDevice(dev, newTable[float64](r))
		} else {
			table = tensor.ToDevice(dev, newTable[float32](r))
		}
		if r.tables == nil {
			r.tables = map[tableKey]T{}
		}
		r.tables[at] = table
	}
	return table
}

func newTable[F float32 | float64](r *Rotary) T {
	v, half, amplitude := make([]F, r.Positions*r.HeadDim), r.HeadDim/2, r.Scaling.amplitude()
	for i, angle := range r.angles() {
		for p := range r.Positions {
			sin, cos := math.Sincos(float64(p) * angle)
			v[p*r.HeadDim+i], v[p*r.HeadDim+half+i] = F(amplitude*cos), F(amplitude*sin)
		}
	}
	return tensor.FromSlice(v, r.Positions, r.HeadDim)
}

// angles returns how far each pair turns a position.
func (r *Rotary) angles() []float64 {
	a := make([]float64, r.HeadDim/2)
	for i := range a {
		a[i] = r.Scaling.angle(math.Pow(r.Base, -float64(2*i)/float64(r.HeadDim)), i, r)
	}
	return a
}
