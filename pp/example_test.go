package pp_test

import (
	"context"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// What three ranks do with four microbatches, what that takes, and what is too much.
func ExampleSchedule_Check() {
	s := pp.OneF1B(3, 4)
	if err := s.WriteCSV(os.Stdout); err != nil {
		fmt.Println(err)
	}
	rep, err := s.Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{Live: 3})
	fmt.Printf("%v units of time, %.0f%% of it waits; microbatches that ranks hold: %v %v\n", rep.Time, 100*rep.Bubble, rep.Live, err)
	_, err = pp.GPipe(1, 4).Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{Live: 3})
	fmt.Println(err)
	// Output:
	// 0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3
	// 1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3
	// 2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3
	// 18 units of time, 33% of it waits; microbatches that ranks hold: [3 2 1] <nil>
	// pp: schedule gpipe: rank 0 holds activations of 4 microbatches, and the limit is 3
}

// Two ranks train a GPT-2 of four layers on a V: rank 0 has the first and the last stage, and so the tied table once.
func ExamplePipeline() {
	const micros, batch, time = 4, 8, 3
	err := dist.Run(context.Background(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		s, err := pp.ZBV(2, micros)
		if err != nil {
			return err
		}
		m, err := gpt.New(gpt.Config{Vocab: 11, Positions: time, Width: 8, Layers: 4, Heads: 2, Tied: true})
		if err != nil {
			return err
		}
		first, last := r.World.Rank(), 3-r.World.Rank()
		parts, err := m.Stages([]int{1, 1, 1, 1}, first, last)
		if err != nil {
			return err
		}
		params := nn.Init(m, r.Device, tensor.Float32, 1) // or Attach of ddp or fsdp, over ranks with other rows
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.02, Clip: 1, Norm: r.World})
		stages := map[int]pp.Stage{}
		for i, part := range parts {
			stages[i] = func(t *tensor.Tape, micro int, x tensor.Tensor) tensor.Tensor {
				ids, next := counting(micro, batch/micros, time, batch)
				if i == 0 {
					x = t.Input(ids)
				}
				x = part.Forward(x, batch/micros, time)
				if i == len(s.Ranks)-1 {
					x = nn.CrossEntropy(x, next)
				}
				return x
			}
		}
		tape := tensor.NewTape(r.Device, tensor.Seed(1))
		p, err := pp.New(pp.Config{Group: r.World, Schedule: s, Stages: stages, Tape: tape, Params: params, Optimizer: opt})
		if err != nil {
			return err
		}
		defer p.Close()
		var losses [2]float64
		for step := range 60 {
			if losses[min(step, 1)], err = p.Step(); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
		}
		if r.World.Rank() == s.Ranks[len(s.Ranks)-1] {
			fmt.Println(losses[1] < losses[0]/10)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// counting returns rows of a microbatch that count on, and what follows them.
func counting(micro, rows, time, total int) (ids, next tensor.Tensor) {
	a, b := make([]int64, rows*time), make([]int64, rows*time)
	for i := range a {
		a[i] = int64((micro*rows + i/time + i%time) % 11)
		b[i] = (a[i] + 1) % 11
	}
	at := tensor.Rows{First: micro * rows, Stride: 1, Total: total}
	return tensor.FromSlice(a, rows, time).WithRows(at), tensor.FromSlice(b, rows, time).WithRows(at)
}
