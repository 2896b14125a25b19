package peer_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// operations are all kinds of operations on device memory, from x into y. Their Works are given to wait. Each of y's 12 elements is
// written.
var operations = map[string]func(g *dist.Group, y, x tensor.Tensor, wait func(...dist.Work) error) error{
	"broadcast": func(g *dist.Group, y, x tensor.Tensor, wait func(...dist.Work) error) error {
		tensor.Copy(y, x)
		return wait(g.Broadcast(y, 1))
	},
	"allreduce": func(g *dist.Group, y, x tensor.Tensor, wait func(...dist.Work) error) error {
		tensor.Copy(y, x)
		return wait(g.AllReduce(y, dist.PreMulSum(0.5)))
	},
	"reduce and scatter": func(g *dist.Group, y, x tensor.Tensor, wait func(...dist.Work) error) error {
		tensor.Copy(y, x)
		err := wait(g.Reduce(y, dist.Max, 0))
		from := y
		if g.Rank() > 0 {
			from = tensor.Tensor{}
		}
		return errors.Join(err, wait(g.Scatter(y.Range(6*g.Rank(), 6*g.Rank()+6), from, 0)))
	},
	"gathers": func(g *dist.Group, y, x tensor.Tensor, wait func(...dist.Work) error) error {
		return wait(g.AllGather(y.Range(0, 8), x.Range(0, 4)), g.AllGatherV(y.Range(8, 12), x.Range(g.Rank(), 1+3*g.Rank()), []int{1, 3}))
	},
	"scatters": func(g *dist.Group, y, x tensor.Tensor, wait func(...dist.Work) error) error {
		tensor.Copy(y, x)
		part := y.Range(6*g.Rank(), 6*g.Rank()+6)
		return wait(g.ReduceScatter(part, x, dist.Sum), g.AllGather(y, part))
	},
	"all to all": func(g *dist.Group, y, x tensor.Tensor, wait func(...dist.Work) error) error {
		n := [][]int{{2, 1}, {1, 4}}[g.Rank()]
		err := wait(g.AllToAll(y.Range(5, 11), x.Range(0, 6)), g.AllToAllV(y.Range(0, n[0]+n[1]), x.Range(12-n[0]-n[1], 12), n, n))
		tensor.Copy(y.Range(11, 12), x.Range(2, 3))
		clear(n) // the caller uses its memory again
		return err
	},
	"messages": func(g *dist.Group, y, x tensor.Tensor, wait func(...dist.Work) error) error {
		peer := 1 - g.Rank()
		w := g.Batch(func(b *dist.Batch) {
			b.Recv(y.Range(0, 6), peer, 1)
			b.Send(x.Range(6, 12), peer, 1)
		})
		return wait(w, g.Send(x.Range(0, 6), peer, 2), g.Recv(y.Range(6, 12), peer, 2), g.Barrier())
	},
}

// waits waits for the operations at once.
func waits(works ...dist.Work) (err error) {
	for _, w := range works {
		err = errors.Join(err, w.Wait())
	}
	return err
}

// Every operation does the same in replays as in ordinary runs, if the step waits for it, and if only the end of the step does. In the
// short form, ranks have two GPUs.
func TestCapturedOperations(t *testing.T) {
	for i, gpus := range []int{1, 2, 1, 2} {
		if gpus == 1 && !reliability.Long(t) {
			continue
		}
		start, way := machine(t, gpus, emu.Config{Lazy: true}), ways[i/2]
		t.Setenv("RINGO_ALGO", "allreduce:"+way)
		for name, op := range operations {
			if way == algo.TwoShot && name != "allreduce" {
				continue
			}
			for _, late := range []bool{false, true} {
				require.NoError(t, start(t, 2, dist.Config{Threads: 1}, func(r *dist.Rank) error { return runsAlike(r, op, late) }),
					"%s, late %v", name, late)
			}
		}
	}
}

func TestLongCapturedOperations(t *testing.T) { reliability.AsLong(t, TestCapturedOperations) }

