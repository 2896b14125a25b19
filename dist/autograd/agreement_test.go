package autograd_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tp"
)

const (
	inWidth    = 3
	outWidth   = 4
	datasetLen = 21 // the last batch is smaller
	batchOf    = 4
	epochSteps = 6 // of an epoch
)

// twoLayers is a small model.
type twoLayers struct {
	Norm     nn.Layer
	Up, Down *nn.Linear
}

func newTwoLayers() *twoLayers {
	return &twoLayers{nn.NewLayerNorm(inWidth), nn.NewLinear(inWidth, 6), nn.NewLinear(6, outWidth)}
}

func (m *twoLayers) Forward(x nn.T) nn.T {
	return m.Down.Forward(m.Up.Forward(m.Norm.Forward(x)).ReLU())
}

// program is what a rank of a test trains.
type program struct {
	r       *dist.Rank
	rank    int
	model   *twoLayers
	opt     *optim.Optimizer
	tape    *tensor.Tape
	sharder data.Sharder // nil where ranks have the same rows
	talks   bool         // forward communicates
	each    bool         // each microbatch communicates
	done    int          // steps
}

// parallelisms are the ways to divide the training over ranks.
var parallelisms = map[string]func(p *program) (nn.Params, error){
	"ddp":   func(p *program) (nn.Params, error) { return ddp.Attach(p.r.World, p.model, ddp.Config{}) },
	"fsdp1": func(p *program) (nn.Params, error) { return p.shard(1) },
	"fsdp2": func(p *program) (nn.Params, error) { return p.shard(2) },
	"fsdp3": func(p *program) (nn.Params, error) {
		p.talks = true
		return p.shard(3)
	},
	"autograd.Copy": func(p *program) (nn.Params, error) {
		p.each = true
		params := nn.Init(p.model, p.r.Device, tensor.Float32, 1)
		for _, x := range params {
			x.Through(&autograd.Copy{Group: p.r.World})
		}
		return params, nil
	},
	"tp": func(p *program) (nn.Params, error) {
		p.sharder, p.talks, p.each = nil, true, true
		err := tp.Parallelize(p.model, tp.Config{Group: p.r.World}, func(t *tp.Parallel) {
			p.model.Norm = t.Columns(p.model.Norm, p.model.Up)
			t.Row(p.model.Down)
		})
		return nn.Init(p.model, p.r.Device, tensor.Float32, 1), err
	},
}

func (p *program) shard(stage int) (nn.Params, error) {
	p.each = stage > 1
	s := fsdp.New(fsdp.Config{Shard: p.r.World, Stage: stage})
	s.Unit(p.model.Up)
	s.Unit(p.model.Norm, p.model.Down)
	return s.Attach(p.model)
}

// train runs a program on two ranks. It returns how many steps were done.
func train(launch disttest.Launcher, divide func(p *program) (nn.Params, error), run func(p *program) error) (done int, err error) {
	all := make([]int, 2)
	cfg := dist.Config{Ranks: 2, Threads: 1, Timeout: time.Minute, Log: io.Discard}
	err = launch(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		p := &program{r: r, rank: r.World.Rank(), model: newTwoLayers(), sharder: r.World, tape: tensor.NewTape(r.Device, tensor.Seed(5))}
		params := disttest.Must(divide(p))
		defer func() { all[p.rank] = p.done }()
		p.opt = optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
		return run(p)
	})
	return min(all[0], all[1]), err
}

// loader returns batches that all ranks share. Each seed is another dataset.
func (p *program) loader(seed uint64) *data.Loader {
	x, y := make([]float32, datasetLen*inWidth), make([]int64, datasetLen)
	for i := range x {
		x[i] = float32((uint64(i)*7+seed*3)%11) - 5
	}
	for i := range y {
		y[i] = int64(i) % outWidth
	}
	set, err := data.NewTensors(tensor.FromSlice(x, datasetLen, inWidth), tensor.FromSlice(y, datasetLen))
	if err != nil {
		panic(err)
	}
	return data.NewLoader(set, data.Config{Batch: batchOf, Shuffle: true, Seed: seed, Sharder: p.sharder})
}

