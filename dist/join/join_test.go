package join_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/join"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// own is a Source of batches in memory, which may end with an error.
type own struct {
	batches []data.Batch
	err     error
}

func (o *own) Err() error { return o.err }

func (o *own) Epoch(context.Context, int) iter.Seq2[int, data.Batch] {
	return func(yield func(int, data.Batch) bool) {
		for i, b := range o.batches {
			if !yield(i, b) {
				return
			}
		}
	}
}

var joinSet = disttest.Dataset{DType: tensor.Float64, Features: 19}

// ownBatches returns a rank's batches of so many rows each, which no other rank has.
func ownBatches(dev tensor.Device, rank int, rows []int) *own {
	o := new(own)
	for i, n := range rows {
		x, y := joinSet.Samples(dev, 1000*rank+10*i, n)
		o.batches = append(o.batches, data.Batch{X: x, Y: y})
	}
	return o
}

// union returns what ranks with these numbers of rows have together in each step, in rank order.
func union(dev tensor.Device, rows [][]int) *own {
	o := new(own)
	for i := 0; ; i++ {
		var x []float64
		var y []int64
		left := false
		for rank, mine := range rows {
			if i < len(mine) {
				b := ownBatches(dev, rank, mine).batches[i]
				x, y, left = append(x, tensor.Data[float64](b.X)...), append(y, tensor.Data[int64](b.Y)...), true
			}
		}
		if !left {
			return o
		}
		if len(y) > 0 {
			o.batches = append(o.batches, data.Batch{X: tensor.FromSlice(x, len(y), joinSet.Features), Y: tensor.FromSlice(y, len(y))})
		}
	}
}

// joinJob trains on batches that ranks have of their own.
type joinJob struct {
	rows    [][]int // by rank and step
	launch  disttest.Launcher
	micro   int  // 0: 1
	norm    bool // a SyncBatchNorm
	sharded bool
	capture bool
}

func always(n, steps int) (rows []int) {
	for range steps {
		rows = append(rows, n)
	}
	return rows
}

// errFile is what a source says.
var errFile = errors.New("the file ends in the middle")

func joinModel(norm bool) nn.Layer {
	m := nn.Sequential{nn.NewLinear(19, 31), nn.ReLU, nn.NewDropout(0.2)}
	if norm {
		m = append(m, nn.NewBatchNorm2d(31))
	}
	return append(m, nn.NewLinear(31, 17), nn.GELU, nn.NewLinear(17, 5))
}

// source returns what rank has; on one rank, all.
func (j joinJob) source(r *dist.Rank) join.Source {
	host := cpu.New(1)
	if r.World.Size() == 1 {
		return union(host, j.rows)
	}
	if rows := j.rows[r.World.Rank()]; rows != nil {
		return ownBatches(host, r.World.Rank(), rows)
	}
	return nil
}

func (j joinJob) attach(r *dist.Rank, model nn.Layer) (nn.Params, error) {
	if j.sharded && r.World.Size() > 1 {
		s := fsdp.New(fsdp.Config{Shard: r.World, DType: tensor.Float64, Seed: 7})
		s.Unit(model)
		return s.Attach(model)
	}
	return ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 7, BucketBytes: 2000})
}

// whole is a training whose only step is an epoch. One rank has all data.
func (j joinJob) whole(ranks int) disttest.Training {
	all, micro := union(cpu.New(1), j.rows).batches, max(j.micro, 1)
	return disttest.Training{Ranks: ranks, On: j.launch, Steps: 1, Attach: func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model := joinModel(j.norm)
		params, err := j.attach(r, model)
		if j.norm {
			nn.SyncBatchNorm(model, &autograd.AllReduce{Group: r.World})
		}
		return disttest.Attached{Params: params, Norm: r.World, Step: func(s *disttest.State) (losses []float64, err error) {
			step, last := 0, tensor.New(r.Device, tensor.Float64)
			do := func(in ...tensor.Tensor) error {
				defer s.Tape.Reset()
				loss := nn.CrossEntropy(model.Forward(s.Tape.Input(in[0])), in[1])
				tensor.Copy(last, loss)
				if step%micro < micro-1 {
					s.Tape.Backward(loss, tensor.Scale(1/float64(micro)), tensor.More())
					return nil
				}
				s.Tape.Backward(loss, tensor.Scale(1/float64(micro)))
				return s.Optimizer.Step()
			}
			if j.capture && ranks > 1 {
				graph := capture.New(r.Device, do)
				defer graph.Close()
				do = graph.Run
			}
			batches := join.New(r.World, j.source(r))
			for i, b := range batches.Epoch(context.Background(), 0) {
				if step = i; len(losses) != i || b.Global != all[i].Y.Len() {
					return nil, fmt.Errorf("step %d is number %d, with %d rows", len(losses), i, b.Global)
				}
				disttest.OK(do(b.X, b.Y))
				losses = append(losses, last.Item())
			}
			return losses, batches.Err()
		}}, err
	}}
}

