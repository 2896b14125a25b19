package disttest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Training is a training whose result must not depend on how ranks share it. With the zero values of all fields but Attach, one rank trains
// ten Steps of two microbatches, with weight decay, clipping and a seed for dropout; more ranks have uneven parts of the rows. Compare its
// Result with that of one rank by RequireEqual.
type Training struct {
	// Attach makes this rank's model, and divides it. m is nil without Mesh.
	Attach func(r *dist.Rank, m *dist.Mesh) (Attached, error)
	Mesh   string // axes of ranks, such as "dp=2,tp=2"
	Ranks  int    // 0: those of Mesh; without one, 1
	On     Launcher
	Name   string // what else tells it from other trainings, in messages

	Steps int                                              // 0: Steps
	Micro int                                              // microbatches of a step; 0: 2
	Batch int                                              // rows of a step; 0: 22. Microbatches may differ by one
	Part  func(rows, rank, ranks int) (first, n int)       // nil: the function Part
	Seed  uint64                                           // of the tape; 0: 3
	Trace int                                              // see dist.Config
	Rule  func(p nn.Params, n optim.Norm) *optim.Optimizer // nil: AdamW
}

// Steps are those of a Training that does not say how many. With the race detector they are fewer: each one has the same communication and
// goroutines, and those of ten are compared without it.
var Steps = 10

func init() {
	if reliability.Racing {
		Steps = 5 // the fifth is compared over the ranks, too
	}
}

// Attached is a rank's model. Only Params and one of Loss and Step are needed.
type Attached struct {
	Params nn.Params
	Norm   optim.Norm                  // of the optimizer
	Own    *optim.Optimizer            // in place of that of Rule
	Data   *dist.Group                 // ranks that have different rows; nil: all
	Sum    *dist.Group                 // ranks whose losses are parts of the whole one; nil: Data
	Loss   func(b Batch) tensor.Tensor // of a microbatch
	// Step is a whole step, with the optimizer's, in place of Loss. It returns this rank's parts of the losses of its microbatches.
	Step func(s *State) ([]float64, error)

	Start  func(s *State) error // before all steps. It may load a checkpoint, and set State.Step
	Before func(s *State) error // before each step
	After  func(s *State) error // after each step; State.Step is the step's number
	End    func(s *State) error // after all steps, before anything else is communicated
}

// State is a rank's training between steps.
type State struct {
	Rank      *dist.Rank
	Step      int // the number of the next step
	Params    nn.Params
	Optimizer *optim.Optimizer
	Tape      *tensor.Tape

	c    *Training
	data *dist.Group
}

// Batch returns this rank's part of a microbatch of the next step.
func (s *State) Batch(t *tensor.Tape, micro int) Batch {
	before := s.c.Batch * micro / s.c.Micro
	first, n := s.c.Part(s.c.Batch*(micro+1)/s.c.Micro-before, s.data.Rank(), s.data.Size())
	at := before + first
	return Batch{Tape: t, First: s.Step*s.c.Batch + at, N: n, Rows: s.data.Rows(at, s.c.Batch), dev: s.Rank.Device}
}

// Batch is the part of a microbatch that a rank has.
type Batch struct {
	Tape     *tensor.Tape
	First, N int         // numbers of its samples, of which each step has others
	Rows     tensor.Rows // the place in the step's batch
	dev      tensor.Device
}

// Samples returns b's samples of a set: x on the tape, with its rows.
func (b Batch) Samples(d Dataset) (x, y tensor.Tensor) {
	x, y = d.Samples(b.dev, b.First, b.N)
	return b.Tape.Input(x.WithRows(b.Rows)), y
}

// Run trains, and fails the test on an error.
func (c Training) Run(t testing.TB) Result {
	t.Helper()
	res, err := c.Try()
	if err != nil {
		t.Fatal(res.Explain(err))
	}
	return res
}

// Refused requires that the training fails before rank 0 has done a step, with an error that contains text.
func (c Training) Refused(t testing.TB, text string) {
	t.Helper()
	res, err := c.Try()
	require.ErrorContains(t, err, text, "%s", res.layout)
	require.Empty(t, res.Norms, "%s: steps were done", res.layout)
}

