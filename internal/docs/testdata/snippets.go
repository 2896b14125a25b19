// Command snippets has a function around each piece of Go that is no whole program. A line "// PAGE: HEADING" stands for the piece below that
// heading of the page.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

func main() {
	for _, s := range []struct {
		name  string
		ranks int
		run   func(ctx context.Context, r *dist.Rank) error
	}{{"restarts", 1, restarts}, {"rebuild", 3, rebuild}, {"experts", 8, experts}, {"together", 8, together}, {"pipeline", 8, pipeline}} {
		cfg := dist.Config{Ranks: s.ranks, Threads: 1, Timeout: time.Minute, Log: os.Stdout}
		if err := dist.Run(context.Background(), cfg, s.run); err != nil {
			fmt.Println(s.name+":", err)
			os.Exit(1)
		}
		fmt.Println(s.name, "done")
	}
}

func restarts(_ context.Context, r *dist.Rank) error {
	step, steps, trained := 0, 3, 0
	loadCheckpoint := func() int { return 1 }
	train := func(int) { trained++ }
	// docs/LAUNCH.md: Restarts
	if trained != steps {
		return fmt.Errorf("%d steps in place of %d", trained, steps)
	}
	return nil
}

// rebuild loses rank 2 in step 1: the other two go on.
func rebuild(ctx context.Context, r *dist.Rank) error {
	g, step, steps, resumed := r.World, 0, 4, 0
	me := g.Rank()
	train := func(g *dist.Group, step int) error {
		if step == 1 && me == 2 {
			return errors.New("rank 2 stops here")
		}
		return g.SumFloats([]float64{1})
	}
	resume := func(g *dist.Group) (int, error) {
		resumed = g.Size()
		return dist.BroadcastObject(g, step, 0) // one rank may have seen the end of a step, another one not
	}
	if me == 2 {
		for k := range steps {
			if err := train(g, k); err != nil {
				return nil // it leaves the job
			}
		}
	}
	// docs/RELIABILITY.md: Continue with the ranks that are left
	if resumed != 2 || g.Size() != 2 || step != steps {
		return fmt.Errorf("%d ranks resumed, %d are left, %d steps are done", resumed, g.Size(), step)
	}
	return nil
}

type mixture struct {
	In   *nn.Linear
	MoE  *moe.Layer
	Head *nn.Linear
}

func experts(ctx context.Context, r *dist.Rank) error {
	m := &mixture{nn.NewLinear(784, 8), moe.NewLayer(moe.Config{Features: 8, Hidden: 16, Experts: 8, Router: router.Config{Top: 2}}), nn.NewLinear(8, 10)}
	layers := []*moe.Layer{m.MoE}
	// docs/parallelism.md: Expert parallel (`moe`)
	if err != nil {
		return err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3})
	return fit(ctx, r, data.Config{Batch: 64, Sharder: mesh.Group("dp", "ep")}, opt, func(x nn.T, labels tensor.Tensor) nn.T {
		h := m.In.Forward(x)
		return nn.CrossEntropy(m.Head.Forward(m.MoE.ForwardAdd(h, h)), labels)
	})
}

type block struct {
	Norm nn.Layer
	MLP  *nn.MLP
}

func together(ctx context.Context, r *dist.Rank) error {
	m := &block{nn.NewLayerNorm(784), nn.NewMLP(784, 32)}
	var tokens tensor.Function
	divide := func(p *tp.Parallel) {
		tokens = p.Tokens()
		m.Norm = p.Columns(m.Norm, m.MLP.Up)
		p.Row(m.MLP.Down)
	}
	set, err := data.Synthetic(256, 1, tensor.Float32)
	if err != nil {
		return err
	}
	// docs/parallelism.md: Together
	if err != nil {
		return err
	}
	return steps(ctx, r, loader, opt, func(x nn.T, _ tensor.Tensor) nn.T {
		x = x.Tape().Apply(tokens, x)
		return m.MLP.ForwardAdd(m.Norm.Forward(x), x).Square().Sum()
	})
}

func pipeline(_ context.Context, r *dist.Rank) error {
	m, err := gpt.New(gpt.Config{Vocab: 11, Positions: 4, Width: 8, Layers: 12, Heads: 2, Tied: true})
	if err != nil {
		return err
	}
	batch := func(dp *dist.Group, micro int) (ids, labels tensor.Tensor) { // two rows, one for each rank of dp
		k, rows := int64(2*micro+dp.Rank()), dp.Rows(2*micro+dp.Rank(), 16)
		return tensor.FromSlice([]int64{k % 11, (k + 1) % 11}, 1, 2).WithRows(rows),
			tensor.FromSlice([]int64{(k + 1) % 11, (k + 2) % 11}, 1, 2).WithRows(rows)
	}
	// docs/parallelism.md: Pipeline (`pp`)
	if err != nil {
		return err
	}
	for range 4 {
		if _, err := p.Step(); err != nil {
			return err
		}
		if err := opt.Step(); err != nil {
			return err
		}
	}
	return nil
}

func fit(ctx context.Context, r *dist.Rank, c data.Config, opt *optim.Optimizer, loss func(x nn.T, labels tensor.Tensor) nn.T) error {
	set, err := data.Synthetic(256, 1, tensor.Float32)
	if err != nil {
		return err
	}
	return steps(ctx, r, data.NewLoader(set, c), opt, loss)
}

// steps trains an epoch.
func steps(ctx context.Context, r *dist.Rank, loader *data.Loader, opt *optim.Optimizer, loss func(x nn.T, labels tensor.Tensor) nn.T) error {
	tape := tensor.NewTape(r.Device)
	for _, b := range loader.Epoch(ctx, 0) {
		tape.Backward(loss(tape.Input(b.X), b.Y))
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
	}
	return loader.Err()
}
