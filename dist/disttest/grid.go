package disttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// Different makes one rank call another operation than the rest, for every pair of operations and these numbers of ranks, with algorithms
// forced as by dist.Algo. All ranks must get an error that names both operations, at once. Whatever messages the two algorithms send and
// wait for, the mismatch must be found.
func Different(t *testing.T, start Start, ranks []int, force string) {
	for _, n := range ranks {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			var cases []*pairing
			kinds := collectives()
			for i, a := range kinds {
				for j, b := range kinds {
					if a.Name != b.Name {
						cases = append(cases, &pairing{ops: [2]*Operation{a, b}, odd: (i + j) % n, n: n})
					}
				}
			}
			require.NoError(t, start(t, n, quiet(2*time.Second), func(r *dist.Rank) error {
				for _, c := range cases {
					if err := r.World.Barrier().Wait(); err != nil {
						return err
					}
					if err := c.run(r.World.With(dist.Algo(force))); err != nil {
						return err
					}
				}
				return nil
			}))
			longest := time.Duration(0)
			for _, c := range cases {
				longest = max(longest, c.check(t))
			}
			reliability.Took(t, 2, cases[0].engine, 500*time.Millisecond, longest)
		})
	}
}

// pairing is one rank with another operation than the others have.
type pairing struct {
	ops    [2]*Operation // that of the others, and that of the one rank
	odd, n int
	errs   table[error]
	took   table[time.Duration]
	engine string
}

func (c *pairing) run(g *dist.Group) error {
	op := c.ops[0]
	if g.Rank() == c.odd {
		op, c.engine = c.ops[1], g.Engine()
	}
	begin := time.Now()
	err := op.Run(g, 0, 40)
	if err == nil {
		err = g.Barrier().Wait() // a rank that only sends may notice at its next call
	}
	c.errs.put(g.Rank(), err)
	c.took.put(g.Rank(), time.Since(begin))
	return g.Close()
}

// check returns how long the slowest rank took.
func (c *pairing) check(t *testing.T) (longest time.Duration) {
	what := fmt.Sprintf("%s, rank %d %s, %d ranks", c.ops[0].Name, c.odd, c.ops[1].Name, c.n)
	for rank := range c.n {
		err := c.errs.rows[rank]
		if !assert.Error(t, err, "%s: rank %d", what, rank) {
			continue
		}
		for _, name := range []string{c.ops[0].Name, c.ops[1].Name, " vs "} {
			assert.ErrorContains(t, err, name, "%s: rank %d", what, rank)
		}
		longest = max(longest, c.took.rows[rank])
	}
	return longest
}
