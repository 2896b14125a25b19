package train_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
	"github.com/ringo-ml/ringo/train"
)

// Moments of a rank's function, and of a step in it.
const (
	begins  = "begins"  // the function
	started = "started" // Start is over
	forward = "forward" // before Backward
	summed  = "summed"  // before the optimizer's step
	stepped = "stepped" // after it
	test    = "test"    // in an evaluation
)

// errGone ends a rank's function as if its process were killed: the others see that it has left, and no error of its own.
var errGone = errors.New("gone")

// errStuck is what a rank sees of a loss that other ranks do not see yet.
var errStuck = &dist.Error{Rank: 9, Group: "world", Cause: errors.New("lost in the middle of a sum")}

// shrinking is a training of the points whose ranks are lost.
type shrinking struct {
	train.Options
	ranks, steps int
	stateful     bool // with running statistics, dropout, and a Scaler that skips step 4
	// at is called by each rank, by its first number, at each moment; size is that of its world.
	at func(rank, size, step int, when string) error

	mu      sync.Mutex
	ranksOf map[*dist.Rank]*shrunk
}

// shrunk is what a rank of it knows at the end.
type shrunk struct {
	rank, calls, starts int
	ended               bool
	weights             []float64
	losses              map[int]float64
	tests               []float64   // values of the evaluation
	count               int         // steps, in the extra state
	scale               float64     // of the Scaler
	times               map[int]int // that it did each optimizer step
}

// of returns what a rank knows, from its first call on.
func (s *shrinking) of(r *dist.Rank) *shrunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ranksOf[r] == nil {
		s.ranksOf[r] = &shrunk{rank: r.World.Rank(), times: map[int]int{}}
	}
	return s.ranksOf[r]
}

// run returns what the ranks know that came to the end.
func (s *shrinking) run() (left map[int]*shrunk, err error) {
	s.Threads, s.Quiet, s.ranksOf = 1, true, map[*dist.Rank]*shrunk{}
	err = s.Run(dist.Config{Ranks: s.ranks, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		if err := s.train(ctx, r, s.of(r)); !errors.Is(err, errGone) {
			return err
		}
		return nil
	})
	left = map[int]*shrunk{}
	for _, x := range s.ranksOf {
		if x.ended {
			left[x.rank] = x
		}
	}
	return left, err
}

func (s *shrinking) train(ctx context.Context, r *dist.Rank, x *shrunk) error {
	x.calls++
	x.count = 0
	at := func(step int, when string) error { return s.at(x.rank, r.World.Size(), step, when) }
	if err := at(0, begins); err != nil {
		return err
	}
	model, scaler := s.model(r)
	params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1 + uint64(x.starts)}) // other values
	if err != nil {
		return err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 5e-2, Clip: 1, Scaler: scaler})
	tape := tensor.NewTape(r.Device)
	batches := data.NewLoader(points{}, data.Config{Batch: 7, Shuffle: true, Sharder: r.World, Device: r.Device})
	l, err := train.Start(ctx, r, &s.Options, ckpt.State{Params: params, Optimizer: opt, Tape: tape, Extra: map[string]any{"count": &x.count}})
	if err != nil {
		return err
	}
	x.starts++
	now := 0
	evaluate(l, r, model, func() error { return at(now, test) })
	if err := at(0, started); err != nil {
		return err
	}
	for step, b := range l.Batches(batches, s.steps) {
		now = step
		loss := nn.MSE(model.Forward(tape.Input(b.X)), b.Y)
		l.Sum("loss", loss)
		if err := at(step, forward); err != nil {
			return err
		}
		if scaler == nil {
			tape.Backward(loss)
		} else if step == 4 {
			tape.Backward(loss.Affine(math.MaxFloat64, 0), tensor.Scale(scaler.Scale)) // overflows
		} else {
			tape.Backward(loss, tensor.Scale(scaler.Scale))
		}
		if err := at(step, summed); err != nil {
			return err
		}
		if err := opt.Step(); err != nil {
			return err
		}
		x.count++
		x.times[step]++
		tape.Reset()
		if err := at(step, stepped); err != nil {
			return err
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	if scaler != nil {
		x.scale = scaler.Scale
	}
	x.ended, x.losses = true, map[int]float64{}
	_, x.tests = l.Values("test")
	steps, losses := l.Values("loss")
	for i, step := range steps {
		x.losses[step] = losses[i]
	}
	for _, p := range params {
		x.weights = append(x.weights, tensor.Floats(p.Value)...) // of buffers, too
	}
	return nil
}

// evaluate has the loop measure the model after every fifth step, with a moment of its own.
func evaluate(l *train.Loop, r *dist.Rank, model nn.Layer, at func() error) {
	tape, points := tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Eval()), data.NewLoader(points{}, data.Config{Batch: 9, Sharder: r.World})
	l.Evaluate("test", 5, points, func(b data.Batch) (float64, error) {
		defer tape.Reset()
		return model.Forward(tape.Input(b.X)).Square().Sum().Item(), at()
	})
}

