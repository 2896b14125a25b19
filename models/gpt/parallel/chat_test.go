package parallel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/chat"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// conversations have answers of one byte, and of many.
func conversations(t *testing.T, pack bool) *chat.Dataset {
	var lines []byte
	for i := range 23 {
		line, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": strings.Repeat("q", 1+i%5)},
			{"role": "assistant", "content": strings.Repeat(string(rune('a'+i)), 1+i*i%17)}}})
		require.NoError(t, err)
		lines = append(append(lines, line...), '\n')
	}
	path := filepath.Join(t.TempDir(), "train.jsonl")
	require.NoError(t, os.WriteFile(path, lines, 0o666))
	template, err := chat.New("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}\n{% endfor %}" +
		"{% if add_generation_prompt %}<a>{% endif %}")
	require.NoError(t, err)
	set, err := chat.Read(path, tokenizer.Bytes(), template, chat.Config{Length: 30, Pack: pack})
	require.NoError(t, err)
	return set
}

// talker trains on conversations.
type talker struct {
	parallel.Layout
	micros int // of a pipeline
	epochs int
	logits bool
}

// train returns the losses of all steps, and the values after them.
func (c talker) train(t *testing.T, set *chat.Dataset) (losses []float64, after map[string][]float64) {
	to, n := t.TempDir(), max(c.PP, 1)*max(c.DP, 1)*max(c.Ring, 1)*max(c.CP, 1)*max(c.TP, 1)
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: n, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.New(gpt.Config{Kind: gpt.Qwen2, Vocab: 256, Positions: 30, Width: 8, Layers: 3, Heads: 2, KVHeads: 2, Hidden: 12}))
		mesh := disttest.Must(r.Mesh(c.Mesh(2)))
		var pipe *parallel.Pipeline
		if c.PP > 1 {
			pipe = disttest.Must(parallel.NewPipeline(mesh.Group("pp"), disttest.Must(pp.ByName("1f1b", c.PP, 1, c.micros)), m))
		}
		a := disttest.Must(parallel.Attach(mesh, m, parallel.Config{DDP: ddp.Config{DType: tensor.Float64, Seed: 3}}))
		opt := optim.NewAdamW(a.Params, optim.AdamWConfig{LR: 1e-2, Clip: 1, Norm: r.World})
		tape := tensor.NewTape(r.Device)
		step := func(b data.Batch) (float64, error) {
			if pipe != nil {
				return pipe.Train(b, set.Loss(b))
			}
			var loss tensor.Tensor
			ids, docs := gpt.Documents(b.X)
			switch y := a.Part(b.Y, docs...); {
			case c.logits: // as those do who divide no sequences
				loss = a.Loss(m.Forward(tape.Input(b.X)), y, set.Loss(b))
			default:
				loss = a.FeatureLoss(m.Features(tape.Input(a.Part(ids, docs...)), docs...), y, set.Loss(b))
			}
			tape.Backward(loss)
			return a.Once(loss).Item(), nil
		}
		if pipe != nil {
			disttest.OK(pipe.Start(a, opt, tape, tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Eval())))
		}
		batches := data.NewLoader(set, data.Config{Batch: 5, Shuffle: true, Seed: 1, Sharder: a.Data})
		for epoch := range c.epochs {
			for _, b := range batches.Epoch(ctx, epoch) {
				all := []float64{disttest.Must(step(b))}
				disttest.OK(opt.Step())
				if pipe == nil {
					tape.Reset()
				}
				disttest.OK(r.World.SumFloats(all))
				if r.World.Rank() == 0 {
					losses = append(losses, all[0])
				}
			}
			disttest.OK(batches.Err())
		}
		saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
		disttest.OK(saver.Save(ctx, ckpt.State{Params: a.Params, Files: disttest.Must(m.Files())}))
		return saver.Close()
	}))
	path, err := ckpt.Latest(to)
	require.NoError(t, err)
	return losses, values(t, path)
}

// equalOneRank compares trainings with that of one rank: in the short form the first two.
func equalOneRank(t *testing.T, pack bool, epochs int, all ...talker) {
	set := conversations(t, pack)
	losses, want := talker{logits: true, epochs: epochs}.train(t, set)
	require.GreaterOrEqual(t, len(losses), 10)
	require.Less(t, losses[len(losses)-1], losses[0])
	for i, c := range all {
		if i > 1 && !reliability.Long(t) {
			break
		}
		c.epochs = epochs
		got, after := c.train(t, set)
		require.InDeltaSlice(t, losses, got, 1e-10, fmt.Sprint(c))
		require.Len(t, after, len(want))
		for name, v := range want {
			require.InDeltaSlice(t, v, after[name], 1e-10, "%v: %s", c, name)
		}
	}
}

// Loss on the answers alone is that of one rank, in microbatches and on ranks with other numbers of answers, and where ranks divide words.
func TestChatEqualsOneRank(t *testing.T) {
	equalOneRank(t, false, 2, talker{Layout: parallel.Layout{PP: 2, DP: 2}, micros: 2}, talker{Layout: parallel.Layout{TP: 2}}, talker{},
		talker{Layout: parallel.Layout{PP: 2}, micros: 3},
		talker{Layout: parallel.Layout{TP: 2}, logits: true}, talker{Layout: parallel.Layout{PP: 2, TP: 2}, micros: 2})
}

func TestLongChatEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestChatEqualsOneRank) }

// So are conversations that are packed into rows, also where ranks share these rows, whose parts the documents move, and in microbatches.
func TestPackedEqualsOneRank(t *testing.T) {
	equalOneRank(t, true, 5, talker{Layout: parallel.Layout{Ring: 3}}, talker{Layout: parallel.Layout{PP: 2, Ring: 2}, micros: 2}, talker{},
		talker{Layout: parallel.Layout{Ring: 2}}, talker{Layout: parallel.Layout{Ring: 2, DP: 2}},
		talker{Layout: parallel.Layout{Ring: 2, TP: 2}}, talker{Layout: parallel.Layout{CP: 2}},
		talker{Layout: parallel.Layout{Ring: 2, CP: 2}}, talker{Layout: parallel.Layout{PP: 2}, micros: 3},
		talker{Layout: parallel.Layout{PP: 2, Ring: 3}, micros: 2})
}

func TestLongPackedEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestPackedEqualsOneRank) }