// equalUnion asserts that the ranks train as one that has all their data.
func (j joinJob) equalUnion(t *testing.T) {
	t.Helper()
	one := j
	one.launch = nil
	want := one.whole(1).Run(t)
	require.GreaterOrEqual(t, len(want.Micro), 10)
	disttest.RequireEqual(t, want, j.whole(len(j.rows)).Run(t), 1e-10)
}

// Ranks that have data of their own, of different lengths, also of none, train as one rank that has all of it.
func TestEqualsTheUnion(t *testing.T) {
	tail := append(always(6, 9), 2)
	for name, j := range map[string]joinJob{
		"1 rank":                   {rows: [][]int{always(5, 10)}},
		"2 ranks":                  {rows: [][]int{always(5, 12), always(3, 4)}},
		"the first one has little": {rows: [][]int{{2}, tail}},
		"3 ranks, one has nothing": {rows: [][]int{always(4, 7), nil, tail}},
		"4 ranks, only the last":   {rows: [][]int{nil, nil, nil, tail}},
		"batches of no rows":       {rows: [][]int{{4, 0, 3, 0, 0, 1}, append([]int{0, 0}, tail...), {0, 0, 5}}},
		"a step of no rows":        {rows: [][]int{{4, 0, 3}, append([]int{2, 0}, tail...)}},
		"accumulation":             {rows: [][]int{always(5, 12), always(3, 5), nil}, micro: 2},
		"other parts":              {rows: [][]int{{3, 2, 1, 4, 3, 2, 3, 2, 1, 4}, {2, 3, 4, 1, 2, 3, 2, 3, 4, 1}}, micro: 2},
		"other parts and fsdp":     {rows: [][]int{{3, 2, 1, 4, 3, 2, 3, 2, 1, 4}, {2, 3, 4, 1, 2, 3, 2, 3, 4, 1}}, micro: 2, sharded: true},
		"SyncBatchNorm":            {rows: [][]int{always(5, 10), always(3, 4), nil, tail}, norm: true},
		"fsdp":                     {rows: [][]int{always(5, 10), always(3, 4), nil}, sharded: true},
		"fsdp and SyncBatchNorm":   {rows: [][]int{always(5, 10), always(3, 4), nil}, sharded: true, norm: true, micro: 2},
	} {
		t.Run(name, j.equalUnion)
	}
}

// The same on devices, in steps that are captured while all ranks have full batches, and run afterwards.
func TestOnDevices(t *testing.T) {
	j := joinJob{rows: [][]int{always(5, 10), always(3, 6)}}
	disttest.OnEach(t, disttest.Machines(), 2, func(t *testing.T, launch disttest.Launcher) {
		for _, j.capture = range []bool{false, true} {
			j.launch = launch
			j.equalUnion(t)
		}
	})
}

// Loaders of different datasets, epoch after epoch: no sample is left out.
func TestOfLoaders(t *testing.T) {
	var mu sync.Mutex
	rows := map[int][]int{}
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 3, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		var src join.Source
		if n := []int{25, 0, 64}[r.World.Rank()]; n > 0 {
			set := disttest.Must(data.Synthetic(n, uint64(r.World.Rank()), tensor.Float32))
			src = data.NewLoader(set, data.Config{Batch: 10, Shuffle: true})
		}
		batches := join.New(r.World, src)
		for epoch := range 2 {
			for i, b := range batches.Epoch(ctx, epoch) {
				want := r.World.Rows(b.First, b.Global)
				want.Number = 7*epoch + i + 1
				require.Equal(t, want, b.X.Rows())
				require.Equal(t, b.X.Rows(), b.Y.Rows())
				require.Equal(t, []int{b.Rows, 784}, b.X.Shape().Dims)
				mu.Lock()
				rows[i] = append(rows[i], b.Rows)
				mu.Unlock()
			}
		}
		return batches.Err()
	}))
	require.Len(t, rows, 7)
	sum := 0
	for i, of := range rows {
		require.Len(t, of, 6, "step %d: ranks and epochs", i)
		for _, n := range of {
			sum += n
		}
	}
	require.Equal(t, 2*(25+64), sum)
}

