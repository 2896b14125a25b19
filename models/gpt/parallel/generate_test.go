package parallel_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks that compute a text together are given the same prompt and Sampling: with others, they write what no model writes, or wait for each
// other. A Seed without a Temperature changes nothing.
func TestTextsOfRanks(t *testing.T) {
	all := func(int) []int { return []int{1, 2, 3} }
	warm := func(seed uint64) decode.Sampling { return decode.Sampling{Tokens: 4, Temperature: 2, Seed: seed} }
	for name, c := range map[string]struct {
		layout   parallel.Layout
		prompt   func(rank int) []int
		sampling func(rank int) decode.Sampling
		want     string
	}{
		"the same":   {parallel.Layout{TP: 2}, all, func(int) decode.Sampling { return warm(7) }, ""},
		"other ones": {parallel.Layout{DP: 2}, func(rank int) []int { return []int{rank} }, func(int) decode.Sampling { return warm(7) }, ""},
		"no draws": {parallel.Layout{TP: 2}, all,
			func(rank int) decode.Sampling { return decode.Sampling{Tokens: 4, Seed: uint64(rank)} }, ""},
		"prompts": {parallel.Layout{TP: 2}, func(rank int) []int { return []int{1, 2, 3 + rank} },
			func(int) decode.Sampling { return warm(7) }, "rank 1 has a prompt of 3 tokens of checksum "},
		"lengths": {parallel.Layout{TP: 2}, func(rank int) []int { return []int{1, 2, 3}[rank:] },
			func(int) decode.Sampling { return warm(7) }, "rank 1 has a prompt of 2 tokens of checksum "},
		"seeds": {parallel.Layout{TP: 2}, all, func(rank int) decode.Sampling { return warm(uint64(rank)) },
			"decode.Generate: these ranks compute one text together: give all the same prompt and Sampling: ranks differ: rank 1 has " +
				"Tokens 4, End [], Temperature 2, TopK 0, TopP 0, Seed 1 where rank 0 has Tokens 4, End [], Temperature 2, TopK 0, TopP 0, Seed 0"},
		"numbers": {parallel.Layout{TP: 2}, all, func(rank int) decode.Sampling { return decode.Sampling{Tokens: 4 + rank} },
			"rank 1 has Tokens 5, End [] where rank 0 has Tokens 4, End []"},
		"ends": {parallel.Layout{TP: 2}, all, func(rank int) decode.Sampling { return decode.Sampling{Tokens: 4, End: []int{rank}} },
			"rank 1 has Tokens 4, End [1] where rank 0 has Tokens 4, End [0]"},
	} {
		texts := make([][]int, 2)
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			m := disttest.Must(gpt.New(plan{kind: gpt.Qwen2}.config()))
			disttest.Must(parallel.Attach(disttest.Must(r.Mesh(c.layout.Mesh(2))), m, parallel.Config{}))
			rank := r.World.Rank()
			return tensor.Try(func() { texts[rank] = slices.Collect(m.Generate(r.Device, c.prompt(rank), c.sampling(rank))) })
		})
		if c.want != "" {
			require.ErrorContains(t, err, c.want, name)
			continue
		}
		require.NoError(t, err, name)
		require.Len(t, texts[0], 4)
		if c.layout.TP == 2 {
			require.Equal(t, texts[0], texts[1], name)
		}
	}
}
