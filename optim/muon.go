package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// MuonConfig configures NewMuon. The zero value of a field is its default.
type MuonConfig struct {
	// Matrices are what Muon updates: nn.Matrices has the weights of all linear layers but the head. AdamW updates all other parameters.
	Matrices    []nn.Matrix
	LR          float64  // of the matrices; 0: 1e-3
	Momentum    float64  // 0: 0.95
	NoNesterov  bool     // the update is the momentum alone
	WeightDecay float64  // of the matrices; 0: none (PyTorch's Muon has 0.1)
	AdjustLR    AdjustLR // how LR depends on the shape of a matrix
	// Ranks are all ranks that have parts or copies of the same matrices: for each matrix, one of them does the work. They have the same
	// matrices. nil: each rank has all matrices whole, and does all the work.
	Ranks TensorNorm
	// AdamW is for the other parameters. Its Schedule, Groups, Clip, Norm, Scaler and Nonfinite are for the matrices, too.
	AdamW AdamWConfig
}

// AdjustLR says how the learning rate of Muon depends on the shape of a matrix.
type AdjustLR int

// The adjustments are those of torch.optim.Muon's adjust_lr_fn.
const (
	Original      AdjustLR = iota // √max(1, rows/columns) (Jordan 2024)
	MatchRMSAdamW                 // 0.2·√max(rows, columns): LR and WeightDecay can be those of AdamW (Liu et al. 2025)
)

func (a AdjustLR) ratio(rows, cols int) float64 {
	if a == MatchRMSAdamW {
		return 0.2 * math.Sqrt(float64(max(rows, cols)))
	}
	return math.Sqrt(max(1, float64(rows)/float64(cols)))
}

// muon is the rule of matrices.
type muon struct {
	lr, momentum, decay float64
	nesterov            bool
	adjust              AdjustLR
}

func (r *muon) op() tensor.Op   { return tensor.OpSGD }
func (r *muon) width() int      { return 3 }
func (r *muon) state() []string { return []string{"momentum_buffer"} }

// set is for the momentum, which is all that an update of elements has: SGD of a zero, with the rate −1, is its gradient with momentum.
func (r *muon) set(a *tensor.Args, h hyper) {
	a.I[0], a.I[1] = flag(r.nesterov), flag(h.step == 1)
	a.F = [8]float64{-1, r.momentum}
}

// matrices has what an Optimizer needs for the matrices that Muon updates.
type matrices struct {
	rule    *muon
	parts   map[*tensor.Param][]int // widths of the matrices in a parameter
	states  []*paramState
	ranks   TensorNorm
	counted []bool // which of states this rank gives to the sum over ranks; nil: not known yet
	tape    *tensor.Tape
	update  tensor.Tensor // memory for the update of a parameter
	whole   tensor.Tensor // memory for matrices of each of ranks
	one     tensor.Tensor // 1, or NaN if the step is not to be done
}

// NewMuon returns Muon (Jordan et al. 2024) for matrices, torch.optim.Muon, and AdamW for all other parameters. The momentum of a matrix is
// made nearly orthogonal by five steps of Newton and Schulz's iteration, in the type of the moments. Embeddings and the head are no such
// matrices: their rows belong to tokens. A fused weight has several matrices, and a shard is none: with Ranks, the owner of a matrix puts
// its shards together.
func NewMuon(params nn.Params, c MuonConfig) *Optimizer {
	m := &matrices{ranks: c.Ranks, parts: map[*tensor.Param][]int{}}
	if c.Momentum == 0 {
		c.Momentum = 0.95
	}
	if c.LR == 0 {
		c.LR = 1e-3
	}
	notNegative("LR", c.LR)
	notNegative("WeightDecay", c.WeightDecay)
	if !(c.Momentum > 0 && c.Momentum < 1) {
		fail("Momentum %v is not in (0,1)", c.Momentum)
	}
	m.rule = &muon{lr: c.LR, momentum: c.Momentum, decay: c.WeightDecay, nesterov: !c.NoNesterov, adjust: c.AdjustLR}
	for _, x := range c.Matrices {
		if !slices.Contains(params, x.W) {
			fail("matrix %v is not one of the parameters", x.W)
		}
		m.parts[x.W] = partsOf(x)
	}
	if len(m.parts) == 0 {
		fail("MuonConfig.Matrices is empty: nn.Matrices(model, head) has the weights of linear layers; for AdamW alone, call NewAdamW")
	}
	return newAdam(params, AdamConfig(c.AdamW), true, m)
}

