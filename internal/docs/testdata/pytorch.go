// Command pytorch runs the right column of docs/pytorch.md, and prints as JSON what came out. A test writes the expressions behind this text,
// as a list named sections: each is a function of the names that the page uses.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"iter"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	pq "github.com/parquet-go/parquet-go"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/images"
	"github.com/ringo-ml/ringo/data/parquet"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/ddp/powersgd"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/join"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tp"
)

// expr is an expression of the page.
type expr struct {
	at, code string
	run      func(NAMES) []any
}

type section struct {
	name  string
	exprs []expr
}

// result is what an expression did on a rank.
type result struct {
	Value any                  // what it returned; nil: nothing that has numbers
	After map[string][]float64 // tensors that it changed
}

func main() {
	if err := files(); err != nil {
		fail(err)
	}
	out := map[string][]result{}
	for _, s := range sections {
		cfg := dist.Config{Ranks: 1, Threads: 1, Timeout: time.Minute, Log: os.Stderr}
		if s.name == "torch.distributed" || s.name == "Parallel training" {
			cfg.Ranks = 8
		}
		if err := dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error { return runSection(ctx, r, s, out) }); err != nil {
			fail(fmt.Errorf("%s: %w", s.name, err))
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"Ran": out, "Defaults": defaults()}); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// runSection runs the expressions on a rank, and writes what came out on ranks 0 and 1.
func runSection(ctx context.Context, r *dist.Rank, s section, out map[string][]result) error {
	mine := map[string]result{}
	var mesh *dist.Mesh // which is made before anything uses all ranks
	var err error
	if axes, ok := map[string]string{"torch.distributed": "dp=2,tp=4", "Parallel training": "dp=2,fsdp=4"}[s.name]; ok {
		if mesh, err = r.World.Mesh(axes); err != nil {
			return err
		}
	}
	var errs []error
	for _, x := range s.exprs {
		if only, ok := onlyOn(x.code); ok && only != r.World.Rank() {
			continue
		}
		if failed := tensor.Try(func() { mine[x.code], err = runExpr(ctx, r, mesh, s.name, x) }); failed != nil {
			err = failed
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", x.at, x.code, err))
		}
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	list, err := dist.AllGatherObject(r.World, mine)
	if err != nil || r.World.Rank() != 0 {
		return err
	}
	for _, m := range list[:min(2, len(list))] {
		for code, res := range m {
			out[code] = append(out[code], res)
		}
	}
	return nil
}

// onlyOn is the rank of an expression that others do not run.
func onlyOn(code string) (rank int, ok bool) {
	switch {
	case strings.HasPrefix(code, "g.Recv("):
		return 1, true
	case strings.HasPrefix(code, "g.Send("), strings.HasPrefix(code, "ckpt.SaveFile"), strings.HasPrefix(code, "ckpt.LoadFile"):
		return 0, true
	}
	return 0, false
}

// names are what the expressions may use.
type names struct {
	x, y, z, loss, logits, labels tensor.Tensor
	tape                          *tensor.Tape
	g                             *dist.Group
	mesh                          *dist.Mesh
	opt                           *optim.Optimizer
	params                        nn.Params
	s                             *fsdp.Sharding
	set                           data.Dataset
	batches                       *data.Loader
	model                         *nn.MLP
}

func runExpr(ctx context.Context, r *dist.Rank, mesh *dist.Mesh, section string, e expr) (result, error) {
	n, err := fresh(r, mesh, section)
	if err != nil {
		return result{}, err
	}
	if strings.HasPrefix(e.code, "nn.LoRA") || strings.HasPrefix(e.code, "nn.Float8") {
		n.model = nn.NewMLP(16, 32) // without values, and of sizes that float8 can have
	}
	switch {
	case e.code == "s.Attach(model)":
		n.s.Unit(n.model)
	case strings.HasPrefix(e.code, "ckpt."):
		n.params = nn.Init(n.model, r.Device, tensor.Float32, 1)
	}
	var p *tensor.Param
	if len(n.params) > 0 {
		p = n.params[0]
	}
	got := e.run(ctx, n.x, n.y, n.z, n.loss, n.logits, n.labels, n.tape, r, n.g, n.mesh, n.opt, n.params, p, n.s, n.set, n.batches, n.model)
	var values []any
	for _, v := range got {
		value, err := use(ctx, r, n, v)
		if err != nil {
			return result{}, err
		}
		if value != nil {
			values = append(values, value)
		}
	}
	res := result{After: map[string][]float64{}}
	if len(values) > 0 {
		res.Value = values
	}
	for name, x := range map[string]tensor.Tensor{"x": n.x, "y": n.y} {
		res.After[name] = tensor.Floats(x)
	}
	if p != nil && !p.Value.IsZero() {
		res.After["p"] = tensor.Floats(p.Value)
		if !p.Grad.IsZero() {
			res.After["grad"] = tensor.Floats(p.Grad)
		}
	}
	return res, nil
}

// numbers are the first ones of the inputs, which the Python program has, too.
func numbers(n int, factor, add float64) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(factor*float64((i*7+3)%11-5) + add)
	}
	return list
}

