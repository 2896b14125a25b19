// Command train measures training steps. torch_steps.py does the same with the same networks. For each number of seconds, in its arguments
// or else in the lines of its standard input, it trains for about that time and prints a line of JSON. The scripts bench/train/run and
// bench/ddp/run run it and PyTorch in turn.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

type options struct {
	model, optim, dtype   string
	batch, ranks, threads int
	kernels               bool
}

func main() {
	var o options
	flag.StringVar(&o.model, "model", "mlp", "mlp: 784-512-512-10; gpt: 4 layers of 256, 4 heads, 128 tokens, vocabulary of 512")
	flag.StringVar(&o.optim, "optim", "sgd", "sgd or adamw")
	flag.StringVar(&o.dtype, "dtype", "float32", "of parameters, activations and gradients; of bfloat16 the optimizer has float32 masters")
	flag.IntVar(&o.batch, "batch", 64, "rows, or sequences, of a rank")
	flag.IntVar(&o.ranks, "ranks", 1, "goroutine ranks (under ringo run, the launcher decides)")
	flag.IntVar(&o.threads, "threads", 1, "threads of a rank")
	flag.BoolVar(&o.kernels, "kernels", false, "print the time of each kernel as well, by elements of its result")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this `file`")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			log.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	if err := o.run(flag.Args(), os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run reads the times to train for from args, or else from stdin, and writes results to out.
func (o *options) run(args []string, stdin io.Reader, out io.Writer) error {
	cfg := dist.Config{Ranks: o.ranks, Threads: o.threads, Log: out}
	if o.kernels {
		cfg.Trace = 1 << 18
	}
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		t, err := o.trainer(r)
		if err != nil {
			return err
		}
		in := bufio.NewScanner(stdin)
		for i := 0; ; i++ {
			text := ""
			switch {
			case len(args) > 0 && i < len(args):
				text = args[i]
			case len(args) == 0 && r.World.Rank() == 0 && in.Scan():
				text = strings.TrimSpace(in.Text())
			}
			if text, err = dist.BroadcastObject(r.World, text, 0); err != nil || text == "" {
				if o.kernels && r.World.Rank() == 0 {
					t.printKernels(out)
				}
				return err
			}
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return err
			}
			if err := t.measure(seconds); err != nil {
				return err
			}
		}
	})
}

// trainer is one rank.
type trainer struct {
	r     *dist.Rank
	model nn.Layer
	opt   *optim.Optimizer
	tape  *tensor.Tape
	x, y  []tensor.Tensor
	next  int
	done  int // steps
	loss  float64
}

// size is the size of the transformer.
var size = gpt.Config{Vocab: 512, Positions: 128, Width: 256, Layers: 4, Heads: 4}

const pool = 50 // batches in memory, used in turn

func (o *options) trainer(r *dist.Rank) (*trainer, error) {
	dtype, err := tensor.ParseDType(o.dtype)
	if err != nil {
		return nil, err
	}
	t := &trainer{r: r, tape: tensor.NewTape(r.Device, tensor.Trace(r.Trace))}
	for i := range pool {
		key := uint64(r.World.Rank()*pool + i)
		switch o.model {
		case "mlp":
			x := tensor.New(r.Device, dtype, o.batch, 784)
			tensor.UniformInit(0, 1).Fill(x, key, 0)
			t.x, t.y = append(t.x, x), append(t.y, whole(r.Device, 2*key, 10, o.batch))
		case "gpt":
			t.x = append(t.x, whole(r.Device, 2*key, uint64(size.Vocab), o.batch, size.Positions))
			t.y = append(t.y, whole(r.Device, 2*key+1, uint64(size.Vocab), o.batch, size.Positions))
		default:
			return nil, fmt.Errorf("-model %s: mlp or gpt", o.model)
		}
	}
	for i, x := range t.x {
		t.x[i] = x.WithRows(r.World.Rows(o.batch*r.World.Rank(), o.batch*r.World.Size()))
	}
	if o.model == "mlp" {
		t.model = nn.Sequential{nn.NewLinear(784, 512), nn.ReLU, nn.NewLinear(512, 512), nn.ReLU, nn.NewLinear(512, 10)}
	} else if t.model, err = gpt.New(size); err != nil {
		return nil, err
	}
	params, err := ddp.Attach(r.World, t.model, ddp.Config{DType: dtype, Seed: 1})
	switch {
	case err != nil:
		return nil, err
	case o.optim == "sgd":
		t.opt = optim.NewSGD(params, optim.SGDConfig{LR: 0.01})
	case o.optim == "adamw":
		t.opt = optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3, WeightDecay: 0.01})
	default:
		return nil, fmt.Errorf("-optim %s: sgd or adamw", o.optim)
	}
	return t, nil
}

// whole returns random integers below n.
func whole(dev tensor.Device, key, n uint64, dims ...int) tensor.Tensor {
	x := tensor.New(dev, tensor.Int64, dims...)
	for i := range tensor.Data[int64](x) {
		tensor.Data[int64](x)[i] = int64(tensor.RandomBits(key, uint64(i)) % n)
	}
	return x
}

func (t *trainer) steps(n int) error {
	for range n {
		t.r.Trace.Step(t.done)
		loss := nn.CrossEntropy(t.model.Forward(t.tape.Input(t.x[t.next])), t.y[t.next])
		t.loss = loss.Item() * float64(t.r.World.Size()) // a mean over this rank's rows
		t.tape.Backward(loss)
		if err := t.opt.Step(); err != nil {
			return err
		}
		t.tape.Reset()
		t.next = (t.next + 1) % pool
		t.done++
		t.r.Trace.EndStep()
	}
	return nil
}

// result is a line of output.
type result struct {
	StepsPerS     float64 `json:"steps_per_s"`
	AllocsPerStep float64 `json:"allocs_per_step"`
	Loss          float64 `json:"loss"`
	Engine        string  `json:"engine"`
	Go            string  `json:"go"`
}

// measure trains for about the given time, after a warm-up of a fifth of it.
func (t *trainer) measure(seconds float64) error {
	const first = 8
	start := time.Now()
	if err := t.steps(first); err != nil {
		return err
	}
	n, err := dist.BroadcastObject(t.r.World, int(first*seconds/time.Since(start).Seconds())+1, 0)
	if err != nil {
		return err
	}
	if err := t.steps(n / 5); err != nil {
		return err
	}
	if err := t.r.World.Barrier().Wait(); err != nil {
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start = time.Now()
	if err := t.steps(n); err != nil {
		return err
	}
	if err := t.r.World.Barrier().Wait(); err != nil {
		return err
	}
	elapsed := time.Since(start).Seconds()
	runtime.ReadMemStats(&after)
	line, err := json.Marshal(result{float64(n) / elapsed, float64(after.Mallocs-before.Mallocs) / float64(n), t.loss, t.r.Engine(), runtime.Version()})
	t.r.Logf("%s", line)
	return err
}
