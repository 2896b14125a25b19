package join

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Source is what a Loader takes a rank's own batches from, such as a data.Loader that has no Sharder.
type Source interface {
	// Epoch yields the batches of an epoch. They are valid until the next iteration.
	Epoch(ctx context.Context, epoch int) iter.Seq2[int, data.Batch]
	// Err returns why an epoch ended early, nil if it did not.
	Err() error
}

// Loader makes global batches of the batches that each rank has. It serves one goroutine.
type Loader struct {
	g             *dist.Group
	src           Source
	x, y          tensor.Shape // of a sample
	empty         data.Batch   // of no rows; without X before shapes are known
	mine, all     []int64      // a code of this rank, and of all ranks
	own, gathered tensor.Tensor
	number        int // of the batch: see tensor.Rows
	err           error
}

// What a rank says before a step; more is the number of its rows, and withRows.
const (
	failed = iota - 1
	ranOut
	withRows
)

// New returns a Loader for the ranks of g, all of which call it. src is nil on a rank that has nothing.
func New(g *dist.Group, src Source) *Loader {
	if g == nil {
		panic(&tensor.Failure{Op: "join.New", Err: errors.New("the group is nil")})
	}
	if l, is := src.(*data.Loader); is && l == nil { // a variable that was never set
		src = nil
	}
	j := &Loader{g: g, src: src, mine: make([]int64, 1), all: make([]int64, g.Size())}
	j.own, j.gathered = tensor.FromSlice(j.mine, 1), tensor.FromSlice(j.all, len(j.all))
	return j
}

// Err returns the first error, that of this rank's Source, of another rank's, or of the communication. Once there is one, Epoch
// yields nothing more.
func (j *Loader) Err() error { return j.err }

// Epoch yields this rank's part of each step's batch, with the step's number: as many on all ranks, of which all call it. All of
// them leave the loop after the same step.
func (j *Loader) Epoch(ctx context.Context, epoch int) iter.Seq2[int, data.Batch] {
	return func(yield func(int, data.Batch) bool) {
		if j.err != nil {
			return
		}
		e := &running{Loader: j, epoch: epoch, yield: yield}
		if j.src != nil {
			for _, b := range j.src.Epoch(ctx, epoch) {
				if !e.next(&b, j.check(&b)) {
					return
				}
			}
			if err := j.src.Err(); err != nil {
				e.next(nil, err)
				return
			}
		}
		for e.next(nil, nil) {
		}
	}
}

// check returns what is wrong with a batch of the Source.
func (j *Loader) check(b *data.Batch) error {
	if b.X.IsZero() || b.Y.IsZero() || b.X.NDim() == 0 || b.Y.NDim() == 0 || b.X.Dim(0) != b.Y.Dim(0) {
		return errors.New("a batch is not of X and Y with as many rows each")
	}
	x, y := sample(b.X), sample(b.Y)
	switch r := b.X.Rows(); {
	case r.Over != 0 || r.Total > b.X.Dim(0):
		return fmt.Errorf("a batch is a part of a global one already (%d rows of %d): its loader must have no Sharder", b.X.Dim(0), r.Total)
	case !j.empty.X.IsZero() && !(sameShape(x, j.x) && sameShape(y, j.y)):
		return fmt.Errorf("a sample is %v and %v, and the first one was %v and %v", x, y, j.x, j.y)
	}
	return nil
}

// sample returns the shape of a row.
func sample(x tensor.Tensor) tensor.Shape {
	s := x.Shape()
	return tensor.Shape{DType: s.DType, Dims: slices.Clone(s.Dims[1:])}
}

func sameShape(a, b tensor.Shape) bool { return a.DType == b.DType && slices.Equal(a.Dims, b.Dims) }

// running is an Epoch under way.
type running struct {
	*Loader
	epoch, step int
	begun       bool
	yield       func(int, data.Batch) bool
}