// epoch calls do with each batch of an epoch, and its number in it.
func (p *program) epoch(l *data.Loader, epoch int, do func(i int, b data.Batch) error) error {
	for i, b := range l.Epoch(context.Background(), epoch) {
		if err := do(i, b); err != nil {
			return err
		}
	}
	return l.Err()
}

func (p *program) logits(b data.Batch) nn.T { return p.model.Forward(p.tape.Input(b.X)) }

func loss(logits nn.T, b data.Batch) nn.T { return nn.CrossEntropy(logits, b.Y) }

// backward ends a step.
func (p *program) backward(loss nn.T) error {
	p.tape.Backward(loss)
	if err := p.opt.Step(); err != nil {
		return err
	}
	p.tape.Reset()
	p.done++
	return nil
}

func (p *program) plain(_ int, b data.Batch) error { return p.backward(loss(p.logits(b), b)) }

// own returns a batch without a Loader: n rows from first on of total.
func (p *program) own(first, n, total int) data.Batch {
	x, y := tensor.New(p.r.Device, tensor.Float32, n, inWidth), tensor.New(p.r.Device, tensor.Int64, n)
	for i := range n * inWidth {
		tensor.Data[float32](x)[i] = float32((first*inWidth + i) % 7)
	}
	rows := tensor.Rows{First: first, Stride: 1, Total: total}
	if p.sharder != nil {
		rows = p.r.World.Rows(first, total)
	}
	return data.Batch{X: x.WithRows(rows), Y: y.WithRows(rows)}
}

// mine returns this rank's half of a batch of its own, or all of it where ranks have the same rows.
func (p *program) mine(total int) data.Batch {
	if p.sharder == nil {
		return p.own(0, total, total)
	}
	half := total / 2
	return p.own(p.rank*half, half+p.rank*(total%2), total)
}

// wrongProgram is a program in which ranks do different things; want is in the error of step at, counted from 1.
type wrongProgram struct {
	name, want string
	at         int
	run        func(p *program) error
}

