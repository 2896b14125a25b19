package disttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// Different makes one rank call another operation than the rest, for every pair of operations and these numbers of ranks, with algorithms
// forced as by dist.Algo. All ranks must get an error that names both operations, at once. Whatever messages the two algorithms send and
// wait for, the mismatch must be found.
func Different(t *testing.T, start Start, ranks []int, force string) {
	for _, n := range ranks {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			var mistakes []mistake
			for i, a := range collectives() {
				for j, b := range collectives() {
					odd := (i + j) % n
					call := func(r *dist.Rank) error {
						if r.World.Rank() == odd {
							return b.Run(r.World, 0, 40)
						}
						return a.Run(r.World, 0, 40)
					}
					if i < j || i > j && (reliability.Long(t) || (i+j)%2 > 0) {
						name := fmt.Sprintf("%s, rank %d %s", a.Name, odd, b.Name)
						mistakes = append(mistakes, mistake{name, 2, 500 * time.Millisecond, []string{a.Name, b.Name, " vs "}, call})
					}
				}
			}
			(&suite{start: start}).failEach(t, n, mistakes, dist.Algo(force), dist.Timeout(patience))
		})
	}
}
