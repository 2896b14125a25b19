//go:build unix

package gpt_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// trained is a model and what a step of it costs.
type trained struct {
	dev   tensor.Device
	model *gpt.Model
	opt   *optim.Optimizer
	tape  *tensor.Tape
	// Of all steps, and of all Steps of the optimizer; and of the whole process while these were done.
	whole, last, processors time.Duration
}

func newTrained(b *testing.B, muon, half bool) *trained {
	model, err := gpt.New(gpt.Config{Vocab: 512, Positions: 256, Width: 256, Layers: 4, Heads: 4})
	require.NoError(b, err)
	dev := cpu.New(2)
	b.Cleanup(func() { dev.Close() })
	params := nn.Init(model, dev, tensor.Float32, 1)
	t := &trained{dev: dev, model: model, tape: tensor.NewTape(dev)}
	adamw := optim.AdamWConfig{LR: 1e-3}
	if !muon {
		t.opt = optim.NewAdamW(params, adamw)
	} else {
		t.opt = optim.NewMuon(params, optim.MuonConfig{Matrices: nn.Matrices(model, model.Head.W), AdamW: adamw, Half: half})
	}
	return t
}

// step is one of so many microbatches of ids.
func (t *trained) step(b *testing.B, ids tensor.Tensor, microbatches int) {
	began, used := time.Now(), processors(b)
	options := []tensor.BackwardOption{tensor.Scale(1 / float64(microbatches)), tensor.More()}
	for left := microbatches - 1; left >= 0; left-- {
		if left == 0 {
			options = options[:1]
		}
		t.tape.Backward(nn.CrossEntropy(t.model.Forward(t.tape.Input(ids)), ids), options...)
		if left > 0 {
			t.tape.Reset()
		}
	}
	done := time.Now()
	require.NoError(b, t.opt.Step())
	t.tape.Reset()
	t.whole, t.last, t.processors = t.whole+time.Since(began), t.last+time.Since(done), t.processors+processors(b)-used
}

// processors is the time of this process on all processors.
func processors(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMuon trains a GPT of 4 layers and 256 features by AdamW, by Muon, and by Muon in bfloat16, by turns; the most tokens of a step
// are in three microbatches. "ratio" is Muon's whole step over AdamW's, "cpu" the same in time of processors, and "memory" in the peak of
// memory.
func BenchmarkMuon(b *testing.B) {
	for _, c := range [][2]int{{8, 1}, {32, 1}, {64, 1}, {32, 3}} {
		batch, microbatches := c[0], c[1]
		b.Run(fmt.Sprintf("tokens=%d", 256*batch*microbatches), func(b *testing.B) {
			all := map[string]*trained{"adamw": newTrained(b, false, false), "muon": newTrained(b, true, false), "half": newTrained(b, true, true)}
			ids := tensor.FromSlice(make([]int64, batch*256), batch, 256)
			for i := range tensor.Data[int64](ids) {
				tensor.Data[int64](ids)[i] = int64(i * i % 509)
			}
			steps := func(n int) {
				for range n {
					for _, name := range []string{"adamw", "muon", "half"} {
						all[name].step(b, ids, microbatches)
					}
				}
			}
			steps(2) // the first step makes memory
			for _, t := range all {
				t.whole, t.last, t.processors = 0, 0, 0
			}
			for b.Loop() {
				steps(1)
			}
			want := all["adamw"]
			for name, t := range all {
				b.ReportMetric(1e3*t.last.Seconds()/float64(b.N), name+"-ms")
				if t != want {
					b.ReportMetric(t.whole.Seconds()/want.whole.Seconds(), name+"-ratio")
					b.ReportMetric(t.processors.Seconds()/want.processors.Seconds(), name+"-cpu")
					b.ReportMetric(float64(t.dev.Memory().Total().Peak)/float64(want.dev.Memory().Total().Peak), name+"-memory")
				}
			}
			b.ReportMetric(1e3*want.whole.Seconds()/float64(b.N), "step-ms")
		})
	}
}
