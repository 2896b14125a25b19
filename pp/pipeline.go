package pp

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc64"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/rebuild"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// Stage computes what one stage does with a microbatch, 0 and so on: on tape t, from x, what the stage before returned. x is none on the
// first stage. The result of the last stage is the loss, one element: this microbatch's part of the loss of the whole step.
type Stage func(t *tensor.Tape, micro int, x tensor.Tensor) tensor.Tensor

// Config says what the ranks of a pipeline do.
type Config struct {
	Group    *dist.Group   // one rank of each place in the pipeline, such as mesh.Group("pp")
	Schedule *Schedule     // the same on all ranks
	Stages   map[int]Stage // those of this rank, by their numbers
	// Tape has the seed and the number of the step, on which random numbers depend, also in a checkpoint (ckpt.State): Step counts on. The
	// tapes of microbatches share its memory.
	Tape *tensor.Tape
	// Params are this rank's, of all its stages together, as one Attach returned them. Parameters that have one name on several ranks are
	// tied: Step adds up their gradients.
	Params nn.Params
	// Optimizer, if not nil, has Params: ranks compare the norms that it found, and losses are scaled by its Scaler. Otherwise they are by
	// that of whichever optimizer has Params.
	Optimizer *optim.Optimizer
	// CheckEvery, if not 0, compares norms, tied parameters and the rows of microbatches in every so many steps, besides 0, 1, 4, 16, 64
	// and so on.
	CheckEvery int
}

// Pipeline trains a model whose stages are on several ranks. It belongs to its rank's goroutine.
type Pipeline struct {
	Config
	tasks []task
	last  *task // computes gradients of parameters last: one owner has those of all stages of the rank, and sums them then
	err   error // of a Step, after which there is no other one

	boxes    []*inbox    // by rank: what comes from it
	works    []dist.Work // of a step's messages
	*headers             // of the step's
	ofRows   map[rows]*headers

	all  []*pass // their tapes share one arena
	idle []*pass
	done []*pass // in order: their gradients are on their way
	live []*pass // by stage and microbatch

	ties   []tie
	counts [][]float64 // of microbatches: by what their losses divide
	checks dist.StepCheck
	warned bool        // of a loss that is the mean of a microbatch
	due    bool        // ranks compare what the optimizer has done in the step before
	self   *dist.Group // of this rank alone

	now   tensor.TapeState
	loss  float64
	scale float64 // of the losses of the step
	run   func()  // a step
	doing *task
	pair  [2]tensor.Tensor // an output and its gradient
	opts  []tensor.BackwardOption
}

// New checks that the schedule can run, and that all ranks have the same one. It is collective, and all ranks return the same error.
func New(c Config) (*Pipeline, error) {
	if c.Group == nil {
		return nil, errors.New("pp: Config.Group is nil: it has the ranks of the pipeline, such as mesh.Group(\"pp\")")
	}
	rep, err := c.check()
	if err := dist.Agree(c.Group, "pp", c.lines(), errors.Join(rebuild.Refuse("pp"), err)); err != nil {
		return nil, err
	}
	p := &Pipeline{Config: c, checks: dist.StepCheck{Every: c.CheckEvery}}
	p.run = p.tasksOfStep
	p.plan()
	p.makePasses(c.passes(rep))
	if err := p.findTies(); err != nil {
		return nil, err
	}
	p.self, err = c.Group.Split(c.Group.Rank(), 0)
	return p, err
}