// runsAlike does steps that run, and captured ones. If late, they wait for nothing: the caller waits, and replays wait at their end.
func runsAlike(r *dist.Rank, op func(*dist.Group, tensor.Tensor, tensor.Tensor, func(...dist.Work) error) error, late bool) error {
	var results [2][]float64
	for k := range results {
		wait, left := waits, []dist.Work(nil)
		if late {
			wait = func(works ...dist.Work) error {
				left = append(left, works...)
				return nil
			}
		}
		x, y := tensor.New(r.Device, tensor.Float32, 12), tensor.New(r.Device, tensor.Float32, 12)
		tensor.UniformInit(-1, 1).Fill(x, uint64(r.World.Rank()), 0)
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		step := func(...tensor.Tensor) error {
			err := op(r.World, y, x, wait)
			tape.Reset()
			return err
		}
		captured := capture.New(r.Device, step)
		if k == 1 {
			step = captured.Run
		}
		for range 8 {
			if err := errors.Join(step(), waits(left...)); err != nil {
				return err
			}
			left = nil
			tensor.Copy(x, tape.Input(x).Affine(0.3, 0.1).Add(tape.Input(y)))
			results[k] = append(results[k], tensor.Floats(x)...)
		}
		tape.Close()
		if err := captured.Close(); err != nil {
			return err
		}
	}
	if fmt.Sprint(results[0]) != fmt.Sprint(results[1]) {
		return fmt.Errorf("runs leave %v, replays %v", results[0], results[1])
	}
	return nil
}

// A replay has one launch for each part of the step between operations. It allocates nothing on the Go heap. It does not wait for the
// device, and does not copy between device and host.
func TestCapturedStepsAreSteady(t *testing.T) {
	start := machine(t, 1, emu.Config{})
	quietest := ^uint64(0)
	defer reliability.SteadyRuntime()()
	require.NoError(t, start(t, 2, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		gpu, g := r.Device.(*cuda.Device).GPU(), r.World
		x, y := tensor.New(r.Device, tensor.Float32, 3000), tensor.New(r.Device, tensor.Float32, 3000)
		step := capture.New(r.Device, func(...tensor.Tensor) error {
			tensor.Copy(y, x)
			tensor.Copy(x, y) // one launch
			a, b := g.AllReduce(x.Range(0, 1000), dist.Avg), g.AllReduce(x.Range(1000, 3000), dist.Avg)
			tensor.Copy(y.Range(0, 10), y.Range(20, 30)) // another one
			if err := waits(a, b); err != nil {
				return err
			}
			tensor.Copy(y, x) // and the last
			return nil
		})
		defer step.Close()
		for range 5 {
			if err := step.Run(); err != nil {
				return err
			}
		}
		var before, after runtime.MemStats
		for range 10 {
			if err := g.Barrier().Wait(); err != nil {
				return err
			}
			stats := gpu.Stats()
			runtime.ReadMemStats(&before)
			if err := g.Barrier().Wait(); err != nil {
				return err
			}
			for range 5 {
				if err := step.Run(); err != nil {
					return err
				}
			}
			if err := g.Barrier().Wait(); err != nil {
				return err
			}
			runtime.ReadMemStats(&after)
			now := gpu.Stats()
			if got, want := now.Launches-stats.Launches, int64(2*5*(3+2)); got != want { // on both ranks; each rank reduces its part
				return fmt.Errorf("%d launches, not %d", got, want)
			}
			if now.Launches = stats.Launches; now != stats {
				return fmt.Errorf("the steps waited for the device, or copied: %+v, before %+v", now, stats)
			}
			if g.Rank() == 0 {
				quietest = min(quietest, after.Mallocs-before.Mallocs)
			}
		}
		return nil
	}))
	if !reliability.Racing {
		require.Zero(t, quietest, "allocations of both ranks in five steps")
	}
}

