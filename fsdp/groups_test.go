package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// Groups are chosen by the shapes of one rank: by Local.NDim, every matrix would be a vector, and decay as one.
func TestGroupsSeeWholeShapes(t *testing.T) {
	for _, stage := range []int{1, 3} {
		j := cutJob{training: training{Mesh: "dp=1,fsdp=2,tp=2"}, model: newMixer, cfg: fsdp.Config{Stage: stage}}
		j.look = func(s *fsdp.Sharding, params nn.Params) {
			parts := 0
			for _, p := range params {
				local, value, dims, n := p.Local.Shape().Dims, p.Value.Shape().Dims, p.Dims(), p.Len()
				optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1, Groups: []optim.Group{{Match: func(q *tensor.Param) bool {
					require.Same(t, p, q)
					for _, dims := range [][]int{q.Local.Shape().Dims, q.Value.Shape().Dims, q.Dims()} {
						require.Equal(t, q.Global(), dims, "%s", q.Name())
					}
					require.Equal(t, q.GlobalLen(), q.Len())
					return true
				}}}})
				require.Equal(t, local, p.Local.Shape().Dims)
				require.Equal(t, value, p.Value.Shape().Dims)
				require.Equal(t, dims, p.Dims())
				require.Equal(t, n, p.Len())
				if p.Local.Len() < p.GlobalLen() {
					parts++
				}
			}
			require.Greater(t, parts, 2)
		}
		j.run(t)
	}
}