// joinFailing runs an epoch on three ranks, and returns what each of them says.
func joinFailing(t *testing.T, rank func(ctx context.Context, r *dist.Rank) error) []error {
	t.Helper()
	said := make([]error, 3)
	var mu sync.Mutex
	require.Error(t, dist.Run(t.Context(), dist.Config{
		Ranks: 3, Threads: 1, Log: io.Discard,
	}, func(ctx context.Context, r *dist.Rank) (err error) {
		if failed := tensor.Try(func() { err = rank(ctx, r) }); failed != nil {
			err = failed
		}
		mu.Lock()
		defer mu.Unlock()
		said[r.World.Rank()] = err
		return err
	}))
	return said
}

// drain runs an epoch without training.
func drain(ctx context.Context, r *dist.Rank, epoch int, src join.Source) error {
	batches := join.New(r.World, src)
	for range batches.Epoch(ctx, epoch) {
	}
	for range batches.Epoch(ctx, epoch+1) { // yields nothing after an error
		return errors.New("an epoch after an error")
	}
	return batches.Err()
}

// A loader that was never made is that of a rank without data.
func TestOfNoLoader(t *testing.T) {
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
		var none *data.Loader
		batches := join.New(r.World, none)
		for range batches.Epoch(ctx, 0) {
			return errors.New("a step without data")
		}
		return batches.Err()
	}))
}

// What ranks do differently is refused on all of them, by the same words.
func TestMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		one  func(ctx context.Context, r *dist.Rank, o *own) error // on rank 1
		want string
	}{
		"epochs": {func(ctx context.Context, r *dist.Rank, o *own) error { return drain(ctx, r, 4, o) },
			"join: ranks differ: rank 1 begins epoch 4 where rank 0 begins epoch 0"},
		"shapes": {func(ctx context.Context, r *dist.Rank, o *own) error {
			o.batches[0].X = o.batches[0].X.View(2, 19, 1)
			return drain(ctx, r, 0, o)
		}, "join: ranks differ: a sample of rank 1 is float64[19,1] and int64[] where that of rank 0 is float64[19] and int64[]"},
		"a later shape": {func(ctx context.Context, r *dist.Rank, o *own) error {
			o.batches[2].X = o.batches[2].X.View(2, 1, 19)
			return drain(ctx, r, 0, o)
		}, "a sample is float64[1,19] and int64[], and the first one was float64[19] and int64[]"},
		"rows of X and Y": {func(ctx context.Context, r *dist.Rank, o *own) error {
			o.batches[1].Y = o.batches[1].Y.Range(0, 1)
			return drain(ctx, r, 0, o)
		}, "a batch is not of X and Y with as many rows each"},
		"a part of a global batch": {func(ctx context.Context, r *dist.Rank, o *own) error {
			o.batches[0].X = o.batches[0].X.WithRows(r.World.Rows(2, 6))
			return drain(ctx, r, 0, o)
		}, "a batch is a part of a global one already (2 rows of 6): its loader must have no Sharder"},
		"a source that fails": {func(ctx context.Context, r *dist.Rank, o *own) error {
			o.batches, o.err = o.batches[:2], errFile
			return drain(ctx, r, 0, o)
		}, errFile.Error()},
		"no Join": {func(_ context.Context, r *dist.Rank, o *own) error {
			return r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 1), dist.Sum).Wait()
		}, "allreduce"},
	} {
		t.Run(name, func(t *testing.T) {
			for rank, err := range joinFailing(t, func(ctx context.Context, r *dist.Rank) error {
				o := ownBatches(r.Device, r.World.Rank(), always(2, 3+r.World.Rank()))
				if r.World.Rank() == 1 {
					return c.one(ctx, r, o)
				}
				return drain(ctx, r, 0, o)
			}) {
				require.ErrorContains(t, err, c.want, "on rank %d", rank)
				if name == "a source that fails" {
					require.Equal(t, rank == 1, errors.Is(err, errFile))
				}
			}
		})
	}
}

// A rank that dies in the middle of an epoch is an error on all others, whether they still have data or shadow.
func TestWithARankThatDies(t *testing.T) {
	for _, dies := range []int{0, 2} { // with data, and without
		for rank, err := range joinFailing(t, func(ctx context.Context, r *dist.Rank) error {
			model := joinModel(false)
			params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64}))
			opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
			batches := join.New(r.World, ownBatches(r.Device, r.World.Rank(), always(3, []int{12, 9, 2}[r.World.Rank()])))
			for i, b := range batches.Epoch(ctx, 0) {
				if i == 5 && r.World.Rank() == dies {
					return errFile
				}
				tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y))
				disttest.OK(opt.Step())
				tape.Reset()
			}
			return batches.Err()
		}) {
			require.ErrorContains(t, err, errFile.Error(), "on rank %d, when %d died", rank, dies)
		}
	}
}
