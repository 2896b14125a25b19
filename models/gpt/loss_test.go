package gpt_test

import (
	"testing"
	"time"

	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// BenchmarkLinearLoss steps a GPT-2 of 4 layers of width 256 with GPT-2's words, with and without logits, by turns. plain/op is how
// often as long a step with logits takes. saved/logits is how much less memory there is, in sizes of the logits.
func BenchmarkLinearLoss(b *testing.B) {
	const batch, time256, words = 8, 256, 50304
	dev := cpu.New(2)
	defer dev.Close()
	m, err := gpt.New(gpt.Config{Kind: gpt.GPT2, Vocab: words, Positions: time256, Width: 256, Layers: 4, Heads: 4, Tied: true})
	if err != nil {
		b.Fatal(err)
	}
	params := nn.Init(m, dev, tensor.Float32, 1)
	ids := tensor.New(dev, tensor.Int64, batch, time256)
	for i := range tensor.Data[int64](ids) {
		tensor.Data[int64](ids)[i] = int64(i * i % words)
	}
	var peak [2]int
	step := func(tape *tensor.Tape, kind int, loss func(x nn.T) nn.T) time.Duration {
		start := time.Now()
		tape.Backward(loss(m.Features(tape.Input(ids))))
		_, peak[kind] = tape.Memory()
		for _, p := range params {
			p.Consume()
		}
		tape.Reset()
		return time.Since(start)
	}
	tapes := [2]*tensor.Tape{tensor.NewTape(dev), tensor.NewTape(dev)}
	losses := [2]func(x nn.T) nn.T{
		func(x nn.T) nn.T { return nn.CrossEntropy(m.Head.Forward(x), ids) },
		func(x nn.T) nn.T { return nn.LinearCrossEntropy(m.Head, x, ids) },
	}
	var spent [2]time.Duration
	for b.Loop() {
		for i := range tapes {
			spent[i] += step(tapes[i], i, losses[i])
		}
	}
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "plain/op")
	b.ReportMetric(float64(peak[0]-peak[1])/(batch*time256*words*4), "saved/logits")
}