// check returns what this rank finds wrong.
func (c *Config) check() (*Report, error) {
	if c.Schedule == nil {
		return nil, errors.New("pp: Config.Schedule is nil: it is made by OneF1B and others")
	}
	rep, err := c.Schedule.Check(Costs{F: 1, I: 1, W: 1}, Limit{})
	switch n := len(c.Schedule.Actions); {
	case err != nil:
		return nil, err
	case n != c.Group.Size():
		return nil, fmt.Errorf("pp: schedule %s is for %d ranks, and group %s has %d", c.Schedule.Name, n, c.Group.Name(), c.Group.Size())
	case c.Tape == nil:
		return nil, errors.New("pp: Config.Tape is nil: it has the seed and the number of the step, as tensor.NewTape(r.Device, tensor.Seed(1))")
	case !c.Tape.Training() && c.Schedule.trains():
		return nil, fmt.Errorf("pp: Config.Tape was made with Eval or NoGrad, and schedule %s trains: make it without them, and evaluate by "+
			"Schedule.Forward", c.Schedule.Name)
	case len(c.Params) == 0 && (c.Optimizer == nil || len(c.Optimizer.State().Counts) > 0):
		return nil, errors.New("pp: Config.Params is empty: it has what Attach returned; a rank whose stages have no parameters gives an " +
			"Optimizer of none, with a Norm as on all ranks: optim.NewAdamW(nil, optim.AdamWConfig{Norm: r.World})")
	case c.CheckEvery < 0:
		return nil, fmt.Errorf("pp: Config.CheckEvery is %d, want 1 or more, or 0", c.CheckEvery)
	}
	for _, x := range c.Params {
		if o, ok := x.Owner().(interface{ GathersOnce() error }); ok && o.GathersOnce() != nil {
			return nil, fmt.Errorf("pp: in each of %d microbatches, %w", c.Schedule.Micros, o.GathersOnce())
		}
	}
	var mine []int
	for stage, rank := range c.Schedule.Ranks {
		if rank == c.Group.Rank() {
			mine = append(mine, stage)
		}
	}
	if have := slices.Sorted(maps.Keys(c.Stages)); !slices.Equal(have, mine) {
		return nil, fmt.Errorf("pp: rank %d of %s has stages %v in schedule %s, and stages %v in Config.Stages",
			c.Group.Rank(), c.Group.Name(), mine, c.Schedule.Name, have)
	}
	for i, stage := range c.Stages {
		if stage == nil {
			return nil, fmt.Errorf("pp: Config.Stages[%d] is nil: it is the function that computes stage %d", i, i)
		}
	}
	return rep, nil
}

// passes returns how many this rank needs: as many as are held at once, and one whose message may still be on its way. Without backward
// passes, a rank waits for a message then. If the schedule does not end with such sends, no pass waits for another one.
func (c *Config) passes(rep *Report) int {
	if me := c.Group.Rank(); c.Schedule.trains() || rep.Sync {
		return rep.Held[me] + 1
	} else {
		return len(c.Schedule.Actions[me])
	}
}

// lines says what all ranks must have alike.
func (c *Config) lines() []string {
	s := c.Schedule
	if s == nil || c.Tape == nil {
		return nil
	}
	hash := crc64.Checksum(fmt.Append(nil, s.Ranks, s.Actions), crc64.MakeTable(crc64.ECMA))
	return []string{fmt.Sprintf("schedule %s of %d stages, %d microbatches, hash %x, seed %d, step %d, CheckEvery %d", s.Name, len(s.Ranks),
		s.Micros, hash, c.Tape.State().Seed, c.Tape.State().Step, c.CheckEvery)}
}

// plan makes the tasks of this rank, and the lists of what comes.
func (p *Pipeline) plan() {
	s := p.Schedule
	for q := range s.Actions {
		p.boxes = append(p.boxes, &inbox{from: q})
	}
	p.tasks = s.tasks()[p.Group.Rank()]
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.from >= 0 {
			p.boxes[t.from].n++
		}
		if t.Kind != F {
			p.last = t
		}
	}
	p.live, p.ofRows, p.counts = make([]*pass, len(s.Ranks)*s.Micros), map[rows]*headers{}, make([][]float64, s.Micros)
	p.SetRows(tensor.Rows{}, 0)
}

