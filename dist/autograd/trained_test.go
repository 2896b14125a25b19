package autograd_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// trained is the result of a job: numbers that all ranks know, such as losses, and the model's parameters by name, joined from the parts
// of the ranks.
type trained struct {
	mu      sync.Mutex
	numbers []float64
	params  map[string][]float64
}

// train runs a job. Each rank returns its numbers, and the parameters that it has or of which it has a part.
func train(ranks int, rank func(r *dist.Rank) ([]float64, nn.Params, error)) (*trained, error) {
	res := &trained{params: map[string][]float64{}}
	err := dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		numbers, params, err := rank(r)
		if err != nil {
			return err
		}
		res.mu.Lock()
		defer res.mu.Unlock()
		res.numbers = numbers
		for _, p := range params {
			if err := res.add(p); err != nil {
				return err
			}
		}
		return nil
	})
	return res, err
}

// tenSteps trains 10 steps of two microbatches each, and returns this rank's losses and the norms of gradients.
func tenSteps(tape *tensor.Tape, opt *optim.Optimizer, lossOf func(micro int) nn.T) (losses, norms []float64, err error) {
	for step := range 10 {
		for micro := range 2 {
			loss := lossOf(2*step + micro)
			losses = append(losses, loss.Item())
			if micro == 0 {
				tape.Backward(loss, tensor.More())
			} else {
				tape.Backward(loss)
			}
			tape.Reset()
		}
		if err := opt.Step(); err != nil {
			return nil, nil, err
		}
		norms = append(norms, opt.GradNorm())
	}
	return losses, norms, nil
}

// add adds this rank's part of p. Ranks that have the same elements must have the same values.
func (res *trained) add(p *tensor.Param) error {
	whole := res.params[p.Name()]
	if whole == nil {
		whole = make([]float64, p.GlobalLen())
		for i := range whole {
			whole[i] = math.NaN()
		}
		res.params[p.Name()] = whole
	}
	v, first := tensor.Floats(p.Local), p.Shard.Flat[0]
	for at, n := range p.Runs(first, first+len(v)) {
		for i, x := range v[:n] {
			if old := whole[at+i]; old == old && old != x {
				return fmt.Errorf("element %d of %s is %v on one rank and %v on another", at+i, p.Name(), old, x)
			}
			whole[at+i] = x
		}
		v = v[n:]
	}
	return nil
}

// differs returns the largest difference between res and want, and where it is.
func (res *trained) differs(want *trained) (worst float64, where string) {
	compare := func(what string, a, b []float64) {
		if len(a) != len(b) {
			worst, where = math.Inf(1), fmt.Sprintf("%s: %d elements, want %d", what, len(a), len(b))
			return
		}
		for i := range a {
			d := math.Abs(a[i] - b[i])
			if d != d { // no rank has it
				d = math.Inf(1)
			}
			if d > worst {
				worst, where = d, fmt.Sprintf("%s[%d] is %v, want %v", what, i, a[i], b[i])
			}
		}
	}
	compare("numbers", res.numbers, want.numbers)
	for name := range want.params {
		compare(name, res.params[name], want.params[name])
	}
	return worst, where
}

// requireSame requires the results of one rank, except for rounding.
func (res *trained) requireSame(t *testing.T, want *trained) {
	t.Helper()
	require.Len(t, res.params, len(want.params))
	worst, where := res.differs(want)
	require.LessOrEqual(t, worst, 1e-10, where)
	t.Logf("differs by %.1e", worst)
}