// model returns the model and, with a stateful one, the Scaler.
func (s *shrinking) model(r *dist.Rank) (nn.Sequential, *optim.Scaler) {
	if !s.stateful {
		return nn.Sequential{nn.NewLinear(3, 5), nn.Tanh, nn.NewLinear(5, 1)}, nil
	}
	m := nn.Sequential{nn.NewLinear(3, 5), nn.NewBatchNorm2d(5), nn.Tanh, nn.NewDropout(0.25), nn.NewLinear(5, 1)}
	nn.SyncBatchNorm(m, &autograd.AllReduce{Group: r.World})
	return m, optim.NewScaler()
}

// dies ends some ranks at a moment of a step, in the first world.
func dies(ranks, step int, when string, who ...int) func(rank, size, at int, moment string) error {
	return func(rank, size, at int, moment string) error {
		for _, dead := range who {
			if size <= ranks && rank == dead && at == step && moment == when {
				return errGone
			}
		}
		return nil
	}
}

// diesLast ends a rank at a moment of a step that all others have reached.
func diesLast(ranks, step int, when string, who int) func(rank, size, at int, moment string) error {
	var there sync.WaitGroup
	there.Add(ranks - 1)
	return func(rank, size, at int, moment string) error {
		switch {
		case size < ranks || at != step || moment != when:
			return nil
		case rank == who:
			there.Wait()
			return errGone
		}
		there.Done()
		return nil
	}
}

// TestLostRanks loses ranks at each moment of a step. Those that are left have the values of one rank that trained on all rows, whether
// the step counts or is done again.
func TestLostRanks(t *testing.T) {
	t.Setenv("RINGO_REBUILD", "1")
	for name, c := range map[string]lostCase{
		"before the sum":     {4, dies(4, 4, forward, 2), []int{0, 1, 3}, 0},
		"at an epoch's end":  {4, dies(4, 5, forward, 1), []int{0, 2, 3}, 0},
		"in the first step":  {3, dies(3, 0, forward, 2), []int{0, 1}, 0},
		"before any step":    {3, dies(3, 0, begins, 2), []int{0, 1}, 0},
		"rank 0":             {3, dies(3, 4, forward, 0), []int{1, 2}, 0},
		"after the sum":      {4, dies(4, 4, summed, 3), []int{0, 1, 2}, 0},
		"after the step":     {4, dies(4, 4, stepped, 3), []int{0, 1, 2}, 0},
		"in an evaluation":   {4, dies(4, 4, test, 2), []int{0, 1, 3}, 3},
		"in the last one":    {4, dies(4, 10, test, 1), []int{0, 2, 3}, 0},
		"two at once":        {5, dies(5, 6, forward, 0, 3), []int{1, 2, 4}, 0},
		"one of two":         {2, dies(2, 6, forward, 1), []int{0}, 0},
		"one after another":  {5, both(dies(5, 2, forward, 0), dies(4, 8, summed, 4)), []int{1, 2, 3}, 0},
		"while others begin": {5, both(dies(5, 2, forward, 1), dies(4, 0, begins, 3)), []int{0, 2, 4}, 0},
		"as others go on":    {5, both(dies(5, 2, forward, 1), dies(4, 0, started, 3)), []int{0, 2, 4}, 0},
		"rank 1 is behind":   {4, stuck(1), []int{0, 1, 2}, 2},
		"rank 0 is behind":   {4, stuck(0), []int{0, 1, 2}, 2},
		"a panic":            {4, panics(0), []int{0, 1, 2}, 1},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, false) })
	}
}