// next does a step with b, which is nil on a rank that ran out. problem is what this rank found. It reports whether the loop goes on.
func (e *running) next(b *data.Batch, problem error) bool {
	out, over, err := e.agree(b, problem)
	if err != nil {
		e.err = err
		return false
	}
	if over || out.Global == 0 {
		return !over
	}
	out.X, out.Y = e.empty.X, e.empty.Y
	if b != nil {
		out.X, out.Y = b.X, b.Y
	}
	e.number++
	rows := e.g.Rows(out.First, out.Global)
	rows.Number = e.number
	out.X, out.Y = out.X.WithRows(rows), out.Y.WithRows(rows)
	e.step++
	return e.yield(e.step-1, out)
}

// agree tells all ranks what this one has, and returns the place of its rows in the step's batch; over: no rank has a batch.
func (e *running) agree(b *data.Batch, problem error) (at data.Batch, over bool, err error) {
	if !e.begun {
		if err := e.begin(b, problem); err != nil {
			return at, false, err
		}
		e.begun = true
	}
	switch {
	case problem != nil:
		e.mine[0] = failed
	case b == nil:
		e.mine[0] = ranOut
	default:
		at.Rows = b.X.Dim(0)
		e.mine[0] = int64(at.Rows + withRows)
	}
	if err := e.g.AllGather(e.gathered, e.own).Wait(); err != nil {
		return at, false, err
	}
	over = true
	for rank, code := range e.all {
		switch {
		case code == failed:
			return at, false, e.failure(problem)
		case code == ranOut:
			continue
		case rank < e.g.Rank():
			at.First += int(code) - withRows
		}
		over = false
		at.Global += int(code) - withRows
	}
	return at, over, nil
}

// failure returns why some rank cannot go on.
func (e *running) failure(problem error) error {
	text := ""
	if problem != nil {
		text = problem.Error()
	}
	all, err := dist.AllGatherObject(e.g, text)
	switch {
	case err != nil:
		return err
	case problem != nil:
		return fmt.Errorf("join: %w", problem)
	}
	rank := slices.IndexFunc(all, func(s string) bool { return s != "" })
	return fmt.Errorf("join: rank %d of %s: %s", rank, e.g.Name(), all[rank])
}

// hello is what ranks compare before the first step of an epoch.
type hello struct {
	Epoch int
	Has   bool // X and Y are known
	X, Y  tensor.Shape
}

// begin compares what the ranks are about to do, and makes the batch of those that ran out.
func (e *running) begin(b *data.Batch, problem error) error {
	mine := hello{Epoch: e.epoch}
	if b != nil && problem == nil {
		mine.Has, mine.X, mine.Y = true, sample(b.X), sample(b.Y)
	}
	all, err := dist.AllGatherObject(e.g, mine)
	if err != nil {
		return err
	}
	known := slices.IndexFunc(all, func(g hello) bool { return g.Has })
	for rank, g := range all {
		switch {
		case g.Epoch != all[0].Epoch:
			return fmt.Errorf("join: ranks differ: rank %d begins epoch %d where rank 0 begins epoch %d", rank, g.Epoch, all[0].Epoch)
		case g.Has && !(sameShape(g.X, all[known].X) && sameShape(g.Y, all[known].Y)):
			return fmt.Errorf("join: ranks differ: a sample of rank %d is %v and %v where that of rank %d is %v and %v",
				rank, g.X, g.Y, known, all[known].X, all[known].Y)
		}
	}
	if known >= 0 && e.empty.X.IsZero() {
		e.x, e.y = all[known].X, all[known].Y
		e.empty.X, e.empty.Y = none(e.g, e.x), none(e.g, e.y)
	}
	return nil
}

// none returns a tensor of no rows.
func none(g *dist.Group, s tensor.Shape) tensor.Tensor {
	return tensor.New(g.Device(), s.DType, append([]int{0}, s.Dims...)...)
}