// ranksDiffer are wrong with each of the parallelisms.
var ranksDiffer = []wrongProgram{
	// A batch is left out.
	{"one rank skips a batch", "batch number 4 (rank 0) vs 5 (rank 1), a rank has left out a step or a batch", 4, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if p.rank == 1 && i == 3 {
				return nil
			}
			return p.plain(i, b)
		})
	}},
	{"each rank skips another batch", "batch number 4 (rank 0) vs 3 (rank 1)", 3, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if i == 2+p.rank {
				return nil
			}
			return p.plain(i, b)
		})
	}},
	{"a rank skips a batch after forward", "batch number 3 (rank 0) vs 4 (rank 1)", 3, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if p.rank == 1 && i == 2 {
				if !p.talks {
					p.logits(b)
					p.tape.Reset()
				}
				return nil
			}
			return p.plain(i, b)
		})
	}},
	{"a rank trains on a batch twice", "batch number 3 (rank 0) vs 2 (rank 1)", 3, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if p.rank == 1 && i == 1 {
				if err := p.plain(i, b); err != nil {
					return err
				}
			}
			return p.plain(i, b)
		})
	}},
	{"a rank skips a batch of one of two loaders", "batch number 4 (rank 0) vs 5 (rank 1)", 4, func(p *program) error {
		next, stop := iter.Pull2(p.loader(2).Epoch(context.Background(), 0))
		defer stop()
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if p.rank == 1 && i == 3 {
				next()
			}
			first := loss(p.logits(b), b)
			_, c, _ := next()
			return p.backward(first.Add(loss(p.logits(c), c)))
		})
	}},
	{"a rank skips a microbatch", "a rank has left out a step or a batch", 2, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if i%2 == 0 {
				if p.rank == 0 || i != 2 {
					p.tape.Backward(loss(p.logits(b), b), tensor.More())
					p.tape.Reset()
				}
				return nil
			}
			return p.plain(i, b)
		})
	}},
	{"a rank skips a numbered batch of its own", "batch number 4 (rank 0) vs 5 (rank 1)", 4, func(p *program) error {
		for i := range epochSteps {
			b := p.mine(4)
			tensor.Raw(b.X).Number(i + 1)
			if p.rank == 1 && i == 3 {
				continue
			}
			disttest.OK(p.plain(i, b))
		}
		return nil
	}},

	// Rows become wrong later.
	{"epochs differ after the first", "batch number 7 (rank 0) vs 13 (rank 1)", epochSteps + 1, func(p *program) error {
		l := p.loader(1)
		for epoch := range 2 {
			disttest.OK(p.epoch(l, epoch*(1+p.rank), p.plain))
		}
		return nil
	}},
	{"a rank begins a later epoch in its middle", "batch number 7 (rank 0) vs 9 (rank 1)", epochSteps + 1, func(p *program) error {
		l := p.loader(1)
		disttest.OK(p.epoch(l, 0, p.plain))
		state := l.State()
		state.Step = 2 * p.rank
		disttest.OK(l.SetState(state))
		return p.epoch(l, 1, p.plain)
	}},
	{"the last batch has a total of each rank", "Rows.Total 4 (rank 0) vs 2 (rank 1)", 3, func(p *program) error {
		for i := range 3 {
			b := p.mine(4)
			if i == 2 {
				b = p.own(0, 2-p.rank, 4-2*p.rank)
			}
			disttest.OK(p.plain(i, b))
		}
		return nil
	}},
	{"a rank has a shorter sequence", "Rows.Seq.Total 6 (rank 0) vs 5 (rank 1)", 4, func(p *program) error {
		for i := range 4 {
			x := tensor.New(p.r.Device, tensor.Float32, 2, 3, inWidth)
			rows := tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{Total: 6}}
			if p.sharder != nil {
				rows.Over, rows.Seq.First = p.r.World.Axes(), 3*p.rank
			}
			if i == 3 {
				rows.Seq = tensor.Spans{First: rows.Seq.First - p.rank*min(rows.Seq.First, 1), Total: 6 - p.rank}
			}
			disttest.OK(p.backward(tensor.GlobalMean(p.model.Forward(p.tape.Input(x.WithRows(rows))))))
		}
		return nil
	}},

	// Random numbers.
	{"a seed of each rank", "seed 0 (rank 0) vs 1 (rank 1), tapes of all ranks need one tensor.Seed", 1, func(p *program) error {
		p.tape = tensor.NewTape(p.r.Device, tensor.Seed(uint64(p.rank)))
		return p.epoch(p.loader(1), 0, p.plain)
	}},
	{"another seed later", "seed 5 (rank 0) vs 6 (rank 1)", 4, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			if s := p.tape.State(); i == 3 {
				s.Seed += uint64(p.rank)
				p.tape.SetState(s)
			}
			return p.plain(i, b)
		})
	}},
	{"a second tape's seed", "seed 7 (rank 0) vs 8 (rank 1)", 2, func(p *program) error {
		second := tensor.NewTape(p.r.Device, tensor.Seed(uint64(7+p.rank)))
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			p.tape, second = second, p.tape
			if i == 0 {
				p.tape, second = second, p.tape
			}
			return p.plain(i, b)
		})
	}},
	{"one rank resumes", "step 0 (rank 0) vs 3 (rank 1)", 1, func(p *program) error {
		p.tape.SetStep(3*p.rank, 0)
		return p.epoch(p.loader(1), 0, p.plain)
	}},
	{"a sum of no step", "a sum of a step (rank 0) vs outside of a step (rank 1), ranks add up other things", 1, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(_ int, b data.Batch) error {
			op := dist.Sum
			if p.tape.Input(b.X); p.rank == 0 {
				op = op.In(p.tape)
			}
			return p.r.World.AllReduce(tensor.New(p.r.Device, tensor.Float32, 2), op).Wait()
		})
	}},

	// Counts.
	{"a count of each rank", "Count 3 (rank 0) vs 4 (rank 1), a loss divides by the count of all ranks", 1, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(_ int, b data.Batch) error {
			return p.backward(ops.CrossEntropy(p.logits(b), b.Y, ops.CrossEntropyOptions{Count: float64(3 + p.rank), Ignore: new(int64)}))
		})
	}},
	{"a count of each rank, later", "Count 4 (rank 0) vs 3 (rank 1)", 3, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			return p.backward(ops.CrossEntropy(p.logits(b), b.Y, ops.CrossEntropyOptions{Count: float64(4 - i/2*p.rank)}))
		})
	}},
	{"a count of soft labels", "Count 4 (rank 0) vs 5 (rank 1)", 2, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			soft := tensor.New(p.r.Device, tensor.Float32, b.Rows, outWidth).WithRows(b.Y.Rows())
			return p.backward(ops.CrossEntropy(p.logits(b), soft, ops.CrossEntropyOptions{Count: float64(4 + i*p.rank)}))
		})
	}},
	{"a count of weighted labels", "Count 2.5 (rank 0) vs 3.5 (rank 1)", 1, func(p *program) error {
		weights := tensor.FromSlice([]float32{1, 2, 3, 4}, outWidth)
		return p.epoch(p.loader(1), 0, func(_ int, b data.Batch) error {
			return p.backward(ops.CrossEntropy(p.logits(b), b.Y, ops.CrossEntropyOptions{Weights: weights, Count: 2.5 + float64(p.rank)}))
		})
	}},
	{"the count of the first loss of two", "earlier counts of the step some (rank 0) vs others (rank 1)", 1, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(_ int, b data.Batch) error {
			x := p.logits(b)
			first := ops.CrossEntropy(x, b.Y, ops.CrossEntropyOptions{Count: float64(3 + p.rank)})
			return p.backward(first.Add(ops.CrossEntropy(x, b.Y, ops.CrossEntropyOptions{Count: 4})))
		})
	}},
	{"a number of the program", "Count 0.5 (rank 0) vs 1.5 (rank 1)", 3, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			part := 0.5 + float64(i/2*p.rank)
			p.tape.Agree(part)
			return p.backward(loss(p.logits(b), b).Scale(part))
		})
	}},

	// What the program says is the same everywhere, as it has no Rows.
	{"a mask of each rank", inputs, 1, func(p *program) error { return p.times(0, inWidth, 0, float32(1+p.rank), 1) }},
	{"a factor of each rank", inputs, 1, func(p *program) error { return p.times(0, 1, float32(2+p.rank)) }},
	{"noise of each rank", inputs, 2, func(p *program) error {
		return p.times(1, inWidth, 0.5, float32(p.rank)+0.25, 0.125)
	}},
	{"a mask that is no Input", inputs, 2, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			mask := tensor.FromSlice([]float32{1, 0, float32(i * p.rank), 1}, outWidth)
			return p.backward(loss(p.logits(b).Mul(mask), b))
		})
	}},
	{"a teacher of each rank", params, 1, func(p *program) error { return p.distill(func(*nn.Linear, int) {}, uint64(1+p.rank)) }},
	{"a teacher that one rank changes", params, 2, func(p *program) error {
		return p.distill(func(teacher *nn.Linear, i int) {
			if p.rank == 0 {
				tensor.Data[float32](teacher.W.Value)[i] = 2
			}
		}, 1)
	}},
}

