package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// chain is a model of odd shapes. Its first layer is kept, and its units differ in size.
func chain() nn.Sequential {
	return nn.Sequential{nn.NewLinear(7, 15), nn.ReLU, nn.NewLinear(15, 17), nn.ReLU, nn.NewLinear(17, 16), nn.ReLU, nn.NewLinear(16, 3)}
}

var units = []plan.Unit{{Params: []int{7 * 15, 15}, Keep: true}, {Params: []int{15 * 17, 17}}, {Params: []int{17 * 16, 16}},
	{Params: []int{16 * 3, 3}}}

// measured is the counts of a rank.
type measured struct {
	memory map[string]memory.Bytes
	sent   map[string]int // bytes in a step, by all ranks together: by operation and axis
}

// attach returns what the optimizer needs, and the groups by operation and axis whose bytes they count.
func attach(r *dist.Rank, m nn.Sequential, c plan.Config) (nn.Params, optim.Norm, map[string]*dist.Group, error) {
	if c.Layout.FSDP == 0 {
		g := r.World.With(dist.Name("ddp"))
		var hook ddp.CommHook
		if c.Reduce != 0 {
			hook = ddp.Compress(c.Reduce)
		}
		params, err := ddp.Attach(g, m, ddp.Config{DType: c.Params, Hook: hook, BucketBytes: 1500})
		return params, nil, map[string]*dist.Group{"allreduce dp": g}, err
	}
	near := max(1, c.Host)
	mesh, err := r.Mesh(fmt.Sprintf("dp=%d,host=%d,gpu=%d", max(1, c.Layout.DP), c.Layout.FSDP/near, near))
	if err != nil {
		return nil, nil, nil, err
	}
	cfg := fsdp.Config{Shard: mesh.Group("host", "gpu"), Stage: c.Stage, Compute: c.Params, Reduce: c.Reduce}
	lanes := []string{"allgatherv fsdp", "reducescatterv fsdp"}
	if c.Layout.DP > 1 {
		cfg.Replicate = mesh.Group("dp")
		lanes = append(lanes, "allreduce dp")
	}
	if c.Host > 0 {
		cfg.Host = mesh.Group("gpu")
		lanes = append(lanes, "allgatherv host")
	}
	if c.Int8 {
		cfg.Weights = fsdp.Int8
	}
	if c.Int4 {
		cfg.Grads = fsdp.Int4
		lanes = append(lanes, "alltoallv host", "alltoallv hosts")
	}
	s := fsdp.New(cfg)
	s.Keep(m[0])
	s.Unit(m[2])
	s.Unit(m[4])
	s.Unit(m[6])
	params, err := s.Attach(m)
	by := map[string]*dist.Group{}
	for i, g := range s.Groups() {
		by[lanes[i]] = g
	}
	return params, s, by, err
}

// train does some steps and returns the counts of rank 0.
func train(t *testing.T, c plan.Config, frozen ...int) (m measured) {
	err := disttest.OnRanks(c.Layout.Ranks(), func(r *dist.Rank) error {
		model := chain()
		for _, i := range frozen {
			for _, p := range nn.Within(model[i]) {
				p.Freeze()
			}
		}
		params, norm, groups, err := attach(r, model, c)
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{Clip: 1, Norm: norm})
		tape := tensor.NewTape(r.Device)
		defer tape.Close()
		x, y := tensor.New(r.Device, c.Params, 4, 7).WithRows(r.World.Rows(4*r.World.Rank(), 4*r.World.Size())),
			tensor.New(r.Device, tensor.Int64, 4)
		sent := map[string]int{}
		wire := func(lane string) int {
			op, _, _ := strings.Cut(lane, " ")
			return int(groups[lane].Stats().Wire[op])
		}
		for step := range 3 {
			for lane := range groups {
				if step == 2 {
					sent[lane] = -wire(lane)
				}
			}
			tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y))
			disttest.OK(opt.Step())
			tape.Reset()
		}
		for lane := range groups {
			sent[lane] += wire(lane)
		}
		all, err := dist.AllGatherObject(r.World, sent)
		if r.World.Rank() == 0 {
			m = measured{r.Device.Memory().ByName(), map[string]int{}}
			for _, one := range all {
				for lane, n := range one {
					m.sent[lane] += n
				}
			}
		}
		return err
	})
	require.NoError(t, err)
	return m
}