// TestLostRanksWithState is TestLostRanks where more than parameters and moments must go on: running statistics, which forward changes,
// masks of dropout, and a Scaler that skips step 4, which none may do again.
func TestLostRanksWithState(t *testing.T) {
	t.Setenv("RINGO_REBUILD", "1")
	for name, c := range map[string]lostCase{
		"before the step that is skipped": {3, diesLast(3, 4, forward, 1), []int{0, 2}, 2},
		"after it":                        {4, panics(0), []int{0, 1, 2}, 1},
		"in the next one":                 {3, diesLast(3, 5, forward, 0), []int{1, 2}, 2},
		"later":                           {3, diesLast(3, 7, summed, 2), []int{0, 1}, 2},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, true) })
	}
}

// lostCase is a loss of ranks.
type lostCase struct {
	ranks int
	at    func(rank, size, step int, when string) error
	left  []int
	times int // how often the ranks that are left do the optimizer's step 4; 0: that depends
}

// check compares the ranks that are left with one rank that trained on all rows.
func (c *lostCase) check(t *testing.T, stateful bool) {
	const steps = 11 // of 7, 7 and 6 rows
	tol := 1e-10
	if stateful {
		tol = 1e-8 // AdamW makes much of the gradients of a bias before a BatchNorm, which are 0 but for rounding
	}
	alone := shrinking{ranks: 1, steps: steps, stateful: stateful, at: dies(0, 0, "")}
	one, err := alone.run()
	require.NoError(t, err)
	many := shrinking{ranks: c.ranks, steps: steps, stateful: stateful, at: c.at}
	left, err := many.run()
	require.NoError(t, err)
	require.Len(t, left, len(c.left))
	times := 0
	for _, rank := range c.left {
		require.Contains(t, left, rank)
		x := left[rank]
		require.Greater(t, x.calls, 1)
		require.InDeltaSlice(t, one[0].weights, x.weights, tol)
		require.Equal(t, left[c.left[0]].weights, x.weights)
		require.Equal(t, one[0].scale, x.scale)
		require.Equal(t, steps, x.count)
		require.Len(t, x.tests, 3)
		require.InDeltaSlice(t, one[0].tests, x.tests, tol)
		for step, loss := range x.losses {
			require.InDelta(t, one[0].losses[step], loss, 1e-10, "step %d", step)
		}
		require.GreaterOrEqual(t, len(x.losses), steps-2, "those of the step before a loss may be lost")
		times += x.times[4]
	}
	if c.times > 0 {
		require.Equal(t, c.times, times)
	}
}

func both(f, g func(rank, size, step int, when string) error) func(rank, size, step int, when string) error {
	return func(rank, size, step int, when string) error {
		return cmp.Or(f(rank, size, step, when), g(rank, size, step, when))
	}
}

// stuck loses rank 3 of 4 after step 4, before the optimizer's step of one rank and after those of the others.
func stuck(who int) func(rank, size, step int, when string) error {
	var done sync.WaitGroup
	done.Add(3)
	return func(rank, size, step int, when string) error {
		switch {
		case size < 4 || step != 4:
		case when == summed && rank == who:
			done.Wait()
			return errStuck
		case when == stepped:
			done.Done()
			if rank == 3 {
				done.Wait()
				return errGone
			}
		}
		return nil
	}
}

