package layouts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

const (
	initSeed  = 7
	tolerance = 1e-10 // for sums in another order
)

// job trains a program on a layout, and saves a checkpoint, or goes on from one.
type job struct {
	program
	layout *layout // nil: one rank
	nudged bool    // one rank begins an ulp away from its values
	dir    string  // of checkpoints; "": none
	resume bool

	saved disttest.Values // the parameters in the checkpoint
	steps atomic.Int64    // that ranks have done
}

// try trains. A job that resumes would have other values and random numbers without the checkpoint.
func (j *job) try() (disttest.Result, error) {
	c := disttest.Training{Steps: j.Steps, Micro: j.Micro, Batch: j.Batch, Rule: j.rule}
	seed := uint64(initSeed)
	if j.resume {
		seed, c.Seed = 8, 4
	}
	if l := j.layout; l != nil {
		c.Mesh, c.Part, c.Name = l.mesh(j.program), l.part, fmt.Sprintf("%+v", *l)
	}
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (out disttest.Attached, err error) {
		var a attached
		if j.layout == nil {
			if a, err = j.attachAlone(r); err == nil && j.nudged {
				nudge(a.Params)
			}
		} else {
			a, err = j.attach(r, mesh, *j.layout, seed)
		}
		if err != nil {
			return out, err
		}
		balancer := moe.NewBalancer(j.Rate, a.experts...)
		out = disttest.Attached{Params: a.Params, Norm: a.norm, Data: a.Data, Sum: a.Sum, Start: j.start, Before: j.before,
			Loss: func(b disttest.Batch) nn.T {
				ids, next := j.tokens(r.Device, b)
				return a.loss(j.program, (b.First-b.Rows.First)/j.Batch, a.Forward(b.Tape.Input(a.Part(ids))), a.Part(next))
			},
			After: func(*disttest.State) error {
				j.steps.Add(1)
				_, err := balancer.Step()
				return err
			}}
		if a.stages != nil {
			j.inStages(&out, &a, mesh)
		}
		return out, nil
	}
	return c.Try()
}

// inStages has a pipeline do the steps.
func (j *job) inStages(out *disttest.Attached, a *attached, mesh *dist.Mesh) {
	var pipe *pp.Pipeline
	out.Loss, out.Sum = nil, mesh.Group("pp", "dp", "fsdp", "ep", "ring", "cp")
	out.Start = func(s *disttest.State) (err error) {
		if err = j.start(s); err == nil {
			pipe, err = a.pipeline(j.program, *j.layout, mesh, s)
		}
		return err
	}
	out.Step = func(s *disttest.State) ([]float64, error) {
		loss, err := pipe.Step()
		if err == nil {
			err = s.Optimizer.Step()
		}
		return []float64{loss}, err
	}
	out.End = func(*disttest.State) error {
		pipe.Close()
		return nil
	}
}

// start loads the checkpoint.
func (j *job) start(s *disttest.State) error {
	if !j.resume {
		return nil
	}
	st, path := stateOf(s), filepath.Join(j.dir, fmt.Sprintf("step-%08d", j.Saved))
	c := ckpt.LoadConfig{}
	if j.layout.PP > 1 { // ranks have other layers
		c.Strategy = ckpt.Owned
	}
	_, err := ckpt.Load(context.Background(), s.Rank.World, path, &st, c)
	s.Step = st.Step
	return err
}

// before saves the checkpoint.
func (j *job) before(s *disttest.State) error {
	if j.dir == "" || j.resume || s.Step != j.Saved {
		return nil
	}
	saver := ckpt.NewSaver(s.Rank.World, j.dir, ckpt.Config{})
	if err := saver.Save(context.Background(), stateOf(s)); err != nil {
		return err
	}
	all, err := disttest.Wholes(s.Rank.World, s.Params)
	if s.Rank.World.Rank() == 0 {
		j.saved = all
	}
	return err
}

func stateOf(s *disttest.State) ckpt.State {
	return ckpt.State{Step: s.Step, Params: s.Params, Optimizer: s.Optimizer, Tape: s.Tape}
}

// tally counts layouts.
type tally struct {
	programs, trained int
	pipelines         int            // of these
	sensitive         int            // programs that are not compared
	refused           map[string]int // by what the error says
}