// What ddp, fsdp and optim allocate and send is planned to the byte, also with copies of the model, uneven parts, units of different
// sizes, and gradients in 16 bits.
func TestReality(t *testing.T) {
	half := tensor.BFloat16
	cases := []plan.Config{{}, {Layout: plan.Layout{DP: 3}}, {Layout: plan.Layout{DP: 2}, Reduce: half},
		{Layout: plan.Layout{DP: 2}, Params: half}, {Layout: plan.Layout{DP: 2}, Params: tensor.Float64}}
	for stage := 1; stage <= 3; stage++ {
		cases = append(cases, plan.Config{Layout: plan.Layout{FSDP: 3}, Stage: stage},
			plan.Config{Layout: plan.Layout{FSDP: 2}, Stage: stage, Params: half}, plan.Config{Layout: plan.Layout{FSDP: 2}, Stage: stage,
				Params: half, Reduce: half}, plan.Config{Layout: plan.Layout{DP: 2, FSDP: 2}, Stage: stage},
			plan.Config{Layout: plan.Layout{FSDP: 3}, Stage: stage, Int8: true})
	}
	for _, c := range []plan.Config{{Host: 2}, {Host: 2, Int8: true}, {Host: 2, Int4: true}, {Host: 2, Int8: true, Int4: true, Params: half},
		{Host: 1, Int4: true}, {Host: 4, Int8: true, Int4: true}} {
		c.Layout.FSDP, c.Stage = 4, 3
		cases = append(cases, c)
		c.Layout = plan.Layout{DP: 2, FSDP: 2 * c.Host}
		cases = append(cases, c)
	}
	for n, c := range cases {
		if n%3 == 0 != reliability.Long(t) {
			compare(t, c, units)
		}
		for m, k := range [][]int{{0, 1}, {2}} {
			if (n+m)%3 == 2 == reliability.Long(t) {
				continue
			}
			some := slices.Clone(units)
			for _, i := range k {
				some[i] = plan.Unit{Frozen: units[i].Params, Keep: units[i].Keep}
			}
			compare(t, c, some, k...)
		}
	}
}

func TestLongReality(t *testing.T) { reliability.AsLong(t, TestReality) }

// compare trains a chain with some frozen units.
func compare(t *testing.T, c plan.Config, units []plan.Unit, frozen ...int) {
	layers := make([]int, len(frozen))
	for i, k := range frozen {
		layers[i] = 2 * k
	}
	p, err := plan.New(plan.Model{Units: units}, c)
	require.NoError(t, err)
	got := train(t, c, layers...)
	for _, it := range p.Memory {
		n := got.memory[it.Name].Peak
		if it.Kind == memory.Communication && c.Int4 { // some sums ended before the next codes needed memory
			require.LessOrEqual(t, n, it.Bytes, "%+v, %v frozen: %s", c, frozen, it.Formula)
			require.Greater(t, n, it.Bytes*6/10, "%+v, %v frozen: %s", c, frozen, it.Formula)
			continue
		}
		if it.Kind == memory.Communication && c.Stage > 1 && n < it.Bytes {
			n += largest(units) * c.Reduce.Size() // a reduction ended before the next gradients needed memory
		}
		require.Equal(t, it.Bytes, n, "%+v, %v frozen: %s = %s", c, frozen, it.Name, it.Formula)
	}
	for lane, sent := range got.sent {
		op, axis, _ := strings.Cut(lane, " ")
		require.Equal(t, p.SentBy(strings.TrimSuffix(op, "v"), axis), sent, "%+v, %v frozen: %s", c, frozen, lane)
	}
}

// largest is the number of trained elements of the largest unit that is not kept.
func largest(units []plan.Unit) (n int) {
	for _, u := range units {
		if !u.Keep && len(u.Params) > 0 {
			n = max(n, u.Params[0]+u.Params[1])
		}
	}
	return n
}