// panics loses rank 3 of 4 after step 4. In the code behind the optimizer's step, one of the others panics; the rest are before that step.
func panics(who int) func(rank, size, step int, when string) error {
	var done sync.WaitGroup
	done.Add(2)
	return func(rank, size, step int, when string) error {
		switch {
		case size < 4 || step != 4:
		case when == summed && rank != who && rank != 3:
			done.Wait()
			return errStuck
		case when == stepped:
			done.Done()
			done.Wait()
			if rank == who {
				panic(&tensor.Failure{Op: "sum of a metric", Err: errStuck})
			}
			return errGone
		}
		return nil
	}
}

// A rank that fails by itself, and a failure that all ranks survive, end the job.
func TestFailuresEnd(t *testing.T) {
	t.Setenv("RINGO_REBUILD", "1")
	for _, why := range []error{errors.New("a bad row"), errStuck} {
		failing := shrinking{ranks: 3, steps: 5, at: func(rank, size, step int, when string) error {
			if step == 2 && when == summed && (rank == 1 || why == errStuck) {
				return why
			}
			return nil
		}}
		left, err := failing.run()
		require.ErrorContains(t, err, why.Error())
		require.Empty(t, left)
	}
}

// Checkpoints go on after the loss of a rank, and values in a file, of which one step's may be missing.
func TestLostRankSaves(t *testing.T) {
	t.Setenv("RINGO_REBUILD", "1")
	many := shrinking{ranks: 3, steps: 8, at: dies(3, 4, forward, 0)}
	many.Save, many.SaveEvery, many.Metrics = t.TempDir(), 4, t.TempDir()+"/m.jsonl"
	left, err := many.run()
	require.NoError(t, err)
	require.Len(t, left, 2)
	paths, err := ckpt.Steps(many.Save)
	require.NoError(t, err)
	require.Len(t, paths, 2)
	steps, _ := valuesIn(t, many.Metrics, "loss")
	require.GreaterOrEqual(t, len(steps), 7)
	require.Equal(t, 8, steps[len(steps)-1])
}

// What needs all ranks says so when it begins.
func TestCannotRebuild(t *testing.T) {
	t.Setenv("RINGO_REBUILD", "1")
	sharded := run{ranks: 2, steps: 1, sharded: true}
	_, err := sharded.train()
	require.ErrorContains(t, err, "fsdp: ringo run -rebuild goes on without a lost rank, but fsdp divides")
	err = dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		return tp.Parallelize(nn.NewLinear(2, 2), tp.Config{Group: r.World}, func(*tp.Parallel) {})
	})
	require.ErrorContains(t, err, "tp: ringo run -rebuild")
	require.ErrorContains(t, moe.Parallelize(moe.Ranks{}), "moe: ringo run -rebuild")
	err = tensor.Try(func() { (&cp.Ulysses{}).Part(tensor.Tensor{}) })
	require.ErrorContains(t, err, "cp: ringo run -rebuild")
	for _, st := range []func(params nn.Params) ckpt.State{
		func(params nn.Params) ckpt.State { return ckpt.State{Params: params} },
		func(params nn.Params) ckpt.State {
			return ckpt.State{Params: params, Optimizer: optim.NewSGD(params, optim.SGDConfig{LR: 1})}
		},
	} {
		o := train.Options{Threads: 1, Quiet: true}
		err = o.Run(dist.Config{}, func(ctx context.Context, r *dist.Rank) error {
			params := nn.Init(nn.NewLinear(2, 2), r.Device, tensor.Float64, 1)
			_, err := train.Start(ctx, r, &o, st(params))
			return err
		})
		require.ErrorContains(t, err, "-max-restarts with checkpoints")
	}
}