// If a collective fails in a replay, Run returns the error, and the step cannot be used any more. No rank waits longer than for any other
// collective.
func TestReplayFails(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	boom := errors.New("boom")
	for name, fail := range map[string]func(g *dist.Group) error{
		"rank 1: boom":    func(*dist.Group) error { return boom },
		"rank 1: aborted": func(g *dist.Group) error { g.Abort(errors.New("aborted")); return boom },
		"rank 0: allreduce seq 7 of group world: rank 1 did not arrive within 4s": func(*dist.Group) error { return nil },
	} {
		timeout := time.Minute // the cases that do not wait for it
		if strings.Contains(name, "4s") {
			timeout = 4 * time.Second
		}
		start := machine(t, 1, emu.Config{})
		var got, again error
		gone := make(chan struct{})
		err := start(t, 2, dist.Config{Threads: 1, Timeout: timeout, Log: io.Discard}, func(r *dist.Rank) error {
			x := tensor.New(r.Device, tensor.Float32, 10)
			step := capture.New(r.Device, func(...tensor.Tensor) error { return r.World.AllReduce(x, dist.Sum).Wait() })
			defer step.Close()
			for i := range 8 {
				if i == 6 {
					tensor.Floats(x) // both ranks have ended the operations before
				}
				if i == 6 && r.World.Rank() == 1 {
					if err := fail(r.World); err != nil {
						return err
					}
					<-gone
				}
				if err := step.Run(); err != nil {
					if r.World.Rank() == 0 {
						got, again = err, step.Run()
						close(gone)
					}
					return err
				}
			}
			return nil
		})
		require.Error(t, err)
		require.ErrorContains(t, got, name)
		assert.ErrorContains(t, again, "capture: a captured step failed in a replay")
		assert.ErrorIs(t, again, got)
	}
}

// If a recorded step frees memory while an operation uses it, the memory is used again only after the step has waited for the operation.
// This does not depend on how fast the operation was in the recording, or in the runs before, which had no more memory than they needed.
func TestMemoryInCapturedSteps(t *testing.T) {
	const n = 1 << 19
	start := machine(t, 1, emu.Config{Delay: 100 * time.Microsecond})
	for _, early := range []bool{false, true} {
		if early && !reliability.Long(t) {
			continue
		}
		require.NoError(t, start(t, 1, dist.Config{Threads: 1}, func(r *dist.Rank) error {
			x, y, z := tensor.New(r.Device, tensor.Float32, n), tensor.New(r.Device, tensor.Float32, n), tensor.New(r.Device, tensor.Float32, n)
			tape, runs := tensor.NewTape(r.Device, tensor.NoGrad()), 0
			defer tape.Close()
			copies := make([]tensor.Tensor, 16)
			for i := range copies {
				copies[i] = tensor.New(r.Device, tensor.Float32, n)
			}
			step := capture.New(r.Device, func(...tensor.Tensor) (err error) {
				var w dist.Work
				for _, c := range copies { // the copies before it on the group's stream take longer than all computation
					r.World.AllGather(c, x) //discard: the step's end waits
				}
				tape.Scope(func(...tensor.Tensor) tensor.Tensor {
					w = r.World.AllGather(y, tape.Input(x).Affine(1, 1))
					return tape.Input(x.Range(0, 1)).Affine(1, 0)
				})
				if rec := tape.Recording(); rec != nil && !early {
					err = rec.Between(func() error { return w.WaitHost(t.Context()) })
				} else if rec == nil && early && runs < 2 {
					err = w.WaitHost(t.Context())
				}
				runs++
				tensor.Copy(z, tape.Input(x).Affine(-1, 5))
				before, waited := w.Done(), w.Wait()
				if err = errors.Join(err, waited); tape.Recording() != nil && before && !early || !w.Done() {
					err = errors.Join(err, errors.New("an operation is done before the step has waited for it, or not afterwards"))
				}
				tape.Reset()
				return err
			})
			defer step.Close()
			for i := range 6 {
				if err := step.Run(); err != nil {
					return err
				}
				if a, b := tensor.Floats(y)[7], tensor.Floats(z)[7]; a != float64(i+1) || b != float64(5-i) {
					return fmt.Errorf("step %d: %v and %v", i, a, b)
				}
				tensor.Copy(x, y)
			}
			return nil
		}), "early %v", early)
	}
}

func TestLongMemoryInCapturedSteps(t *testing.T) { reliability.AsLong(t, TestMemoryInCapturedSteps) }
