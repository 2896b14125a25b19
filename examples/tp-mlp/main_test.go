package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
)

func TestOutput(t *testing.T) {
	for _, c := range []struct {
		o    options
		want []string
	}{
		{options{1, 8, 10, 6, false}, []string{"rank 0: norm.weight [8] of [8]", "forward:  no communication", "backward: no communication"}},
		{options{2, 64, 11, 96, false}, []string{"rank 0: norm.weight [64] of [64]", "mlp.up.weight [6 64] of [11 64]", "rank 1:",
			"mlp.up.weight [5 64] of [11 64]", "mlp.down.weight [64 5] of [64 11]", "forward:  1 allreduce, 49152 bytes sent",
			"backward: 1 allreduce, 49152 bytes sent"}},
		{options{3, 8, 11, 7, true}, []string{"forward:  1 allgatherv", "1 reducescatterv", "backward: ", "allreduce"}},
	} {
		var out bytes.Buffer
		require.NoError(t, c.o.run(dist.Config{Ranks: c.o.ranks, Threads: 1, Log: &out}))
		for _, want := range append(c.want, "differ from those of one rank by") {
			require.Contains(t, out.String(), want)
		}
	}
}