// partsOf returns the numbers of rows of the matrices in x.W.
func partsOf(x nn.Matrix) []int {
	dims := x.W.Global()
	if len(dims) != 2 || dims[0]*dims[1] == 0 {
		fail("Muon is for matrices, and %s has shape %v", x.W.Name(), dims)
	}
	parts := x.Parts
	if parts == nil {
		fused := len(x.W.Stored()) > 1
		for _, d := range x.W.Placement().Divisions() {
			fused = fused || len(d.Parts) > 1
		}
		if fused {
			fail("%s has several matrices on top of each other: give their numbers of rows (nn.Matrix.Parts)", x.W.Name())
		}
		parts = dims[:1]
	}
	rows := 0
	for _, n := range parts {
		if rows += n; n < 1 {
			fail("the parts %v of %s must have rows", parts, x.W.Name())
		}
	}
	if rows != dims[0] {
		fail("the parts %v of %s have %d rows, not %d", parts, x.W.Name(), rows, dims[0])
	}
	return parts
}

// begin makes the memory of the matrices. It panics if one is divided and there are no Ranks.
func (m *matrices) begin(o *Optimizer) {
	most := 0
	for i := range o.states {
		s := &o.states[i]
		if s.rule != rule(m.rule) {
			continue
		}
		if p := s.p; m.ranks == nil && p.Local.Len() != p.GlobalLen() {
			fail("this rank holds %d of the %d elements of %s, and a part of a matrix cannot be made orthogonal: give MuonConfig.Ranks the group "+
				"of all ranks that hold parts (Ranks: r.World)", p.Local.Len(), p.GlobalLen(), p.Name())
		}
		m.states = append(m.states, s)
		most = max(most, s.p.Local.Len())
		if s.dtype != m.states[0].dtype {
			fail("matrices of %v and %v: Muon needs one type", m.states[0].dtype, s.dtype)
		}
	}
	if len(m.states) == 0 {
		return
	}
	dev, d := o.exec.Device(), m.states[0].dtype
	m.tape = tensor.NewTape(dev, tensor.NoGrad())
	m.update = tensor.NewFor(tensor.OptimizerState, dev, d, most)
	m.one = tensor.NewFor(tensor.OptimizerState, dev, tensor.Float64, 1)
	if m.ranks == nil {
		return
	}
	size := 0
	for some := range slices.Chunk(m.states, m.ranks.Size()) {
		n := 0
		for _, s := range some {
			n += s.p.GlobalLen()
		}
		size = max(size, n)
	}
	m.whole = tensor.NewFor(tensor.OptimizerState, dev, d, size)
}

// step updates the matrices. It is collective over Ranks.
func (m *matrices) step(o *Optimizer) error {
	if m == nil || len(m.states) == 0 {
		return nil
	}
	if o.exec.Recording() != nil {
		return fmt.Errorf("optim: tensor.Capture cannot record a step of Muon: call Step outside it")
	}
	a := o.exec.Args(tensor.OpAffine, tensor.Float64).Out(m.one).In(o.factor.Range(0, 1))
	a.F[1] = 1
	o.exec.Launch()
	if m.ranks != nil {
		return m.stepOnRanks(o)
	}
	for _, s := range m.states {
		if s.ready() {
			u := m.momentum(o, s)
			m.orthogonalize(u, s)
			m.apply(o, s, u)
		}
	}
	return nil
}

// momentum updates the momentum of this rank's part of a parameter, and returns the direction of its update.
func (m *matrices) momentum(o *Optimizer, s *paramState) tensor.Tensor {
	u := m.update.Range(0, s.p.Local.Len())
	o.exec.Fill(u, 0)
	if u.Len() == 0 || !s.ready() {
		return u
	}
	g := o.grad(s)
	a := o.exec.Args(tensor.OpSGD, s.dtype)
	a.List = append(a.List, u.Ptr(), g.Ptr(), s.moments[0].Ptr())
	a.ListLen = append(a.ListLen, u.Len())
	a.In(o.factor)
	m.rule.set(a, hyper{step: s.steps + 1})
	o.exec.Launch()
	return u
}

// apply changes this rank's part of a parameter by the orthogonal update u.
func (m *matrices) apply(o *Optimizer, s *paramState, u tensor.Tensor) {
	if u.Len() == 0 || !s.ready() {
		return
	}
	a := o.exec.Args(tensor.OpSGD, s.dtype)
	a.List = append(a.List, s.value().Ptr(), u.Ptr(), nil)
	a.ListLen = append(a.ListLen, u.Len())
	a.In(m.one)
	a.F = [8]float64{o.rate * s.lrScale, 0, 0, s.decay}
	o.exec.Launch()
	o.writeBack(s)
}

// orthogonalize replaces each matrix in u, the whole of a parameter, by one with nearly the same singular vectors and with singular values
// near 1, times the adjustment of the rate.
func (m *matrices) orthogonalize(u tensor.Tensor, s *paramState) {
	cols, at := s.p.Global()[1], 0
	for _, rows := range m.parts[s.p] {
		x := u.Range(at*cols, (at+rows)*cols)
		y := m.tape.Scope(newtonSchulz, m.tape.Input(x.View(rows, cols)))
		tensor.Copy(x, y.Scale(m.rule.adjust.ratio(rows, cols)).Reshape(rows*cols))
		m.tape.Reset()
		at += rows
	}
}
