package pp_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
)

// Every schedule trains as the ordinary loop on one rank does, on 2, 3 and 4 stages of a rank each or two: with a tied table, dropout,
// clipping, and microbatches of different sizes. The short form has each schedule once, on 2 or 3 ranks, and smaller.
func TestSchedulesEqualOneRank(t *testing.T) {
	p := program{layers: 6, tied: true, drop: true, rows: []int{2, 3, 1, 4, 2}}
	if reliability.Long(t) {
		p.layers, p.rows = 8, []int{3, 5, 2, 4, 1, 6, 3, 2}
	}
	var layouts []layout
	for _, ranks := range []int{2, 3, 4} {
		for i, s := range []string{"gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "v-half", "dualpipev", "v-min"} {
			if !reliability.Long(t) && 2+i%2 != ranks {
				continue
			}
			layouts = append(layouts, layout{mesh: fmt.Sprintf("pp=%d", ranks), schedule: s})
		}
	}
	requireParity(t, p, layouts...)
}

func TestLongSchedulesEqualOneRank(t *testing.T) { reliability.AsLong(t, TestSchedulesEqualOneRank) }

// Fewer microbatches than stages.
func TestFewMicrobatches(t *testing.T) {
	for _, rows := range [][]int{{7}, {2, 5}} {
		p := program{kind: gpt.Llama, rows: rows, drop: true}
		layouts := []layout{{mesh: "pp=4", schedule: "1f1b"}, {mesh: "pp=2", schedule: "v-half"}, {mesh: "pp=4", schedule: "gpipe"},
			{mesh: "pp=4", schedule: "zb-h1"}}
		if !reliability.Long(t) {
			layouts = layouts[len(rows)-1:][:1]
		}
		requireParity(t, p, layouts...)
	}
}

func TestLongFewMicrobatches(t *testing.T) { reliability.AsLong(t, TestFewMicrobatches) }

