package optim_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// ranks is a Norm that sums the vectors of n goroutines.
type ranks struct {
	n    int
	mu   sync.Mutex
	sum  []float64
	here int
	full chan struct{}
}

func (r *ranks) SumFloats(x []float64) error {
	if r.n == 1 {
		return nil
	}
	r.mu.Lock()
	if r.here == 0 {
		r.sum, r.full = make([]float64, len(x)), make(chan struct{})
	}
	for i, v := range x {
		r.sum[i] += v
	}
	r.here++
	sum, full := r.sum, r.full
	if r.here == r.n {
		r.here = 0
		close(full)
	}
	r.mu.Unlock()
	<-full
	copy(x, sum)
	return nil
}

// numbered is ranks that knows its own number.
type numbered struct {
	*ranks
	rank int
}

func (n numbered) Rank() int { return n.rank }
func (n numbered) Size() int { return n.n }

// cut gives each of n ranks its shards of gen.py's parameters. The first parameter has shards of different sizes (one rank has none). The
// others are whole on every rank, but the last rank alone has the third, unless there are two ranks.
func cut(n int) []nn.Params {
	bounds := [][]int{{0, 12}, {0, 5, 12}, {0, 5, 5, 12}}[n-1]
	out := make([]nn.Params, n)
	for r := range n {
		ps := start(tensor.Float64)
		if n > 1 {
			lo, hi := bounds[r], bounds[r+1]
			ps[0].Local = ps[0].Value.View(12).Range(lo, hi)
			ps[0].Shard(lo, hi)
		}
		if n == 3 && r < 2 {
			ps = ps[:2]
		}
		out[r] = ps
	}
	return out
}

func shardGradients(ps nn.Params, step int) {
	for i, p := range ps {
		lo, hi := 0, p.Len()
		if i == 0 {
			lo, hi = p.Placement().Range()
		}
		p.Grad = tensor.FromSlice(value(1000+10*step+i, p.Len())[lo:hi], hi-lo)
		p.FillGrad()
	}
}

// TestClippingOnRanks: n ranks with shards equal one rank with everything.
func TestClippingOnRanks(t *testing.T) {
	norms, values := map[int][]float64{}, map[int][]float64{}
	for n := 1; n <= 3; n++ {
		group := &ranks{n: n}
		all := cut(n)
		var wg sync.WaitGroup
		norm := make([][]float64, n)
		for r := range n {
			wg.Go(func() {
				opt := optim.NewAdamW(all[r], optim.AdamWConfig{LR: 0.1, Clip: 0.7, Norm: numbered{group, r}})
				for step := range 10 {
					shardGradients(all[r], step)
					if !assert.NoError(t, opt.Step()) {
						return
					}
					norm[r] = append(norm[r], opt.GradNorm())
				}
			})
		}
		wg.Wait()
		for r := 1; r < n; r++ {
			require.Equal(t, norm[0], norm[r], "all ranks clip alike")
		}
		for _, ps := range all {
			values[n] = append(values[n], tensor.Floats(ps[0].Local)...)
		}
		values[n] = append(values[n], flat(all[n-1][1:])...)
		norms[n] = norm[0]
	}
	for n := 2; n <= 3; n++ {
		assert.InDeltaSlice(t, norms[1], norms[n], 1e-14)
		assert.InDeltaSlice(t, values[1], values[n], 1e-14)
	}
	local := cut(1)[0] // no Norm at all
	opt := optim.NewAdamW(local, optim.AdamWConfig{LR: 0.1, Clip: 0.7})
	for step := range 10 {
		shardGradients(local, step)
		require.NoError(t, opt.Step())
		assert.InDelta(t, norms[1][step], opt.GradNorm(), 1e-14)
	}
}