// Step runs the schedule once: with a schedule that trains, gradients are ready for the optimizer. On the rank of the last stage it returns
// the sum of the losses of all microbatches, and 0 on others. Ranks that wait for one that fails get its error, and after an error the
// Pipeline is of no use.
func (p *Pipeline) Step() (loss float64, err error) {
	if p.err != nil {
		return 0, fmt.Errorf("pp: a Step has failed before: %w", p.err)
	}
	p.now, p.loss = p.Tape.State(), 0
	p.scale, err = p.lossScale()
	if err == nil && p.due {
		p.due, err = false, p.compare()
	}
	if err == nil {
		err = p.explain(tensor.Try(p.run))
	}
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		p.err = err
		p.Group.Abort(err)
		for _, w := range p.works {
			_ = w.Wait() // it is over
		}
		return 0, err
	}
	return p.loss, nil
}

// lossScale returns by what Config.Optimizer divides gradients, or else the optimizers of this rank.
func (p *Pipeline) lossScale() (scale float64, err error) {
	if o := p.Optimizer; o != nil && o.Scaler() != nil {
		return o.Scaler().Scale, nil
	} else if o != nil {
		return 1, nil
	}
	for _, x := range p.Params {
		switch s := x.LossScale(); {
		case scale == 0:
			scale = s
		case s != 0 && s != scale:
			return 0, fmt.Errorf("pp: losses have one scale, and optimizers divide the gradients of %s by %v and others by %v: give "+
				"Config.Optimizer the one that is to Step", x.Name(), s, scale)
		}
	}
	return cmp.Or(scale, 1), nil
}

func (p *Pipeline) tasksOfStep() {
	for i := range p.tasks {
		t := &p.tasks[i]
		p.doing = t
		p.post()
		switch t.Kind {
		case F:
			p.forward(t)
		case B, I:
			p.backward(t)
		case W:
			s := *p.at(t.Stage, t.Micro)
			p.weights(t, s)
			p.retire(t.Stage, t.Micro, s)
		}
	}
	for _, w := range p.works {
		must(w.Wait())
	}
	p.works = p.works[:0]
	for len(p.done) > 0 {
		p.free()
	}
	for _, b := range p.boxes {
		b.posted, b.used = b.posted[:0], 0
	}
	for m := range p.counts {
		p.counts[m] = p.counts[m][:0]
	}
	p.known = true
}

// stepError says more of an error, whose text package dist may still complete.
type stepError struct {
	before string
	error
	after string
}

func (e *stepError) Error() string { return e.before + e.error.Error() + e.after }
func (e *stepError) Unwrap() error { return e.error }

// explain says in which stage a step failed, or what ranks have done differently.
func (p *Pipeline) explain(err error) error {
	if err == nil {
		return nil // what follows allocates
	}
	f, d := &tensor.Failure{}, &dist.Error{}
	switch errors.As(err, &f); {
	case f.Op != "pp":
		err = &stepError{fmt.Sprintf("pp: stage %d, microbatch %d: ", p.doing.Stage, p.doing.Micro), err, ""}
	case errors.As(err, &d) && d.Want != "":
		err = &stepError{"", err, "; a rank that calls SetRows alone sends other messages: all ranks of the pipeline call it alike"}
	}
	return err
}

// finish ends a step that trained.
func (p *Pipeline) finish() error {
	if !p.Schedule.trains() {
		return nil
	}
	p.Tape.SetStep(p.now.Step+1, 0)
	if err := p.sumTies(); err != nil {
		return err
	}
	if !p.checks.Done(nil, false, p.Params) {
		return nil
	}
	p.due = p.checks.Values()
	return p.checks.Rows("pp", 0, p.self) // microbatches have all rows; of those that other ranks have, owners compare them
}

// Close frees the memory of the microbatches' tapes. That of Config.Tape stays until it is closed.
func (p *Pipeline) Close() {
	for _, s := range p.all {
		s.tape.Close()
	}
}

func must(err error) {
	if err != nil {
		panic(&tensor.Failure{Op: "pp", Err: err})
	}
}

func fail(format string, a ...any) { must(fmt.Errorf(format, a...)) }
