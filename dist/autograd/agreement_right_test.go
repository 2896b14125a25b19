package autograd_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// rightPrograms are programs in which ranks do different things, and rightly so.
var rightPrograms = map[string]func(p *program) error{
	"microbatches": func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if i%3 < 2 {
				p.tape.Backward(loss(p.logits(b), b), tensor.More())
				p.tape.Reset()
				return nil
			}
			return p.plain(i, b)
		})
	},
	"evaluation of rank 0 alone, on the same tape": func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if p.rank == 0 && !p.talks {
				other := p.own(0, 3, 3)
				ops.CrossEntropy(p.logits(other).Scale(2), other.Y, ops.CrossEntropyOptions{Count: 9})
				p.tape.Input(tensor.FromSlice([]float32{7}, 1))
				p.tape.Reset()
			}
			return p.plain(i, b)
		})
	},
	"evaluation by another loader on a tape without gradients": func(p *program) error {
		eval, test := tensor.NewTape(p.r.Device, tensor.NoGrad(), tensor.Seed(5)), p.loader(2)
		for epoch := range 2 {
			disttest.OK(p.epoch(p.loader(1), epoch, p.plain))
			disttest.OK(p.epoch(test, 0, func(_ int, b data.Batch) error {
				loss(p.model.Forward(eval.Input(b.X)), b)
				eval.Reset()
				return nil
			}))
		}
		return nil
	},
	"two batches a step, in two Backwards": func(p *program) error {
		next, stop := iter.Pull2(p.loader(2).Epoch(context.Background(), 0))
		defer stop()
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if err := p.plain(i, b); err != nil {
				return err
			}
			i, c, _ := next()
			return p.plain(i, c)
		})
	},
	"tapes by turns": func(p *program) error {
		tapes := []*tensor.Tape{p.tape, tensor.NewTape(p.r.Device, tensor.Seed(6)), tensor.NewTape(p.r.Device, tensor.Seed(7))}
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			p.tape = tapes[i%3]
			return p.plain(i, b)
		})
	},
	"a loss on a tape of its own": func(p *program) error {
		second := tensor.NewTape(p.r.Device, tensor.Seed(5))
		return p.epoch(p.loader(1), 0, func(_ int, b data.Batch) error {
			out := p.logits(b)
			second.Input(b.X) // its rows
			x := second.Leaf(out)
			second.Backward(loss(x, b))
			p.tape.BackwardFrom([]tensor.Tensor{out}, []tensor.Tensor{p.tape.Input(second.GradOf(x))})
			err := p.opt.Step()
			second.Reset()
			p.tape.Reset()
			p.done++
			return err
		})
	},
	"a rank without rows": func(p *program) error {
		for i := range 4 {
			b := p.own(0, 3, 3)
			if p.sharder != nil {
				b = p.own(3*p.rank, 3-3*p.rank, 3)
			}
			disttest.OK(p.plain(i, b))
		}
		return nil
	},
	"batches of the program without numbers, of any size": func(p *program) error {
		for i := range 5 {
			disttest.OK(p.plain(i, p.mine(2+i)))
		}
		return nil
	},
	"unequal microbatches of one batch": func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if p.each || b.Rows < 2 {
				return p.plain(i, b)
			}
			for lo := range p.rank * (b.Rows - 1) {
				p.tape.Backward(p.part(b, lo, lo+1), tensor.More())
				p.tape.Reset()
			}
			return p.backward(p.part(b, p.rank*(b.Rows-1), b.Rows))
		})
	},
	"zeros for each row, and targets, that do not say their rows": func(p *program) error {
		return p.epoch(p.loader(1), 0, func(_ int, b data.Batch) error {
			y := make([]float32, b.Rows*outWidth)
			for i := range y {
				y[i] = float32(b.First + i)
			}
			x := p.logits(b).Add(tensor.New(p.r.Device, tensor.Float32, b.Rows, outWidth))
			if b.First > 0 {
				return p.backward(nn.MSE(x, p.tape.Input(tensor.FromSlice(y, b.Rows, outWidth))))
			}
			return p.backward(nn.MSE(x, tensor.FromSlice(y, b.Rows, outWidth)))
		})
	},
	"noise of each row, which says so": func(p *program) error {
		return p.epoch(p.loader(1), 0, func(_ int, b data.Batch) error {
			noise := tensor.New(p.r.Device, tensor.Float32, b.Rows, inWidth)
			tensor.UniformInit(0, 1).Fill(noise, 1, uint64(b.First*inWidth))
			return p.backward(loss(p.model.Forward(p.tape.Input(b.X).Add(p.tape.Input(noise.WithRows(b.X.Rows())))), b))
		})
	},
	"positions of parts of sequences": func(p *program) error {
		for range 3 {
			x, at := tensor.New(p.r.Device, tensor.Float32, 2, 3, inWidth), make([]float32, 3*inWidth)
			rows := tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{Total: 6}}
			if p.sharder != nil {
				rows.Over, rows.Seq.First = p.r.World.Axes(), 3*p.rank
			}
			for i := range at {
				at[i] = float32(rows.Seq.First + i)
			}
			h := p.tape.Input(x.WithRows(rows))
			h = h.Add(tensor.OfPositions(p.tape.Input(tensor.FromSlice(at, 3, inWidth)), h))
			disttest.OK(p.backward(tensor.GlobalMean(p.model.Forward(h))))
		}
		return nil
	},
	"a resumed run": func(p *program) error {
		l := p.loader(1)
		s := l.State()
		s.Epoch, s.Step = 2, 3
		p.tape.SetState(tensor.TapeState{Seed: 5, Step: 15})
		disttest.OK(l.SetState(s))
		return p.epoch(l, 2, p.plain)
	},
}

// part is the loss of some rows of a batch.
func (p *program) part(b data.Batch, lo, hi int) nn.T {
	rows := b.X.Rows()
	rows.First += lo
	x := b.X.Range(lo*inWidth, hi*inWidth).View(hi-lo, inWidth).WithRows(rows)
	return nn.CrossEntropy(p.model.Forward(p.tape.Input(x)), b.Y.Range(lo, hi).WithRows(rows))
}

func TestRanksThatMayDiffer(t *testing.T) {
	for e, engine := range engines {
		for k, name := range slices.Sorted(maps.Keys(parallelisms)) {
			for i, what := range slices.Sorted(maps.Keys(rightPrograms)) {
				if !chosen(t, e, k, i) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", engine, name, what), func(t *testing.T) {
					done, err := train(disttest.LauncherFor(t, engine, 2), parallelisms[name], rightPrograms[what])
					require.NoError(t, err)
					require.Positive(t, done)
				})
			}
		}
	}
}

func TestLongRanksThatMayDiffer(t *testing.T) { reliability.AsLong(t, TestRanksThatMayDiffer) }
