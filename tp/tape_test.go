package tp_test

import (
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// mlps are two blocks of a norm and an MLP, with residual connections.
type mlps struct {
	Norm     [2]nn.Layer
	Up, Down [2]*nn.Linear
	split    tensor.Function
}

func newMLPs(g *dist.Group, chunks int) (*mlps, error) {
	m := &mlps{}
	for i := range 2 {
		m.Norm[i], m.Up[i], m.Down[i] = nn.NewLayerNorm(6), nn.NewLinear(6, 8), nn.NewLinear(8, 6)
	}
	return m, tp.Parallelize(m, tp.Config{Group: g, Sequence: g.Size() > 1, Chunks: chunks}, func(p *tp.Parallel) {
		for i := range 2 {
			m.Norm[i] = p.Columns(m.Norm[i], m.Up[i])
			p.Row(m.Down[i])
		}
		m.split = p.Tokens()
	})
}

// loss returns the sum of squares behind both blocks, the first of which around calls; see, if not nil, gets what columns read.
func (m *mlps) loss(x nn.T, see func(x nn.T), around func(t *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T) nn.T {
	if m.split != nil {
		x = x.Tape().Apply(m.split, x)
	}
	block := func(i int) func(in ...nn.T) nn.T {
		return func(in ...nn.T) nn.T {
			y := m.Norm[i].Forward(in[0])
			see(y)
			return m.Down[i].ForwardAdd(m.Up[i].Forward(y).GELU(), in[0])
		}
	}
	return block(1)(around(x.Tape(), block(0), x)).Square().Sum()
}

// Tokens that are gathered again give the gradients of one rank whatever else the tape does: scopes, checkpoints, weight gradients that are
// put off, tensors that are kept, an evaluation of fewer tokens before each step.
func TestTapeBesideSequences(t *testing.T) {
	want := besideTape("tp=1", 0, "").Run(t)
	for _, mode := range []string{"", "scope", "checkpoint", "keep", "deferred", "evaluation"} {
		for _, chunks := range []int{0, 3} {
			disttest.RequireEqual(t, want, besideTape("tp=2", chunks, mode).Run(t), 1e-10)
		}
	}
}

// besideTape trains mlps with five tokens.
func besideTape(mesh string, chunks int, mode string) disttest.Training {
	c := disttest.Training{Mesh: mesh, Name: fmt.Sprintf("%q, %d pieces", mode, chunks)}
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		m := disttest.Must(newMLPs(mesh.Group("tp"), chunks))
		eval, see := tensor.NewTape(r.Device, tensor.NoGrad()), func(nn.T) {}
		around := func(_ *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T { return block(x) }
		switch mode {
		case "scope":
			around = func(t *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T { return t.Scope(block, x) }
		case "checkpoint":
			around = func(t *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T { return t.Checkpoint(block, x) }
		case "keep":
			see = func(x nn.T) { x.Tape().Keep(x) }
		}
		step := func(s *disttest.State) ([]float64, error) {
			defer s.Tape.Reset()
			if mode == "evaluation" {
				m.loss(eval.Input(tensor.FromSlice(squares(3*6), 3, 6)), see, around)
				eval.Reset()
			}
			l := m.loss(s.Tape.Input(tensor.FromSlice(squares(5*6), 5, 6)), see, around)
			loss := l.Item()
			if mode == "deferred" {
				s.Tape.Backward(l, tensor.DeferWeights())
				s.Tape.RunDeferred()
			} else {
				s.Tape.Backward(l)
			}
			return []float64{loss}, s.Optimizer.Step()
		}
		return disttest.Attached{Params: nn.Init(m, r.Device, tensor.Float64, 1), Norm: r.World, Step: step}, nil
	}
	return c
}

func squares(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i*i%7) - 3
	}
	return v
}