// fresh makes the names for one expression, so that none sees what another did.
func fresh(r *dist.Rank, mesh *dist.Mesh, section string) (names, error) {
	rank, size := r.World.Rank(), r.World.Size()
	n := names{mesh: mesh, g: r.World, tape: tensor.NewTape(r.Device), model: nn.NewMLP(3, 4)}
	n.x, n.y = host(numbers(6, 0.25, 0), 2, 3), host(numbers(6, -0.5, 0.125), 2, 3)
	n.z = host(numbers(48, 0.25, 0.5), 2, 3, 8)
	set, err := data.NewTensors(host(numbers(450, 0.25, 0), 150, 3), tensor.FromSlice(make([]int64, 150), 150))
	if err != nil {
		return n, err
	}
	n.set, n.batches = set, data.NewLoader(set, data.Config{Batch: 64, Sharder: r.World})
	if mesh != nil {
		n.x = host(numbers(size*3, 0.25, float64(rank)), size, 3)
		n.y = host(numbers(size*3, -0.5, float64(rank)), size, 3)
		n.z = host(numbers(size*size*3, 0.25, float64(rank)), size*size, 3)
		n.model = nn.NewMLP(3, 16) // which 8 ranks can divide
		n.s = fsdp.New(fsdp.Config{Shard: r.World})
		return n, nil
	}
	n.params = nn.Init(n.model, r.Device, tensor.Float32, 1)
	for i, p := range n.params {
		copy(tensor.Data[float32](p.Value), numbers(p.Value.Len(), 0.125, float64(i)/8))
	}
	n.opt = optim.NewAdamW(n.params, optim.AdamWConfig{LR: 0.1, Clip: 1})
	n.labels = tensor.FromSlice([]int64{2, 0}, 2, 1)
	switch section {
	case "Data":
		return n, nil
	case "Optimizers":
		n.tape.Backward(nn.MSE(n.model.Forward(n.tape.Input(n.x)), n.tape.Input(n.y)))
		return n, nil
	case "Layers and losses":
		n.labels = n.labels.Reshape(2)
	}
	n.x, n.y, n.z, n.logits = n.tape.Leaf(n.x), n.tape.Input(n.y), n.tape.Input(n.z), n.tape.Input(host(numbers(10, 0.25, 0), 2, 5))
	n.labels = n.tape.Input(n.labels)
	n.loss = nn.MSE(n.model.Forward(n.x), n.y)
	return n, nil
}

