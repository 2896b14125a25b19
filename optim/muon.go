package optim

import (
	"cmp"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim/internal/orthogonal"
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
	Half        bool     // the iteration is in bfloat16, as torch.optim.Muon's: faster where processors or GPUs have units for it
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
	nesterov, half      bool
	adjust              AdjustLR
}

func (r *muon) op() tensor.Op   { return tensor.OpSGD }
func (r *muon) state() []string { return []string{"momentum_buffer"} }

// set is for the momentum, which is all that an update of elements has: SGD of a zero, with the rate −1, is its gradient with momentum.
func (r *muon) set(a *tensor.Args, _, _ float64, step int) {
	a.I[0], a.I[1] = flag(r.nesterov), flag(step == 1)
	a.F = [8]float64{-1, r.momentum}
}

// matrices has what an Optimizer needs for the matrices that Muon updates.
type matrices struct {
	shared
	rule  *muon
	parts map[*tensor.Param][]int // widths of the matrices in a parameter
}

// NewMuon returns Muon (Jordan et al. 2024) for matrices, torch.optim.Muon, and AdamW for all other parameters. The momentum of a matrix is
// made nearly orthogonal by five steps of Newton and Schulz's iteration, in the type of the moments, or with Half in bfloat16. Embeddings
// and the head are no such matrices: their rows belong to tokens. A fused weight has several matrices, and a shard is none: with Ranks, the
// owner of a matrix puts its shards together.
func NewMuon(params nn.Params, c MuonConfig) *Optimizer {
	m := &matrices{parts: map[*tensor.Param][]int{},
		shared: shared{name: "Muon", parts: "matrices", why: "a part of a matrix cannot be made orthogonal", ranks: c.Ranks}}
	c.Momentum, c.LR = cmp.Or(c.Momentum, 0.95), cmp.Or(c.LR, 1e-3)
	notNegative("LR", c.LR)
	notNegative("WeightDecay", c.WeightDecay)
	if !(c.Momentum > 0 && c.Momentum < 1) {
		fail("Momentum %v is not in (0,1)", c.Momentum)
	}
	m.rule = &muon{lr: c.LR, momentum: c.Momentum, decay: c.WeightDecay, nesterov: !c.NoNesterov, half: c.Half, adjust: c.AdjustLR}
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

// choose gives a matrix its rule.
func (m *matrices) choose(o *Optimizer, s *paramState) {
	if m.parts[s.P] != nil {
		s.rule, s.lrScale, s.decay = m.rule, m.rule.lr/o.conf.LR, m.rule.decay
	}
}

// begin makes the memory of the matrices.
func (m *matrices) begin(o *Optimizer) {
	if m.ranks == nil {
		return
	}
	size := 0
	for some := range slices.Chunk(m.states, m.ranks.Size()) {
		n := 0
		for _, s := range some {
			n += s.P.GlobalLen()
		}
		size = max(size, n)
	}
	m.whole = newState(o.exec.Device(), m.states[0].DType, size)
}

// step updates the matrices. It is collective over Ranks.
func (m *matrices) step(o *Optimizer) error {
	if err := m.start(o); err != nil {
		return err
	}
	if m.ranks != nil {
		return m.stepOnRanks(o)
	}
	for _, s := range m.states {
		if s.ready() {
			u := m.direction(o, s, s.moments[0].Ptr())
			m.orthogonalize(u, s)
			m.apply(o, s, u)
		}
	}
	return nil
}

// orthogonalize replaces each matrix in u, the whole of a parameter, by one with nearly the same singular vectors and with singular values
// near 1, times the adjustment of the rate.
func (m *matrices) orthogonalize(u tensor.Tensor, s *paramState) {
	cols, at := s.P.Global()[1], 0
	for _, rows := range m.parts[s.P] {
		orthogonal.Replace(m.tape, u.Range(at*cols, (at+rows)*cols), rows, cols, m.rule.adjust.ratio(rows, cols), m.rule.half)
		at += rows
	}
}