// differLater begin to differ after the first steps, which owners of gradients find.
var differLater = []wrongProgram{
	{"a mask", inputs, 3, func(p *program) error { return p.times(2, inWidth, 0, float32(1+p.rank), 1) }},
}

// sharersDiffer are programs in which ranks that divide layers are given different things.
var sharersDiffer = []wrongProgram{
	{"other rows", "rows 2 from 0 on (rank 0) vs 2 from 2 on (rank 1), ranks that share the work on a batch need the same rows", 1,
		func(p *program) error { return p.plain(0, p.own(2*p.rank, 2, 4)) }},
	{"fewer rows, later", "rows 2 from 0 on (rank 0) vs 1 from 0 on (rank 1)", 4, func(p *program) error {
		for i := range 4 {
			disttest.OK(p.plain(i, p.own(0, 2-i/3*p.rank, 4)))
		}
		return nil
	}},
	{"a part of the rows", "rows 4 from 0 on (rank 0) vs 3 from 1 on (rank 1)", 2, func(p *program) error {
		disttest.OK(p.plain(0, p.own(0, 4, 4)))
		return p.plain(1, p.own(p.rank, 4-p.rank, 4))
	}},
	{"other features", sharedInputs, 1, func(p *program) error { return p.epoch(p.loader(uint64(p.rank)), 0, p.plain) }},
	{"other labels", sharedInputs, 1, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			tensor.Data[int64](b.Y)[0] = int64(p.rank + 1)
			return p.plain(i, b)
		})
	}},
	{"other labels, which have no Rows", sharedInputs, 2, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
			y := make([]int64, b.Rows)
			y[0] = int64(1 + i*p.rank)
			b.Y = tensor.FromSlice(y, b.Rows)
			return p.plain(i, b)
		})
	}},
	{"other soft labels", sharedInputs, 1, func(p *program) error {
		return p.epoch(p.loader(1), 0, func(_ int, b data.Batch) error {
			y := tensor.New(p.r.Device, tensor.Float32, b.Rows, outWidth).WithRows(b.Y.Rows())
			tensor.Data[float32](y)[p.rank] = 1
			return p.backward(nn.CrossEntropy(p.logits(b), y))
		})
	}},
}