// defaults are measured where they can be, by the names that pytorch.py gives them.
func defaults() map[string]any {
	linear, conv := nn.NewLinear(10000, 16), nn.NewConv2d(10000, 16, 1, ops.Conv2dOptions{})
	embedding, attention, batch := nn.NewEmbedding(1000, 100), nn.NewAttention(64, 8), nn.NewBatchNorm2d(2)
	dev := cpu.New(1)
	params := nn.Init(&struct{ A, B, C, D any }{linear, conv, embedding, attention}, dev, tensor.Float32, 1)
	adamw, rate, ignored := optim.NewAdamW(params, optim.AdamWConfig{}), any("none"), any("none")
	_ = tensor.Try(func() { rate = optim.NewSGD(params, optim.SGDConfig{}).LR() })
	if label := (ops.CrossEntropyOptions{}).Ignore; label != nil {
		ignored = *label
	}
	return map[string]any{
		"learning rate of AdamW":                                        adamw.LR(),
		"weight decay of AdamW":                                         decay(dev),
		"learning rate of SGD":                                          rate,
		"momentum of SGD":                                               optim.SGDConfig{}.Momentum,
		"gradients that are not finite are an error":                    adamw.Stops(),
		"first scale of a GradScaler":                                   optim.NewScaler().Scale,
		"epsilon of LayerNorm":                                          nn.NewLayerNorm(2).Eps,
		"epsilon of RMSNorm (float32)":                                  nn.NewRMSNorm(2).Eps,
		"epsilon of GroupNorm":                                          nn.NewGroupNorm(1, 2).Eps,
		"epsilon of BatchNorm2d":                                        batch.Eps,
		"momentum of BatchNorm2d":                                       batch.Momentum,
		"largest initial weight of a Linear, 10000 features":            bound(linear.W),
		"largest initial weight of a Conv2d, 10000 channels of 1 pixel": bound(conv.W),
		"deviation of an Embedding's initial weights":                   deviation(embedding.W),
		"largest initial bias of an attention's queries, 64 features":   bound(attention.QKV.B),
		"the first dimension of an attention's input is the batch":      batchFirst(attention, dev),
		"label that a cross-entropy ignores":                            ignored,
		"a loader of one process shuffles":                              data.Config{}.Shuffle,
		"a loader drops the last batch":                                 data.Config{}.DropLast,
		"a sampler for several ranks shuffles":                          data.Config{}.Shuffle,
		"samples that 4 ranks read of 10":                               samplesOf(10, 4),
		"seconds until a collective times out":                          dist.DefaultTimeout.Seconds(),
	}
}

// bound is that of a uniform initialization, to one digit.
func bound(p *tensor.Param) (most float64) {
	for _, v := range tensor.Floats(p.Value) {
		most = max(most, math.Abs(v))
	}
	most, _ = strconv.ParseFloat(fmt.Sprintf("%.1g", most), 64)
	return most
}

// deviation is that of values whose mean is 0, to one digit.
func deviation(p *tensor.Param) float64 {
	sum := 0.0
	for _, v := range tensor.Floats(p.Value) {
		sum += v * v
	}
	return math.Round(10*math.Sqrt(sum/float64(p.Value.Len()))) / 10
}

// decay is by how much a step with a learning rate of 1 and a gradient of 0 makes a parameter of 1 smaller.
func decay(dev tensor.Device) float64 {
	p := tensor.NewParam(tensor.Constant(1), 2)
	opt := optim.NewAdamW(nn.Init(&struct{ P *tensor.Param }{p}, dev, tensor.Float32, 1), optim.AdamWConfig{LR: 1})
	tape := tensor.NewTape(dev)
	tape.Backward(tape.Use(p).Scale(0).Sum())
	if err := opt.Step(); err != nil {
		fail(err)
	}
	return 1 - tensor.Floats(p.Value)[0]
}

// batchFirst reports whether sequences of one token do not see each other if they lie along the first dimension.
func batchFirst(a *nn.Attention, dev tensor.Device) bool {
	tape := tensor.NewTape(dev, tensor.NoGrad())
	both := a.Forward(tape.Input(host(numbers(128, 0.25, 0), 2, 1, 64)))
	last := a.Forward(tape.Input(host(numbers(128, 0.25, 0)[64:], 1, 1, 64)))
	return math.Abs(tensor.Floats(both)[64]-tensor.Floats(last)[0]) < 1e-6
}

type part struct{ rank, size int }

func (p part) Rank() int { return p.rank }
func (p part) Size() int { return p.size }

// samplesOf are those that so many ranks read of a dataset.
func samplesOf(n, ranks int) (read int) {
	set, err := data.NewTensors(host(make([]float32, n), n, 1), host(make([]float32, n), n, 1))
	if err != nil {
		fail(err)
	}
	for r := range ranks {
		l := data.NewLoader(set, data.Config{Batch: n, Sharder: part{r, ranks}})
		each(l.Epoch(context.Background(), 0), func(b data.Batch) { read += b.Rows })
	}
	return read
}

func host(list []float32, dims ...int) tensor.Tensor { return tensor.FromSlice(list, dims...) }

