package tp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// BenchmarkStep is a training step of a GPT of 4 layers with 512 features, on 8 × 128 tokens: on one rank with two threads, and on two
// ranks that divide its layers.
func BenchmarkStep(b *testing.B) {
	c := gpt.Config{Kind: gpt.GPT2, Vocab: 256, Positions: 128, Width: 512, Layers: 4, Heads: 8, Tied: true}
	for _, ranks := range []int{1, 2} {
		for _, seq := range []bool{false, true} {
			if ranks == 1 && seq {
				continue
			}
			b.Run(fmt.Sprintf("ranks=%d,sequence=%v", ranks, seq), func(b *testing.B) {
				err := dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 2 / ranks}, func(_ context.Context, r *dist.Rank) error {
					m, err := gpt.New(c)
					if err != nil {
						return err
					}
					loss := lossOf(func(logits, labels nn.T) nn.T { return nn.CrossEntropy(logits, labels) })
					if ranks > 1 {
						mesh, err := r.Mesh("tp=2")
						if err != nil {
							return err
						}
						ce, err := parallelize(m, tp.Config{Group: mesh.Group("tp"), Sequence: seq})
						if err != nil {
							return err
						}
						loss = ce.Loss
					}
					opt := optim.NewAdamW(nn.Init(m, r.Device, tensor.Float32, 1), optim.AdamWConfig{LR: 1e-4})
					tape, ids := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Int64, 8, 128)
					step := func() error {
						tape.Backward(loss(m.Forward(tape.Input(ids)), ids))
						err := opt.Step()
						tape.Reset()
						return err
					}
					for range 2 {
						if err := step(); err != nil {
							return err
						}
					}
					if r.World.Rank() == 0 {
						b.ResetTimer()
					}
					for range b.N {
						if err := step(); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