// Try trains. Also with an error, Result.Errs are those of the ranks, and Norms those of the steps that rank 0 has done.
func (c Training) Try() (Result, error) {
	if c.On == nil {
		c.On = dist.Run
	}
	if c.Part == nil {
		c.Part = Part
	}
	if c.Rule == nil {
		c.Rule = adamW
	}
	c.Ranks, c.Steps, c.Micro = cmp.Or(c.Ranks, ranksOf(c.Mesh)), cmp.Or(c.Steps, Steps), cmp.Or(c.Micro, 2)
	c.Batch, c.Seed = cmp.Or(c.Batch, 22), cmp.Or(c.Seed, 3)
	var mu sync.Mutex
	var log bytes.Buffer // dist writes to it from one goroutine at a time
	res, errs := Result{}, make([]error, c.Ranks)
	cfg := dist.Config{Ranks: c.Ranks, Threads: 1, Timeout: time.Minute, Trace: c.Trace, Log: &log}
	err := c.On(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		var mine Result
		var err error
		if failure := tensor.Try(func() { err = c.rank(r, &mine) }); failure != nil {
			err = failure
		}
		mu.Lock()
		defer mu.Unlock()
		if errs[r.World.Rank()] = err; r.World.Rank() == 0 {
			res = mine
		}
		return err
	})
	res.Errs, res.layout, res.log = errs, c.String(), log.String()
	return res, err
}

// String is the layout, and what else the result depends on.
func (c Training) String() string {
	text := fmt.Sprintf("%d ranks, %d rows in %d microbatches, tape seed %d", c.Ranks, c.Batch, c.Micro, c.Seed)
	for _, s := range []string{c.Mesh, c.Name} {
		if s != "" {
			text += ", " + s
		}
	}
	return text
}

// adamW has decay and clipping.
func adamW(p nn.Params, n optim.Norm) *optim.Optimizer {
	return optim.NewAdamW(p, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 0.4, Norm: n})
}

// ranksOf multiplies the sizes of a mesh.
func ranksOf(mesh string) int {
	n := 1
	for axis := range strings.SplitSeq(mesh, ",") {
		if _, size, ok := strings.Cut(axis, "="); ok {
			k, _ := strconv.Atoi(size) // Rank.Mesh refuses what is none
			n *= k
		}
	}
	return n
}

// rank is a rank's part of the training. What it trained before an error is in res, too.
func (c *Training) rank(r *dist.Rank, res *Result) (err error) {
	var mesh *dist.Mesh
	if c.Mesh != "" {
		if mesh, err = r.Mesh(c.Mesh); err != nil {
			return err
		}
	}
	a, err := c.Attach(r, mesh)
	if err != nil {
		return err
	}
	a.Data = cmp.Or(a.Data, r.World)
	s := &State{Rank: r, Params: a.Params, Optimizer: a.Own, c: c, data: a.Data}
	if a.Own == nil {
		s.Optimizer = c.Rule(a.Params, a.Norm)
	}
	s.Tape = tensor.NewTape(r.Device, tensor.Seed(c.Seed), tensor.Trace(r.Trace))
	defer s.Tape.Close()
	if err := runHook(a.Start, s); err != nil {
		return err
	}
	if res.First, err = joined(r.World, partsOf(a.Params), false); err != nil {
		return err
	}
	for ; s.Step < c.Steps; s.Step++ {
		if err := c.step(&a, s, res); err != nil {
			return err
		}
	}
	if err := runHook(a.End, s); err != nil {
		return err
	}
	return res.gather(&a, s)
}

func runHook(hook func(s *State) error, s *State) error {
	if hook == nil {
		return nil
	}
	return hook(s)
}

func (c *Training) step(a *Attached, s *State, res *Result) (err error) {
	if err := runHook(a.Before, s); err != nil {
		return err
	}
	var losses []float64
	if a.Step != nil {
		losses, err = a.Step(s)
	} else {
		losses = c.backward(a, s)
		err = s.Optimizer.Step()
	}
	if err != nil {
		return err
	}
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	res.Losses, res.Micro = append(res.Losses, sum), append(res.Micro, losses...)
	res.Norms = append(res.Norms, s.Optimizer.GradNorm())
	return runHook(a.After, s)
}

// backward computes the gradients of this rank's part of a step's batch.
func (c *Training) backward(a *Attached, s *State) (losses []float64) {
	for m := range c.Micro {
		l := a.Loss(s.Batch(s.Tape, m))
		if m < c.Micro-1 {
			s.Tape.Backward(l, tensor.More())
		} else {
			s.Tape.Backward(l)
		}
		losses = append(losses, l.Item())
		s.Tape.Reset()
	}
	return losses
}

// Dataset is an endless deterministic set of samples of five classes.
type Dataset struct {
	DType    tensor.DType
	Features int // five or more
}

// Samples returns n samples from the first on: x [n, Features], and as y the index of the largest of the first five features.
func (d Dataset) Samples(dev tensor.Device, first, n int) (x, y tensor.Tensor) {
	x, y = tensor.NewStaging(memory.Other, dev, d.DType, n, d.Features), tensor.NewStaging(memory.Other, dev, tensor.Int64, n)
	tensor.UniformInit(-1, 1).Fill(x, 11, uint64(first*d.Features))
	v := tensor.Floats(x)
	for i := range n {
		best := 0
		for c := range 5 {
			if v[i*d.Features+c] > v[i*d.Features+best] {
				best = c
			}
		}
		tensor.Data[int64](y)[i] = int64(best)
	}
	return x, y
}
