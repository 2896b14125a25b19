package layout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
)

// Shares follow each other, and the first ranks have one more.
func TestShare(t *testing.T) {
	for ranks := 1; ranks <= 7; ranks++ {
		for n := range 30 {
			counts, end := layout.Shares(make([]int, ranks), n), 0
			for rank := range ranks {
				lo, hi := layout.Share(n, rank, ranks)
				require.Equal(t, end, lo)
				require.Equal(t, counts[rank], hi-lo)
				want := n / ranks
				if rank < n%ranks {
					want++
				}
				require.Equal(t, want, hi-lo, "%d elements, rank %d of %d", n, rank, ranks)
				end = hi
			}
			require.Equal(t, n, end)
		}
	}
}