// check trains the program of a seed on one rank, on a layout, and from its checkpoint on another one. It returns what it trained, and what
// went wrong.
func (n *tally) check(seed uint64, dir string) (about string, err error) {
	defer os.RemoveAll(dir)
	r, p, most := randomProgram(seed)
	n.programs++
	about = fmt.Sprintf("%+v", p)
	want, err := (&job{program: p}).try()
	if err != nil {
		return about, errors.New(want.Explain(err))
	}
	if sensitive, err := p.sensitive(want); sensitive || err != nil {
		if n.sensitive++; err == nil && n.sensitive > 5+n.programs/4 {
			err = fmt.Errorf("%d of %d programs are too sensitive to be compared", n.sensitive, n.programs)
		}
		return about, err
	}
	j := &job{program: p}
	for _, j.resume = range []bool{false, true} {
		var got disttest.Result
		for trained := false; !trained; {
			l := randomLayout(r, p, most)
			if j.layout = &l; !j.resume {
				j.dir = filepath.Join(dir, fmt.Sprint(len(about))) // a layout that is refused in its first step may have saved
			}
			about += fmt.Sprintf("\n  resumed %v, %s: %+v", j.resume, l.mesh(p), l)
			if got, trained, err = n.try(j); err != nil {
				return about, errors.New(got.Explain(err))
			}
		}
		if err := got.Differs(want, tolerance); err != nil {
			return about, err
		}
		if !j.resume {
			want = want.Since(p.Saved, j.saved)
		}
	}
	return about, nil
}

// sensitive tells whether rounding alone, in sums of another order, may grow to the tolerance: then an ulp at the start grows to a
// hundredth of it.
func (p program) sensitive(want disttest.Result) (bool, error) {
	got, err := (&job{program: p, nudged: true}).try()
	got.First = want.First
	return err == nil && got.Differs(want, tolerance/100) != nil, err
}

// nudge moves every other element of trained parameters by an ulp.
func nudge(params nn.Params) {
	for _, p := range params {
		if x := tensor.Data[float64](p.Local); !p.IsBuffer() {
			for i := 0; i < len(x); i += 2 {
				x[i] = math.Nextafter(x[i], math.Inf(1))
			}
		}
	}
}

// try trains a job, or sees that its layout is refused, before a step is trained.
func (n *tally) try(j *job) (res disttest.Result, trained bool, err error) {
	says := j.layout.refused(j.program)
	j.steps.Store(0)
	if res, err = j.try(); len(says) == 0 {
		if n.trained++; j.layout.PP > 1 {
			n.pipelines++
		}
		return res, true, err
	}
	for _, text := range says {
		if err != nil && strings.Contains(err.Error(), text) && j.steps.Load() == 0 {
			n.refused[text]++
			return res, false, nil
		}
	}
	return res, false, fmt.Errorf("before a step is trained, the error must say one of %q; after %d, it is %v", says, j.steps.Load(), err)
}

// Each layout trains as one rank does, and goes on with the checkpoint of another one. The short form has two programs, one of them with
// pipelines, where RINGO_RANDOM_TIME is not set. In long runs ten layouts at least are pipelines.
func TestLayouts(t *testing.T) {
	n, failed, began, dir := tally{refused: map[string]int{}}, 0, time.Now(), t.TempDir()
	seeds := reliability.Random(t)
	two := !reliability.Long(t) && !seeds.One() && os.Getenv("RINGO_RANDOM_TIME") == ""
	more := func(ok bool) bool {
		if two {
			return n.programs < 2
		}
		return ok || reliability.Long(t) && !seeds.One() && n.pipelines < 10
	}
	for seed, ok := seeds.Next(); more(ok) && failed < 10; seed, ok = seeds.Next() {
		if two && seed < 3 { // the next ones are smaller
			continue
		}
		about, err := n.check(seed, filepath.Join(dir, fmt.Sprint(seed)))
		if err != nil {
			failed++
			t.Errorf("RINGO_SEED=%d: %v\n%s", seed, err, about)
		} else if seeds.One() {
			t.Log(about)
		}
	}
	t.Logf("%d programs (%d more are too sensitive) on %d layouts, of which %d are pipelines, %.1f layouts per second", n.programs-n.sensitive,
		n.sensitive, n.trained, n.pipelines, float64(n.trained)/time.Since(began).Seconds())
	for _, text := range slices.Sorted(maps.Keys(n.refused)) {
		t.Logf("%d layouts were refused: %q", n.refused[text], text)
	}
}

func TestLongLayouts(t *testing.T) { reliability.AsLong(t, TestLayouts) }
