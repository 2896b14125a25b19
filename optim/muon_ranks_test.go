package optim_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// SumTensor makes numbered a TensorNorm of float64.
func (n numbered) SumTensor(x tensor.Tensor) error { return n.SumFloats(tensor.Data[float64](x)) }

// dividing divides a parameter for a rank of so many.
type dividing func(p *tensor.Param, rank, ranks int)

func copies(*tensor.Param, int, int) {}

func alongDim(dim int) dividing {
	return func(p *tensor.Param, rank, ranks int) {
		d := layout.Division{Dim: dim}
		if dim == 0 && p.Name() == "p0" {
			d.Parts = []int{4, 2}
		}
		if len(p.Dims()) > dim {
			p.Place(layout.Axis{Axes: 1, Rank: rank, Ranks: ranks}, d)
		}
	}
}

// shards is what fsdp does, with parts that are no rows.
func shards(p *tensor.Param, rank, ranks int) {
	lo, hi := p.Len()*rank*rank/(ranks*ranks), p.Len()*(rank+1)*(rank+1)/(ranks*ranks)
	p.Shard(lo, hi)
}

// both divides by columns over pairs of ranks, and shards each part over the ranks that have it.
func both(p *tensor.Param, rank, ranks int) {
	alongDim(1)(p, rank%2, 2)
	shards(p, rank/2, ranks/2)
}

// muonOnRank returns a rank's parts of gen_muon.py's parameters, and its optimizer.
func muonOnRank(group *ranks, rank int, divide dividing) (nn.Params, *optim.Optimizer) {
	dev := cpu.New(1)
	var ps nn.Params
	var matrices []nn.Matrix
	for i, dims := range muonShapes {
		p := tensor.NewParam(tensor.Constant(0), dims...)
		p.SetName("p" + strconv.Itoa(i))
		if divide != nil {
			divide(p, rank, group.n)
		}
		p.Make(dev, tensor.Float64, 0)
		if p.Placement().Sharded() {
			p.Local = tensor.New(dev, tensor.Float64, p.Placement().Len())
		}
		copyPart(p, p.Local, value(i, p.GlobalLen()))
		p.Grad = tensor.New(dev, tensor.Float64, p.Local.Len())
		if ps = append(ps, p); len(dims) == 2 {
			matrices = append(matrices, nn.Matrix{W: p})
		}
	}
	matrices[0].Parts = []int{4, 2}
	c := optim.MuonConfig{Matrices: matrices, LR: 0.02, WeightDecay: 0.1, AdamW: optim.AdamWConfig{LR: 0.03}}
	if group != nil {
		c.Ranks = numbered{group, rank}
	}
	return ps, optim.NewMuon(ps, c)
}

// copyPart writes this rank's part of a whole parameter.
func copyPart(p *tensor.Param, to tensor.Tensor, whole []float64) {
	lo, hi := p.Placement().Range()
	out, at := tensor.Data[float64](to.ToLocal()), 0
	for global, n := range p.Runs(lo, hi) {
		at += copy(out[at:at+n], whole[global:global+n])
	}
}

// muonSteps does steps from first on, and returns the parameters' parts in their whole.
func muonSteps(t *testing.T, ps nn.Params, opt *optim.Optimizer, first, steps int) {
	for step := first; step < first+steps; step++ {
		for i, p := range ps {
			copyPart(p, p.Grad, value(1000+10*step+i, p.GlobalLen()))
			p.FillGrad()
		}
		if !assert.NoError(t, opt.Step()) {
			return
		}
	}
}

// A matrix's owner makes the bits of one rank, however ranks divide it.
func TestMuonHasTheSameBitsOnRanks(t *testing.T) {
	want, one := muonOnRank(nil, 0, nil)
	muonSteps(t, want, one, 0, 10)
	for name, c := range map[string]struct {
		ranks  int
		divide dividing
	}{
		"ddp": {2, copies}, "more ranks than matrices": {5, copies}, "fsdp": {3, shards}, "tp, rows": {2, alongDim(0)},
		"tp, columns": {3, alongDim(1)}, "tp and fsdp": {4, both},
	} {
		t.Run(name, func(t *testing.T) {
			group := &ranks{n: c.ranks}
			var wg sync.WaitGroup
			for r := range c.ranks {
				wg.Go(func() {
					ps, opt := muonOnRank(group, r, c.divide)
					muonSteps(t, ps, opt, 0, 10)
					for i, p := range ps {
						part := tensor.New(cpu.New(1), tensor.Float64, p.Local.Len())
						copyPart(p, part, tensor.Floats(want[i].Value))
						assert.Equal(t, tensor.Floats(part), tensor.Floats(p.Local.View(p.Local.Len())), "rank %d, %v", r, p)
					}
				})
			}
			wg.Wait()
		})
	}
}

// Ranks that have other matrices, or not all parts of them, are an error on all.
func TestMuonRanksHaveTheSameMatrices(t *testing.T) {
	for want, divide := range map[string]dividing{
		"Ranks count 12 elements of p0, which has 24": func(p *tensor.Param, _, _ int) { p.Shard(0, p.Len()/2) },
		"have different matrices":                     func(p *tensor.Param, rank, _ int) { p.SetName(p.Name() + "." + strconv.Itoa(rank)) },
	} {
		group := &ranks{n: 2}
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() {
				ps, opt := muonOnRank(group, r, divide)
				for _, p := range ps {
					p.FillGrad()
				}
				assert.ErrorContains(t, opt.Step(), want)
			})
		}
		wg.Wait()
	}
}

// A state goes on in another optimizer with the same bits.
func TestMuonState(t *testing.T) {
	want, one := muonOnRank(nil, 0, nil)
	muonSteps(t, want, one, 0, 3)
	got, other := muonOnRank(nil, 0, nil)
	require.NoError(t, other.SetState(one.State()))
	for i, p := range got {
		tensor.Copy(p.Value, want[i].Value)
	}
	muonSteps(t, want, one, 3, 2)
	muonSteps(t, got, other, 3, 2)
	assert.Equal(t, flat(want), flat(got))
}
