package held

import (
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// ranks sum in turn: a rank waits until all have called.
type ranks struct {
	mu      sync.Mutex
	arrived *sync.Cond
	n       int
	calls   int
	sums    [][]float64
}

type rank struct {
	*ranks
	id, calls int
}

func (r *rank) Rank() int { return r.id }
func (r *rank) Size() int { return r.n }

func (r *rank) SumFloats(x []float64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == len(r.sums) {
		r.sums = append(r.sums, make([]float64, len(x)))
	}
	sum := r.sums[r.calls]
	for i := range x {
		sum[i] += x[i]
	}
	r.calls++
	r.ranks.calls++
	r.arrived.Broadcast()
	for r.ranks.calls < r.calls*r.n {
		r.arrived.Wait()
	}
	copy(x, sum)
	return nil
}

// each calls f on n ranks, and waits.
func each(n int, f func(r *rank)) {
	all := &ranks{n: n}
	all.arrived = sync.NewCond(&all.mu)
	var wg sync.WaitGroup
	for id := range n {
		wg.Go(func() { f(&rank{ranks: all, id: id}) })
	}
	wg.Wait()
}

func param(name string, lo, hi int) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(1), 12)
	p.SetName(name)
	p.Make(cpu.New(1), tensor.Float32, 1)
	if hi-lo < 12 {
		p.Shard(lo, hi)
	}
	return p
}

func TestCount(t *testing.T) {
	norm, same := Sum{Field: "Norm", Of: "norm"}, Sum{Field: "Ranks", Of: "sum", Alike: "parameters"}
	for name, c := range map[string]struct {
		sum  Sum
		of   func(id int) []*tensor.Param
		want [][]bool
		own  bool // each rank has settings of its own
		err  string
	}{
		"parts and copies": {norm, func(id int) []*tensor.Param { return []*tensor.Param{param("a", 4*id, 4*id+4), param("b", 0, 12)} },
			[][]bool{{true, true}, {true, false}, {true, false}}, false, ""},
		"stages": {norm, func(id int) []*tensor.Param { return []*tensor.Param{param(string(rune('a'+id)), 0, 12)} },
			[][]bool{{true}, {true}, {true}}, true, ""},
		"copies with other settings": {norm, func(int) []*tensor.Param { return []*tensor.Param{param("a", 0, 12)} }, nil, true,
			"ranks that share parameters have different optimizers: LR is "},
		"other parameters": {same, func(id int) []*tensor.Param { return []*tensor.Param{param(string(rune('a'+id)), 0, 12)} }, nil, false,
			"the ranks of Ranks have different parameters"},
		"other numbers of parameters": {same, func(id int) []*tensor.Param {
			return slices.Repeat([]*tensor.Param{param("a", 0, 12)}, min(id, 1))
		}, nil, false, "the ranks of Ranks have different parameters"},
		"a gap": {same, func(id int) []*tensor.Param { return []*tensor.Param{param("a", 3*id, 3*id+3)} }, nil, false,
			"count 9 elements of a, which has 12: the sum would be too small; Ranks must be the group of all ranks that hold parts of it"},
	} {
		t.Run(name, func(t *testing.T) {
			each(3, func(r *rank) {
				settings := []string{"LR is 1"}
				if c.own {
					settings[0] += strconv.Itoa(r.id)
				}
				counted, err := Count(r, c.of(r.id), c.sum, settings)
				if c.err != "" {
					assert.ErrorContains(t, err, c.err)
					return
				}
				assert.NoError(t, err)
				assert.Equal(t, c.want[r.id], counted)
			})
		})
	}
}

// A setting of one rank is an error on all.
func TestCompare(t *testing.T) {
	for _, odd := range []int{-1, 0, 2} {
		each(3, func(r *rank) {
			lr := "0.1"
			if r.id == odd {
				lr = "0.2"
			}
			err := Compare(r, []string{"rule is SGD", "LR is " + lr})
			if odd < 0 {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, "LR is "+lr+" here, but not on all of the 3 ranks")
			}
		})
	}
}

// Errors of the group are passed on.
func TestErrors(t *testing.T) {
	_, err := Count(broken{}, nil, Sum{}, nil)
	require.ErrorIs(t, err, assert.AnError)
	require.ErrorIs(t, Compare(broken{}, nil), assert.AnError)
}

type broken struct{}

func (broken) Rank() int                 { return 0 }
func (broken) Size() int                 { return 1 }
func (broken) SumFloats([]float64) error { return assert.AnError }
