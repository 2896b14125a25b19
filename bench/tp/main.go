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
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tp"
)

type options struct {
	ranks, threads, chunks int
	sequence               bool
}

func main() {
	var o options
	flag.IntVar(&o.ranks, "ranks", 1, "goroutine ranks, which divide the layers (under ringo run, the launcher decides)")
	flag.IntVar(&o.threads, "threads", 1, "threads of a rank")
	flag.BoolVar(&o.sequence, "sp", false, "sequence parallelism")
	flag.IntVar(&o.chunks, "async", 0, "with -sp: pieces in which tokens travel")
	flag.Parse()
	in := io.Reader(os.Stdin)
	if flag.NArg() > 0 { // a launcher's ranks have no standard input
		in = strings.NewReader(strings.Join(flag.Args(), "\n"))
	}
	if err := o.run(in, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run reads the times to train for from in, and writes results to out.
func (o *options) run(in io.Reader, out io.Writer) error {
	return dist.Run(context.Background(), dist.Config{
		Ranks: o.ranks, Threads: o.threads, Log: out,
	}, func(_ context.Context, r *dist.Rank) error {
		t, err := o.trainer(r)
		lines := bufio.NewScanner(in)
		for err == nil {
			text := ""
			if r.World.Rank() == 0 && lines.Scan() {
				text = strings.TrimSpace(lines.Text())
			}
			if text, err = dist.BroadcastObject(r.World, text, 0); err != nil || text == "" {
				return err
			}
			var seconds float64
			if seconds, err = strconv.ParseFloat(text, 64); err == nil {
				err = t.measure(seconds)
			}
		}
		return err
	})
}

// trainer is one rank.
type trainer struct {
	r     *dist.Rank
	group *dist.Group // of the ranks that divide layers
	model *gpt.Model
	opt   *optim.Optimizer
	tape  *tensor.Tape
	ids   tensor.Tensor
	loss  func(logits, labels nn.T, options ...ops.CrossEntropyOptions) nn.T
}

func (o *options) trainer(r *dist.Rank) (*trainer, error) {
	m, err := gpt.New(gpt.Config{Kind: gpt.GPT2, Vocab: 512, Positions: 128, Width: 512, Layers: 4, Heads: 8})
	if err != nil {
		return nil, err
	}
	t := &trainer{r: r, group: r.World, model: m, tape: tensor.NewTape(r.Device), ids: tensor.New(r.Device, tensor.Int64, 8, 128),
		loss: nn.CrossEntropy}
	for i, ids := 0, tensor.Data[int64](t.ids); i < len(ids); i++ {
		ids[i] = int64(tensor.RandomBits(1, uint64(i)) % 512)
	}
	if r.World.Size() > 1 {
		mesh, err := r.Mesh(fmt.Sprintf("tp=%d", r.World.Size()))
		if err != nil {
			return nil, err
		}
		t.group = mesh.Group("tp")
		if err := tp.Parallelize(m, tp.Config{Group: t.group, Sequence: o.sequence, Chunks: o.chunks}, t.divide); err != nil {
			return nil, err
		}
	}
	t.opt = optim.NewAdamW(nn.Init(m, r.Device, tensor.Float32, 1), optim.AdamWConfig{LR: 1e-4, WeightDecay: 0.01})
	return t, nil
}

func (t *trainer) divide(p *tp.Parallel) {
	m := t.model
	p.Vocab(m.Tok)
	m.Embedded = p.Tokens()
	for _, b := range m.Blocks {
		b.Norm1 = p.Heads(b.Norm1, b.Attn.HeadDim, b.Attn.Q, b.Attn.K, b.Attn.V)
		p.Row(b.Attn.Out)
		mlp := b.MLP.(*nn.MLP)
		b.Norm2 = p.Columns(b.Norm2, mlp.Up)
		p.Row(mlp.Down)
	}
	m.Norm = p.Columns(m.Norm, m.Head)
	t.loss = p.CrossEntropy(m.Config.Vocab).Loss
}

func (t *trainer) steps(n int) error {
	for range n {
		t.tape.Backward(t.loss(t.model.Forward(t.tape.Input(t.ids)), t.ids))
		if err := t.opt.Step(); err != nil {
			return err
		}
		t.tape.Reset()
	}
	return nil
}

// result is a line of output.
type result struct {
	StepsPerS float64 `json:"steps_per_s"`
	Exposed   float64 `json:"exposed"` // part of the time that rank 0 waits for others
	Engine    string  `json:"engine"`
}

// measure trains for about the given time, after two steps to warm up.
func (t *trainer) measure(seconds float64) error {
	start := time.Now()
	if err := t.steps(2); err != nil {
		return err
	}
	n, err := dist.BroadcastObject(t.r.World, max(1, int(2*seconds/time.Since(start).Seconds())), 0)
	if err == nil {
		err = t.r.World.Barrier().Wait()
	}
	if err != nil {
		return err
	}
	waited := t.group.Waited()
	start = time.Now()
	if err := t.steps(n); err != nil {
		return err
	}
	elapsed := time.Since(start)
	line, err := json.Marshal(result{float64(n) / elapsed.Seconds(), (t.group.Waited() - waited).Seconds() / elapsed.Seconds(), t.r.Engine()})
	t.r.Logf("%s", line)
	return err
}
