package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func short() options {
	return options{ranks: 3, steps: 4, batch: 7, width: 20, layers: 3, length: 9}
}

// TestTable: what is measured is what the formulas say, to the KiB, and all stages and numbers of ranks have one loss.
func TestTable(t *testing.T) {
	losses := map[bool]string{}
	for _, half := range []bool{false, true} {
		for _, ranks := range []int{1, 2, 3} {
			o := short()
			o.ranks, o.half = ranks, half
			var out bytes.Buffer
			require.NoError(t, run(o, &out))
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			require.Len(t, lines, 6)
			for stage, line := range lines[3:] {
				var n, values, grads, state, sum, formula, sent, wire int
				var first, last string
				_, err := fmt.Sscan(line, &n, &first, &last, &values, &grads, &state, &sum, &formula, &sent, &wire)
				require.NoError(t, err)
				require.Equal(t, stage+1, n)
				require.InDelta(t, formula, sum, 1, line) // integer divisions
				require.Equal(t, wire, sent, line)
				require.Equal(t, ranks > 1, sent > 0)
				if !half && losses[half] == "" {
					losses[half] = first + last
				}
				if !half {
					require.Equal(t, losses[half], first+last, "%d ranks: %s", ranks, line)
				}
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for _, change := range []func(o *options){
		func(o *options) { o.ranks = 0 }, func(o *options) { o.steps = 1 }, func(o *options) { o.width = 21 }, func(o *options) { o.length = 0 },
	} {
		o := short()
		change(&o)
		require.Error(t, run(o, io.Discard))
	}
}
