// Package resume is a program that trains a small network with dropout on data-parallel ranks, saves a checkpoint in DIR
// every three steps, and goes on from the latest one. In float16 the loss scale begins too large, so that some steps are skipped. In generation g,
// rank 1 fails before step CRASH[g-1]; there is no failure in later generations. If CRASH is "wait7", all ranks wait before
// step 7 for somebody to end them. Rank 0 prints the bits of each loss.
//
//	resume DTYPE DIR STEPS [CRASH...]
package resume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
)

// Main is the program.
func Main() {
	if err := dist.Run(context.Background(), dist.Config{Threads: 1}, run); err != nil {
		fmt.Printf("error: %v\n", err)
		os.Exit(1)
	}
}

// trainer is one rank.
type trainer struct {
	r      *dist.Rank
	dtype  tensor.DType
	scaler *optim.Scaler // in float16
	done   int           // steps, also those that the optimizer skipped
	model  nn.Sequential
	params nn.Params
	opt    *optim.Optimizer
	tape   *tensor.Tape
	loader *data.Loader
}

func run(ctx context.Context, r *dist.Rank) error {
	steps, _ := strconv.Atoi(os.Args[3])
	crash, wait := -1, false
	if crashes := os.Args[4:]; r.Generation() > 0 && r.Generation() <= len(crashes) {
		var number string
		number, wait = strings.CutPrefix(crashes[r.Generation()-1], "wait")
		crash, _ = strconv.Atoi(number)
	}
	t, err := newTrainer(r)
	if err != nil {
		return err
	}
	if err := t.resume(ctx); err != nil {
		return err
	}
	saver := ckpt.NewSaver(r.World, os.Args[2], ckpt.Config{Keep: 2, Async: true})
	for e := t.loader.State().Epoch; t.done < steps; e++ {
		for _, b := range t.loader.Epoch(ctx, e) {
			if t.done == crash {
				if err := t.fail(ctx, saver, crash, wait); err != nil {
					return err
				}
			}
			if err := t.step(b); err != nil {
				return err
			}
			if t.done%3 == 0 {
				at := t.loader.State()
				if err := saver.Save(ctx, t.state(&at)); err != nil {
					return err
				}
				r.Progress(t.done - 1)
			}
			if t.done == steps {
				break
			}
		}
		if err := t.loader.Err(); err != nil {
			return err
		}
	}
	return saver.Close()
}

// fail fails on rank 1, or waits on all, when rank 0 has printed the losses before.
func (t *trainer) fail(ctx context.Context, saver *ckpt.Saver, step int, wait bool) error {
	if err := errors.Join(saver.Close(), t.r.World.Barrier().Wait()); err != nil {
		return err
	}
	if wait {
		fmt.Printf("rank %d of %d waits\n", t.r.World.Rank(), t.r.World.Size())
		<-ctx.Done()
		return ctx.Err()
	}
	if t.r.World.Rank() == 1 {
		return fmt.Errorf("crash in step %d", step)
	}
	return nil
}

func newTrainer(r *dist.Rank) (*trainer, error) {
	dtype, err := tensor.ParseDType(os.Args[1])
	if err != nil {
		return nil, err
	}
	t := &trainer{r: r, dtype: dtype, model: nn.Sequential{nn.NewLinear(784, 16), nn.ReLU, nn.NewDropout(0.3), nn.NewLinear(16, 10)}}
	if t.params, err = ddp.Attach(r.World, t.model, ddp.Config{DType: dtype, Seed: 3}); err != nil {
		return nil, err
	}
	if dtype == tensor.Float16 {
		t.scaler = &optim.Scaler{Scale: 1 << 24}
	}
	t.opt = optim.NewAdamW(t.params, optim.AdamWConfig{LR: 0.01, Schedule: schedule.Cosine(0.1, 20), Scaler: t.scaler})
	t.tape = tensor.NewTape(r.Device, tensor.Seed(3))
	set, err := data.Synthetic(200, 3, dtype)
	if err != nil {
		return nil, err
	}
	t.loader = data.NewLoader(set, data.Config{Batch: 40, Shuffle: true, Seed: 3, Sharder: r.World, Device: r.Device})
	return t, nil
}

func (t *trainer) state(at *data.State) ckpt.State {
	return ckpt.State{Step: t.done, Params: t.params, Optimizer: t.opt, Tape: t.tape, Extra: map[string]any{"loader": at}}
}

func (t *trainer) resume(ctx context.Context) error {
	path, err := ckpt.Latest(os.Args[2])
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var at data.State
	st := t.state(&at)
	if _, err := ckpt.Load(ctx, t.r.World, path, &st, ckpt.LoadConfig{}); err != nil {
		return err
	}
	t.r.Logf("resumed at %d of %d ranks", st.Step, t.r.World.Size())
	t.done = st.Step
	return t.loader.SetState(at)
}

func (t *trainer) step(b data.Batch) error {
	loss := nn.CrossEntropy(t.model.Forward(t.tape.Input(b.X)), b.Y)
	sum := []float64{loss.Item()}
	scale := 1.0
	if t.scaler != nil {
		scale = t.scaler.Scale
	}
	t.tape.Backward(loss, tensor.Scale(scale))
	err := t.opt.Step()
	t.tape.Reset()
	if err == nil {
		err = t.r.World.SumFloats(sum)
	}
	if err == nil {
		t.r.Logf("step %d loss %016x", t.done, math.Float64bits(sum[0]))
		t.done++
	}
	if err == nil && t.scaler != nil && t.done == 13 && t.opt.Steps() > 8 {
		err = fmt.Errorf("%d steps were done; some before and after each checkpoint should overflow", t.opt.Steps())
	}
	return err
}
