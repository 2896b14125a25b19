package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// talking is a finetuning on answers of different lengths.
func talking(t *testing.T, kind gpt.Kind) options {
	o := staged(t)
	c := gpt.Config{Kind: kind, Vocab: 256, Positions: 40, Width: 12, Layers: 4, Heads: 2, KVHeads: 2, Hidden: 20}
	o.Data, o.Load, o.Seq, o.Batch, o.Steps, o.LR = "", folder(t, c), 40, 6, 10, 0.02
	require.NoError(t, os.WriteFile(filepath.Join(o.Load, "chat_template.jinja"), []byte("{% for m in messages %}<{{ m.role[0] }}>"+
		"{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"), 0o666))
	var lines []byte
	for i := range 61 {
		line, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": strings.Repeat("q", 1+i%5)},
			{"role": "assistant", "content": strings.Repeat(string(rune('a'+i%26)), 1+i*i%19)}}})
		require.NoError(t, err)
		lines = append(append(lines, line...), '\n')
	}
	o.chat = filepath.Join(t.TempDir(), "train.jsonl")
	require.NoError(t, os.WriteFile(o.chat, lines, 0o666))
	return o
}

// Conversations are learned alike on every layout, packed for rotary positions, and one in a row for learned ones; and whether the whole
// model learns or adapters. In the short form, a whole model learns on stages and in a ring, and adapters with replicas and divided layers.
func TestChat(t *testing.T) {
	for k, kind := range []gpt.Kind{gpt.Qwen2, gpt.GPT2} {
		o := talking(t, kind)
		for _, o.LoRA = range []int{0, 2} {
			if o.LoRA != 2*k && !reliability.Long(t) {
				continue
			}
			o.Layout = on(1, 1, 3)
			want := trained(t, o)
			require.Less(t, want.FinalLoss, want.FirstLoss)
			require.NotEmpty(t, want.Sample)
			for i, l := range []lm.Layout{on(2, 1, 3), on(1, 2, 3), lay(1, 1, 3, 1, false, 0, 1, 1, 2, 0),
				lay(1, 1, 3, 2, true, 0, 1, 1, 0, 0), lay(1, 2, 3, 1, false, 0, 1, 1, 2, 0), lay(1, 1, 3, 1, false, 0, 2, 1, 0, 2)} {
				if !slices.Contains([][]int{{4, 5}, {0, 3}}[k], i) && !reliability.Long(t) {
					continue
				}
				o.Layout, o.schedule = l, "1f1b"
				got := trained(t, o)
				requireLosses(t, want.Losses, got.Losses, 1e-9, "%v %+v", kind, o.Layout)
				require.InDelta(t, float64(want.ValLoss), float64(got.ValLoss), 1e-9, "%v %+v", kind, o.Layout)
				if o.PP == 1 {
					require.Equal(t, want.Sample, got.Sample)
				}
			}
		}
	}
}

func TestLongChat(t *testing.T) { reliability.AsLong(t, TestChat) }

// The numbers of packed documents reach a device that has its own memory; in the short form, on ranks that divide sequences, and with the
// kernels of CPUs.
func TestChatOnDevice(t *testing.T) {
	o := talking(t, gpt.Qwen2)
	o.Steps, o.Sample = 3, 0
	want := trained(t, o)
	if o.Device = tensortest.Remotes(t); reliability.Long(t) || emu.OnGPU() {
		o.Device = disttest.CUDA(t, emu.Config{Devices: 1, Lazy: true})
	}
	for _, o.Layout = range []lm.Layout{on(1, 1, 3), lay(1, 1, 3, 1, false, 0, 1, 1, 0, 2)} {
		if o.Ring > 1 || reliability.Long(t) {
			requireLosses(t, want.Losses, trained(t, o).Losses, 1e-9, "%+v", o.Layout)
		}
	}
}

func TestLongChatOnDevice(t *testing.T) { reliability.AsLong(t, TestChatOnDevice) }

// What is tested is a tenth of the conversations. The loss is the mean over their answers' tokens, however these are in rows and batches.
func TestChatTest(t *testing.T) {
	o := talking(t, gpt.Qwen2)
	o.LR, o.Steps = 1e-30, 1
	want := float64(trained(t, o).ValLoss)
	o.Seq, o.Batch = 31, 3 // other rows
	require.InDelta(t, want, float64(trained(t, o).ValLoss), 1e-9)
	c, err := o.corpus()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(fmt.Sprint(c.Test), "train.jsonl: 6 conversations in "), c.Test)
	text, err := c.Decode(c.Begin)
	require.NoError(t, err)
	require.Regexp(t, "^<u>q+\n<a>$", text)
	labels, rows := 0.0, c.chat.Len() // of several batches
	require.Greater(t, rows, 16)
	for i := range rows {
		labels += c.chat.Loss(data.Batch{Samples: []int{i}}).Count
	}
	require.NoError(t, c.examine(c.chat))
	require.Equal(t, labels, math.Round(c.test.Count*float64(rows)))
}

// The answer of -sample ends where the folder's settings say, on all layouts; in the short form, where ranks divide layers.
func TestAnswerEnds(t *testing.T) {
	o := talking(t, gpt.Qwen2)
	want := trained(t, o).Sample
	require.Equal(t, o.Sample, utf8.RuneCountInString(want), "tokens are bytes")
	at := strings.IndexFunc(want[1:], func(r rune) bool { return r < 0x80 && byte(r) != want[0] }) + 1
	require.Positive(t, at)
	text := fmt.Sprintf(`{"eos_token_id": [255, %d]}`, want[at])
	require.NoError(t, os.WriteFile(filepath.Join(o.Load, "generation_config.json"), []byte(text), 0o666))
	for _, o.Layout = range []lm.Layout{on(1, 1, 3), on(1, 2, 3), lay(1, 1, 3, 2, true, 0, 1, 1, 0, 0)} {
		if o.TP > 1 || reliability.Long(t) {
			require.Equal(t, want[:at], trained(t, o).Sample, "%+v", o.Layout)
		}
	}
}

func TestLongAnswerEnds(t *testing.T) { reliability.AsLong(t, TestAnswerEnds) }

func TestWrongChat(t *testing.T) {
	for want, change := range map[string]func(o *options){
		"-chat needs -load":                   func(o *options) { o.Load, o.chat, o.Seq = "", "x.jsonl", 9 },
		"is in place of -data":                func(o *options) { o.Data = o.chat },
		"-load: chat: the folder has no chat": func(o *options) { o.Load = folder(t, gpt2); o.Seq = 9 },
		"train.jsonl: line 1: want an object": func(o *options) { require.NoError(t, os.WriteFile(o.chat, []byte("{}\n"), 0o666)) },
		"part 1 gets none": func(o *options) {
			text := `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}`
			require.NoError(t, os.WriteFile(o.chat, []byte(text), 0o666))
		},
	} {
		o := talking(t, gpt.Qwen2)
		change(&o)
		require.ErrorContains(t, o.run(new(bytes.Buffer)), want)
	}
}