// Stages under other parallelisms. Ranks of dp and fsdp have unequally many rows of each microbatch. The short form has three
// microbatches and the first layout of each program, where no other test here has what it shows, and the long form the others.
func TestLayoutsEqualOneRank(t *testing.T) {
	for name, c := range map[string]struct {
		program
		layouts []layout
	}{
		"ddp": {program{tied: true, drop: true, labels: true}, []layout{
			{mesh: "pp=2,dp=2", parts: []int{1, 3}}, {mesh: "pp=2,dp=2"}, {mesh: "pp=2,dp=3", schedule: "zb-h1"},
			{mesh: "dp=2,pp=2", schedule: "zbv"}, {mesh: "pp=3,dp=2", schedule: "gpipe", parts: []int{2, 1, 1}}}},
		"fsdp": {program{kind: gpt.Llama, tied: true, drop: true}, []layout{{}, // see TestEnginesEqualOneRank and TestCheckpoints
			{mesh: "pp=2,fsdp=2", stage: 1}, {mesh: "pp=2,fsdp=2", stage: 2}, {mesh: "pp=2,fsdp=2", stage: 3, once: true},
			{mesh: "pp=2,fsdp=2", stage: 3, once: true, schedule: "zbv"}, {mesh: "pp=3,fsdp=2", stage: 2, once: true, schedule: "zb-h1"},
			{mesh: "pp=2,dp=2,fsdp=2", stage: 3, once: true, schedule: "interleaved"},
			{mesh: "pp=2,fsdp=3", stage: 3, once: true, schedule: "zb-h1"}}},
		"tp": {program{tied: true, drop: true}, []layout{
			{mesh: "pp=2,kv=2", sequence: true, schedule: "zbv"}, {mesh: "pp=2,kv=2"}, {mesh: "pp=2,kv=2", sequence: true},
			{mesh: "pp=2,dp=2,kv=2", schedule: "zb-h1", sequence: true}, {mesh: "pp=2,fsdp=2,kv=2", stage: 2, sequence: true}}},
		"recomputed": {program{tied: true, drop: true, rows: []int{2, 5, 3}}, []layout{
			{mesh: "pp=2", again: true, schedule: "zb-h1"}, {mesh: "pp=2", again: true}, {mesh: "pp=2,dp=2", again: true, schedule: "zbv"},
			{mesh: "pp=2,kv=2", again: true, sequence: true}, {mesh: "pp=2,fsdp=2", stage: 3, once: true, again: true, schedule: "zb-h1"}}},
		"lora": {program{kind: gpt.Llama, lora: true, drop: true}, []layout{
			{mesh: "pp=2"}, {mesh: "pp=2,dp=2", schedule: "zb-h1"}, {mesh: "pp=2,fsdp=2,kv=2", stage: 2, schedule: "zbv"}}},
		"frozen first stage": {program{tied: true, frozen: []string{"tok", "pos", "blocks.0"}}, []layout{
			{mesh: "pp=2", schedule: "zbv"}, {mesh: "pp=2,dp=2", schedule: "interleaved"}, {mesh: "pp=2,fsdp=2", stage: 2, schedule: "zbv"}}},
		"all of the first stage is frozen": {program{frozen: []string{"tok", "pos", "blocks.0", "blocks.1"}}, []layout{{}, // see the next one
			{mesh: "pp=2"}, {mesh: "pp=2,dp=2", schedule: "zb-h1"}, {mesh: "pp=2,fsdp=2", stage: 2}}},
		"all of the first stage is frozen for three steps": {program{frozen: []string{"tok", "pos", "blocks.0", "blocks.1"},
			pause: true}, []layout{{mesh: "pp=2"}, {mesh: "pp=2,dp=2", schedule: "zb-h1"}}},
		"all of a middle stage is frozen": {program{frozen: []string{"blocks.1"}}, []layout{
			{mesh: "pp=4"}, {mesh: "pp=4", schedule: "zb-h1"}}},
		"scaled losses": {program{tied: true, scaled: true}, []layout{{mesh: "pp=2"}, {mesh: "pp=2,dp=2", schedule: "zb-h1"},
			{mesh: "pp=2", config: func(c *pp.Config) { c.Optimizer = nil }},
			{mesh: "pp=2", config: func(c *pp.Config) { optim.NewSGD(c.Params, optim.SGDConfig{LR: 1}) }}}}, // one that does no steps
		"scaled losses of frozen stages": {program{frozen: []string{"blocks.2", "blocks.3", "norm", "head"}, scaled: true}, []layout{
			{mesh: "pp=2", config: func(c *pp.Config) { c.Optimizer = nil }}}},
		"experts on one stage, with a balance loss": {program{kind: gpt.Llama, experts: true, scaled: true}, []layout{
			{mesh: "pp=2"}, {mesh: "pp=2,ep=2", schedule: "zb-h1"}, {mesh: "pp=3,dp=2", parts: []int{1, 1, 2}},
			{mesh: "pp=2,ep=2,kv=2", sequence: true}}},
		"sequences": {program{tied: true, drop: true}, []layout{{mesh: "pp=2,cp=2"},
			{mesh: "pp=2,cp=2,fsdp=2", stage: 2, schedule: "zbv"}, {mesh: "pp=2,ring=2"},
			{mesh: "pp=2,ring=3,dp=2", schedule: "zb-h1"},
			{mesh: "pp=2,ring=2,cp=2"}, {mesh: "pp=2,ring=2,fsdp=2", stage: 3, once: true, schedule: "zbv", again: true}}},
		"steps of other sizes": {program{tied: true, drop: true, uneven: true}, []layout{
			{mesh: "pp=2"}, {mesh: "pp=2,dp=2", schedule: "zbv"}, {mesh: "pp=3,fsdp=2", stage: 2, schedule: "zb-h1"}}},
		"uneven layers": {program{layers: 7, tied: true}, []layout{{}, // see the first one
			{mesh: "pp=2", parts: []int{1, 6}}, {mesh: "pp=3", parts: []int{3, 1, 3}}, {mesh: "pp=2", schedule: "zbv", parts: []int{1, 3, 2, 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			layouts := c.layouts
			if layouts[0].mesh == "" {
				layouts = layouts[1:]
			}
			if !reliability.Long(t) {
				if layouts = c.layouts[:1]; layouts[0].mesh == "" {
					return
				}
				if c.rows == nil {
					c.rows = []int{4, 4, 4}
				}
			}
			if len(layouts) > 0 {
				requireParity(t, c.program, layouts...)
			}
		})
	}
}

func TestLongLayoutsEqualOneRank(t *testing.T) { reliability.AsLong(t, TestLayoutsEqualOneRank) }

// The newer kinds of package gpt have stages, too. The short form has those whose layers differ by their numbers.
func TestKindsEqualOneRank(t *testing.T) {
	for _, kind := range []gpt.Kind{gpt.Mistral, gpt.Qwen2, gpt.Qwen3, gpt.Phi3, gpt.SmolLM3, gpt.Gemma2, gpt.Gemma3, gpt.Mixtral,
		gpt.Qwen3MoE} {
		p := program{kind: kind, layers: 3, tied: kind != gpt.Mistral, drop: true, rows: []int{3, 1, 2}}
		layouts := []layout{{mesh: "pp=2", schedule: "zb-h1"}, {mesh: "pp=2,kv=2", sequence: true}}
		switch {
		case reliability.Long(t) && kind == gpt.Gemma2: // its logits are capped
			layouts = append(layouts, layout{mesh: "pp=2", schedule: "zb-h1", fused: true})
		case reliability.Long(t):
		case kind == gpt.SmolLM3, kind == gpt.Gemma3:
			layouts = layouts[:1]
		case kind == gpt.Gemma2:
			layouts = []layout{{mesh: "pp=2,kv=2", fused: true}}
		default:
			continue
		}
		requireParity(t, p, layouts...)
	}
}

func TestLongKindsEqualOneRank(t *testing.T) { reliability.AsLong(t, TestKindsEqualOneRank) }

// Messages through shared memory and sockets.
func TestEnginesEqualOneRank(t *testing.T) {
	p := program{tied: true, drop: true, rows: []int{3, 5, 2}}
	if reliability.Long(t) {
		p.rows = []int{3, 5, 2, 4, 1}
	}
	want := p.training(layout{}).Run(t)
	for i, engine := range []string{"shm", "tcp"} {
		for k, l := range []layout{{mesh: "pp=4"}, {mesh: "pp=2,dp=2", schedule: "zbv"}, {mesh: "pp=2,fsdp=2", stage: 2, schedule: "zb-h1"}} {
			if i+k != 2 == !reliability.Long(t) { // the short form has two layouts
				continue
			}
			c := p.training(l)
			c.On = disttest.LauncherFor(t, engine, 4)
			disttest.RequireEqual(t, want, c.Run(t), 1e-10)
		}
	}
}

func TestLongEnginesEqualOneRank(t *testing.T) { reliability.AsLong(t, TestEnginesEqualOneRank) }

// Devices with memory of their own, several of which may run in any order; between GPUs also NCCL. The emulator is slow: the short form has
// two ranks and four steps.
func TestDevicesEqualOneRank(t *testing.T) {
	p := program{kind: gpt.Llama, tied: true, drop: true, rows: []int{3, 1, 2}}
	one := p.training(layout{})
	machines, mesh, ranks := disttest.GPUs()[2:], "pp=2", 2
	if one.Steps = 4; reliability.Long(t) {
		one.Steps, machines = 10, disttest.Machines()
	}
	if reliability.Long(t) || emu.OnGPU() {
		mesh, ranks = "pp=2,dp=2", 4
	}
	want := one.Run(t)
	disttest.OnEach(t, machines, ranks, func(t *testing.T, launch disttest.Launcher) {
		c := p.training(layout{mesh: mesh, schedule: "zbv"})
		c.On, c.Steps = launch, one.Steps
		disttest.RequireEqual(t, want, c.Run(t), 1e-10)
	})
}

func TestLongDevicesEqualOneRank(t *testing.T) { reliability.AsLong(t, TestDevicesEqualOneRank) }

// So it is if keys go around the ranks.
func TestRingOnDevices(t *testing.T) {
	p, layouts := program{kind: gpt.Llama, drop: true, layers: 2, rows: []int{3, 1}}, []layout{{mesh: "ring=2", again: true}}
	one := p.training(layout{})
	machines, ranks := disttest.GPUs()[:1], 2
	if reliability.Long(t) || emu.OnGPU() {
		layouts, ranks = []layout{{mesh: "pp=2,ring=2", again: true}}, 4
	}
	if one.Steps = 2; reliability.Long(t) {
		one.Steps, layouts, machines = 10, append(layouts, layout{mesh: "ring=4", stage: 2}), disttest.Machines()
	}
	want := one.Run(t)
	disttest.OnEach(t, machines, ranks, func(t *testing.T, launch disttest.Launcher) {
		for _, l := range layouts {
			c := p.training(l)
			c.On, c.Steps = launch, one.Steps
			disttest.RequireEqual(t, want, c.Run(t), 1e-10)
		}
	})
}

func TestLongRingOnDevices(t *testing.T) { reliability.AsLong(t, TestRingOnDevices) }

// With OncePerStep, fsdp gathers and reduces once a step, however many microbatches and stages a rank has. Without it, stage 2 reduces all
// units for each microbatch of each stage, and stage 3 would gather them, too, and is refused.
func TestShardedBytes(t *testing.T) {
	calls := func(micros, stage int, once bool) (gathers, reductions uint64, err error) {
		p := program{kind: gpt.Llama, rows: slices.Repeat([]int{4}, micros)}
		step := func(j *job) error {
			if sign := uint64(2*(j.state.Step%2)) - 1; j.state.Step >= 4 && j.state.Step <= 5 && j.rank.World.Rank() == 0 {
				for _, g := range j.att.Shards.Groups() {
					n := g.Stats().Calls
					gathers += sign * (n["allgather"] + n["allgatherv"])
					reductions += sign * (n["reducescatter"] + n["reducescatterv"])
				}
			}
			return nil
		}
		c := p.training(layout{mesh: "pp=2,fsdp=2", stage: stage, schedule: "zbv", once: once, after: step})
		c.Steps = 6
		_, err = c.Try()
		return gathers, reductions, err
	}
	for _, micros := range []int{4, 8} {
		if micros == 4 == reliability.Long(t) {
			continue
		}
		for _, stage := range []int{2, 3} {
			gathers, reductions, err := calls(micros, stage, true)
			require.NoError(t, err)
			require.Equal(t, []uint64{3, 3}, []uint64{gathers, reductions}, "units of rank 0: two blocks, and what is outside")
		}
		gathers, reductions, err := calls(micros, 2, false)
		require.NoError(t, err)
		require.Equal(t, []uint64{3, 3 * 2 * uint64(micros)}, []uint64{gathers, reductions})
		_, _, err = calls(micros, 3, false)
		require.ErrorContains(t, err, fmt.Sprintf("pp: in each of %d microbatches, fsdp: unit 1 (blocks.0) is gathered for each use", micros))
		require.ErrorContains(t, err, "set OncePerStep in fsdp.Config")
	}
}

func TestLongShardedBytes(t *testing.T) { reliability.AsLong(t, TestShardedBytes) }