const params = "parameters that are not attached some values (rank 0) vs others (rank 1), all ranks need the same: one seed"

const sharedInputs = "inputs some values (rank 0) vs others (rank 1), ranks that share the work on a batch need the same inputs and labels"

const inputs = "inputs without Rows some values (rank 0) vs others (rank 1), if they belong to rows, say so (WithRows)"

// distill trains with a teacher that is not attached, and changes it after each step.
func (p *program) distill(change func(teacher *nn.Linear, i int), seed uint64) error {
	teacher := nn.NewLinear(inWidth, outWidth)
	for _, p := range nn.Init(teacher, p.r.Device, tensor.Float32, seed) {
		p.Freeze()
	}
	return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
		defer change(teacher, i)
		x := p.tape.Input(b.X)
		return p.backward(loss(p.model.Forward(x).Mul(teacher.Forward(x)), b))
	})
}

// times trains with features that are multiplied by values from step first on.
func (p *program) times(first, n int, values ...float32) error {
	return p.epoch(p.loader(1), 0, func(i int, b data.Batch) error {
		x := p.tape.Input(b.X)
		if i >= first {
			x = x.Mul(p.tape.Input(tensor.FromSlice(values, n)))
		}
		return p.backward(loss(p.model.Forward(x), b))
	})
}

// engines are what ranks of these tests talk through. All find the same mistakes, with the same code: programs run with two of the
// parallelisms on the first, and every fourth one with one of them on each other one; in the long form with all.
var engines = []string{"goroutines", "shm", "tcp"}

// chosen reports whether program i of a parallelism runs on an engine.
func chosen(t *testing.T, engine, parallelism, i int) bool {
	if reliability.Long(t) || engine == 0 && (parallelism+i)%3 == 0 {
		return true
	}
	return engine > 0 && i%4 == 0 && (parallelism+i/4)%len(parallelisms) == engine
}

// Ranks that train on different epochSteps, batches, counts or random numbers get an error in the first step in which they do.
func TestRanksThatDiffer(t *testing.T) {
	for e, engine := range engines {
		for k, name := range slices.Sorted(maps.Keys(parallelisms)) {
			wrong := ranksDiffer
			if name == "tp" {
				wrong = slices.Concat(wrong, sharersDiffer)
			} else if name != "autograd.Copy" {
				wrong = slices.Concat(wrong, differLater)
			}
			for i, c := range wrong {
				if !chosen(t, e, k, i) && (i < len(ranksDiffer) || e > 0) { // what few parallelisms have, on goroutines
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", engine, name, c.name), func(t *testing.T) {
					done, err := train(disttest.LauncherFor(t, engine, 2), parallelisms[name], c.run)
					require.ErrorContains(t, err, c.want)
					require.Equal(t, c.at-1, done, "%v", err)
				})
			}
		}
	}
}

func TestLongRanksThatDiffer(t *testing.T) { reliability.AsLong(t, TestRanksThatDiffer) }
