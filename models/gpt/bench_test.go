package gpt_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// trained is a model and what a step of it costs.
type trained struct {
	model       *gpt.Model
	opt         *optim.Optimizer
	tape        *tensor.Tape
	whole, last time.Duration // of all steps, and of all Steps of the optimizer
}

func newTrained(b *testing.B, dev tensor.Device, muon bool) *trained {
	model, err := gpt.New(gpt.Config{Vocab: 512, Positions: 256, Width: 256, Layers: 4, Heads: 4})
	require.NoError(b, err)
	params := nn.Init(model, dev, tensor.Float32, 1)
	t := &trained{model: model, tape: tensor.NewTape(dev)}
	adamw := optim.AdamWConfig{LR: 1e-3}
	if t.opt = optim.NewAdamW(params, adamw); muon {
		t.opt = optim.NewMuon(params, optim.MuonConfig{Matrices: nn.Matrices(model, model.Head.W), AdamW: adamw})
	}
	return t
}

func (t *trained) step(b *testing.B, ids tensor.Tensor) {
	began := time.Now()
	t.tape.Backward(nn.CrossEntropy(t.model.Forward(t.tape.Input(ids)), ids))
	done := time.Now()
	require.NoError(b, t.opt.Step())
	t.tape.Reset()
	t.whole, t.last = t.whole+time.Since(began), t.last+time.Since(done)
}

// BenchmarkMuon trains a GPT of 4 layers and 256 features by AdamW and by Muon, by turns. "ratio" is Muon's whole step over AdamW's.
func BenchmarkMuon(b *testing.B) {
	dev := cpu.New(2)
	defer dev.Close()
	ids := tensor.New(dev, tensor.Int64, 8, 256)
	for i := range tensor.Data[int64](ids) {
		tensor.Data[int64](ids)[i] = int64(i * i % 509)
	}
	adamw, muon := newTrained(b, dev, false), newTrained(b, dev, true)
	for range 2 { // the first step makes memory
		adamw.step(b, ids)
		muon.step(b, ids)
	}
	adamw.whole, adamw.last, muon.whole, muon.last = 0, 0, 0, 0
	for b.Loop() {
		adamw.step(b, ids)
		muon.step(b, ids)
	}
	b.ReportMetric(muon.whole.Seconds()/adamw.whole.Seconds(), "ratio")
	b.ReportMetric(1e3*adamw.last.Seconds()/float64(b.N), "adamw-ms")
	b.ReportMetric(1e3*muon.last.Seconds()/float64(b.N), "muon-ms")
	b.ReportMetric(1e3*adamw.whole.Seconds()/float64(b.N), "step-ms")
}
