package layouts

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
)

// small are programs of two steps.
func small() map[string]program {
	p := program{Dropout: 0.2, Steps: 2, Micro: 2, Batch: 6, Clip: 0.2}
	p.Config = gpt.Config{Kind: gpt.Llama, Vocab: 11, Positions: 4, Width: 6, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 2, Hidden: 10}
	mixture := p
	mixture.Experts = moe.Config{Features: p.Width, Hidden: 12, Experts: 4, Shared: 12, Router: router.Config{Top: 2}, Balance: 0.1, Z: 0.1}
	limited := mixture
	limited.Experts.Capacity = 0.6
	return map[string]program{"dense": p, "mixture": mixture, "capacity": limited}
}

// Each mode trains as one rank does where its axis has one rank, and where all axes but one have. In the short form, programs take turns.
func TestAxesOfOneRank(t *testing.T) {
	programs := small()
	for i, name := range slices.Sorted(maps.Keys(programs)) {
		p := programs[name]
		want, err := (&job{program: p}).try()
		require.NoError(t, err)
		for stage := range 4 { // 0 is ddp
			one := layout{PP: 1, DP: 1, FSDP: 1, EP: 1, Ring: 1, CP: 1, TP: 1, Stage: stage}
			all := []layout{one, one, one, one, one, one, one, one}
			all[1].DP, all[2].FSDP, all[3].EP, all[4].CP, all[5].TP, all[6].TP, all[6].Sequence, all[7].Ring = 2, 2, 2, 2, 2, 2, true, 2
			for k, l := range all {
				if (i+k+stage)%len(programs) > 0 && !reliability.Long(t) {
					continue
				}
				if l.refused(p) != nil || l.EP > 1 && p.Experts.Experts == 0 {
					continue
				}
				got, err := (&job{program: p, layout: &l}).try()
				require.NoError(t, err, "%s %+v", name, l)
				require.NoError(t, got.Differs(want, tolerance), "%s %+v", name, l)
			}
		}
	}
}

func TestLongAxesOfOneRank(t *testing.T) { reliability.AsLong(t, TestAxesOfOneRank) }

// All axes at once: 32 ranks, of which two share each thing that can be divided.
func TestLongFiveAxes(t *testing.T) {
	reliability.SkipUnlessLong(t)
	p := small()["mixture"]
	p.Tied, p.Ignored, p.Clip, p.LoRA, p.Layers, p.KVHeads = true, true, 0.2, 2, 5, 4
	p.Steps, p.Micro, p.Batch = 10, 3, 14
	want, err := (&job{program: p}).try()
	require.NoError(t, err)
	l := layout{PP: 2, DP: 1, FSDP: 2, EP: 2, Ring: 2, CP: 1, TP: 2, Stage: 3, Once: true, Sequence: true, Again: true,
		Schedule: "zbv", Virtual: 1, Parts: []int{1, 2, 1, 1}}
	copies := l
	copies.FSDP, copies.DP, copies.Ring, copies.CP, copies.Stage, copies.Schedule, copies.Parts = 1, 2, 1, 2, 0, "zb-h1", []int{3, 2}
	for _, l := range []layout{l, copies} {
		require.Equal(t, 32, l.ranks())
		got, err := (&job{program: p, layout: &l}).try()
		require.NoError(t, err, "%+v", l)
		require.NoError(t, got.Differs(want, tolerance), "%+v", l)
	}
}
