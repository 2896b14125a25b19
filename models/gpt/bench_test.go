package gpt_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// BenchmarkDecode writes text with a model of GPT-2's size (124 million parameters). What a token takes at least is the time to read
// the weights once; the ratio of that to what it takes is "of_bound". The bound is measured in the same run: a product of one row,
// of a matrix of all weights' size, with the threads of the device... is not it; it is the sum of as many bytes.
func BenchmarkDecode(b *testing.B) {
	for _, dtype := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for _, threads := range []int{1, 2} {
			b.Run(dtype.String()+map[int]string{1: "/1", 2: "/2"}[threads], func(b *testing.B) {
				m, err := gpt.New(gpt.Config{Vocab: 50257, Positions: 1024, Width: 768, Layers: 12, Heads: 12, Tied: true})
				require.NoError(b, err)
				dev := tensor.NewCPU(threads)
				defer dev.Close()
				params := nn.Init(m, dev, dtype, 1)
				bytes := params.Count() * dtype.Size()
				var took, reads []time.Duration
				for b.Loop() {
					last := time.Now()
					n := 0
					for range m.Generate(dev, []int{1, 2, 3}, gpt.Sampling{Tokens: 24}) {
						if now := time.Now(); n > 3 {
							took = append(took, now.Sub(last))
						}
						n++
						last = time.Now()
					}
					reads = append(reads, readAll(dev, params))
				}
				token, read := median(took), median(reads)
				b.ReportMetric(float64(token)/1e6, "ms/token")
				b.ReportMetric(float64(bytes)/float64(read), "GB/s")
				b.ReportMetric(float64(read)/float64(token), "of_bound")
			})
		}
	}
}

// readAll returns how long the device takes to read the parameters, at its best of five.
func readAll(dev tensor.Device, params nn.Params) time.Duration {
	tape := tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	best := time.Hour
	for range 5 {
		start := time.Now()
		for _, p := range params {
			v := p.Value
			if v.DType().IsHalf() {
				v = tensor.FromPtr(dev, v.Ptr(), tensor.Float32, v.Len()/2)
			}
			tape.Input(v).Sum()
		}
		best = min(best, time.Since(start))
		tape.Reset()
	}
	return best
}

func median(x []time.Duration) time.Duration {
	slices.Sort(x)
	return x[len(x)/2]
}
