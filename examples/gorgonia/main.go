// Command gorgonia trains a small network on images in gorgonia's arrays (the *Dense of gorgonia.org/tensor). Then gorgonia's own functions
// classify the test images with the trained weights, on Ringo's kernels: gorgonia.Engine. Both use the same memory for images and weights.
package main

import (
	"context"
	"flag"
	"log"
	"os"

	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/gorgonia"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gorgonia: ")
	steps := flag.Int("steps", 150, "training steps of 50 images")
	device := dist.DeviceFlag()
	flag.Parse()
	if *steps < 1 || flag.NArg() > 0 {
		log.Printf("-steps must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	one := dist.Config{Ranks: 1, Exact: true, Device: *device}
	if err := dist.Run(context.Background(), one, func(ctx context.Context, r *dist.Rank) error { return train(ctx, r, *steps) }); err != nil {
		log.Fatal(err)
	}
}

func train(ctx context.Context, r *dist.Rank, steps int) error {
	host := cpu.New(0)
	defer host.Close()
	engine := gorgonia.NewEngine(host)
	trainSet, err := newArrays(2000, 1, engine)
	if err != nil {
		return err
	}
	testSet, err := newArrays(500, 2, engine)
	if err != nil {
		return err
	}
	model := nn.Sequential{nn.NewLinear(784, 64), nn.Tanh, nn.NewLinear(64, 10)}
	params := nn.Init(model, r.Device, tensor.Float32, 1)
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3})
	tape := tensor.NewTape(r.Device)
	batches := data.NewLoader(trainSet.set, data.Config{Batch: 50, Shuffle: true, Device: r.Device})
	for step := 0; step < steps; {
		for _, b := range batches.Epoch(ctx, batches.State().Epoch) {
			loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
			if step%50 == 0 {
				r.Logf("step %d  loss %.4f", step, loss.Item())
			}
			tape.Backward(loss)
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
			if step++; step == steps {
				break
			}
		}
		if err := batches.Err(); err != nil {
			return err
		}
	}
	logits, err := classify(model, testSet.x)
	if err != nil {
		return err
	}
	best, err := gt.Argmax(logits, 1)
	if err != nil {
		return err
	}
	right := 0
	for i, class := range best.Data().([]int) {
		if int64(class) == testSet.y.Data().([]int64)[i] {
			right++
		}
	}
	r.Logf("test accuracy %.1f%%", 100*float64(right)/float64(testSet.set.Len()))
	return nil
}

// classify computes the logits of images [n,784] with gorgonia's functions, on the engine of x.
func classify(model nn.Sequential, x *gt.Dense) (gt.Tensor, error) {
	ones := gt.Ones(gt.Float32, x.Shape()[0])
	gt.WithEngine(x.Engine())(ones)
	hidden, err := linear(model[0].(*nn.Linear), x, ones)
	if err != nil {
		return nil, err
	}
	hidden, err = gt.Tanh(hidden, gt.UseUnsafe())
	if err != nil {
		return nil, err
	}
	return linear(model[2].(*nn.Linear), hidden, ones)
}

// linear is x·Wᵀ + b. W and b share the model's memory if the model is in host memory.
func linear(l *nn.Linear, x gt.Tensor, ones *gt.Dense) (gt.Tensor, error) {
	w, err := gorgonia.Dense(tensor.ToHost(l.W.Value))
	if err != nil {
		return nil, err
	}
	b, err := gorgonia.Dense(tensor.ToHost(l.B.Value))
	if err != nil {
		return nil, err
	}
	if err := w.T(); err != nil { // a transposed view, which the kernels read without a copy
		return nil, err
	}
	y, err := gt.MatMul(x, w)
	if err != nil {
		return nil, err
	}
	biases, err := gt.Outer(ones, b) // gorgonia does not broadcast rows
	if err != nil {
		return nil, err
	}
	return gt.Add(y, biases, gt.UseUnsafe())
}

// arrays are images in gorgonia's arrays.
type arrays struct {
	x   *gt.Dense     // [n,784], float32
	y   *gt.Dense     // [n], int64
	set *data.Tensors // on their memory
}

// newArrays makes n images from a seed.
func newArrays(n int, seed uint64, engine *gorgonia.Engine) (a arrays, err error) {
	images, err := data.Synthetic(n, seed, tensor.Float32)
	if err != nil {
		return a, err
	}
	a.x = gt.New(gt.Of(gt.Float32), gt.WithShape(n, 784), gt.WithEngine(engine))
	a.y = gt.New(gt.Of(gt.Int64), gt.WithShape(n))
	x, err := gorgonia.FromDense(a.x)
	if err != nil {
		return a, err
	}
	y, err := gorgonia.FromDense(a.y)
	if err != nil {
		return a, err
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	if err := images.Batch(all, x, y); err != nil { // writes into the arrays' memory
		return a, err
	}
	a.set, err = data.NewTensors(x, y)
	return a, err
}