// use does with a result what a program does with it, and returns the numbers in it, or nil.
func use(ctx context.Context, r *dist.Rank, n names, v any) (any, error) {
	switch v := v.(type) {
	case error:
		return nil, v
	case dist.Work:
		return nil, v.Wait()
	case tensor.Tensor:
		if v.IsZero() {
			return nil, nil
		}
		return tensor.Floats(v), nil
	case []tensor.Tensor:
		var list []any
		for _, x := range v {
			list = append(list, tensor.Floats(x))
		}
		return list, nil
	case tensor.Shape:
		return v.Dims, nil
	case tensor.DType:
		return fmt.Sprint(v), nil
	case int, float64, []float64, []float32:
		return v, nil
	case optim.AdamWConfig:
		return nil, trained(n, optim.NewAdamW(n.params, v))
	case optim.Group:
		return nil, trained(n, optim.NewAdamW(n.params, optim.AdamWConfig{LR: 0.1, Groups: []optim.Group{v}}))
	case *optim.Optimizer:
		return nil, trained(n, v)
	case data.Config:
		v.Sharder = nil
		return rows(ctx, data.NewLoader(n.set, v))
	case *data.Loader:
		return rows(ctx, v)
	case iter.Seq2[int, data.Batch]:
		each(v, func(data.Batch) {})
	case data.Dataset:
		_, err := rows(ctx, data.NewLoader(v, data.Config{Batch: 2}))
		return nil, err
	case ddp.Config:
		params, err := ddp.Attach(r.World, n.model, v)
		if err != nil {
			return nil, err
		}
		return nil, step(r, n, params, tensor.Float32)
	case fsdp.Config:
		s := fsdp.New(v)
		s.Unit(n.model)
		params, err := s.Attach(n.model)
		if err != nil {
			return nil, err
		}
		return nil, step(r, n, params, cmp.Or(v.Compute, tensor.Float32))
	case *ckpt.Saver:
		if err := v.Save(ctx, ckpt.State{Step: 100, Params: n.params}); err != nil {
			return nil, err
		}
		return nil, v.Close()
	case tp.Config:
		return nil, tp.Parallelize(n.model, v, func(p *tp.Parallel) { p.Columns(nn.NewLayerNorm(3), n.model.Up); p.Row(n.model.Down) })
	case nn.Layer:
		var sizes []int
		for _, p := range nn.Init(v, r.Device, tensor.Float32, 1) {
			if !p.IsBuffer() {
				sizes = append(sizes, p.Value.Len())
			}
		}
		return sizes, nil
	}
	return nil, nil
}

// trained does three steps.
func trained(n names, opt *optim.Optimizer) error {
	for _, p := range n.params {
		p.Consume() // what fresh left
	}
	for range 3 {
		n.tape.Reset()
		n.tape.Backward(nn.MSE(n.model.Forward(n.tape.Input(n.x)), n.tape.Input(n.y)))
		if err := opt.Step(); err != nil {
			return err
		}
	}
	return nil
}

// step trains on rows that are other ones on each rank.
func step(r *dist.Rank, n names, params nn.Params, compute tensor.DType) error {
	opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
	loader := data.NewLoader(n.set, data.Config{Batch: 64, Sharder: r.World})
	tape := tensor.NewTape(r.Device)
	for _, b := range loader.Epoch(context.Background(), 0) {
		tape.Backward(nn.MSE(n.model.Forward(tape.Input(b.X).Cast(compute)), tape.Input(b.X).Cast(compute)))
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
	}
	return loader.Err()
}

// rows are those of each batch of an epoch.
func rows(ctx context.Context, l *data.Loader) (any, error) {
	var list []int
	each(l.Epoch(ctx, 0), func(b data.Batch) { list = append(list, b.Rows) })
	return list, l.Err()
}

func each(seq iter.Seq2[int, data.Batch], f func(data.Batch)) {
	for _, b := range seq {
		f(b)
	}
}

// files makes those that the page reads.
func files() error {
	if err := os.MkdirAll("photos/cat", 0o755); err != nil {
		return err
	}
	photo, err := os.Create("photos/cat/1.png")
	if err != nil {
		return err
	}
	defer photo.Close()
	if err := png.Encode(photo, image.NewRGBA(image.Rect(0, 0, 8, 8))); err != nil {
		return err
	}
	if err := os.Mkdir("t", 0o755); err != nil {
		return err
	}
	type row struct {
		X float64 `parquet:"x"`
		Y float64 `parquet:"y"`
	}
	return pq.WriteFile("t/1.parquet", []row{{1, 2}, {3, 4}})
}
