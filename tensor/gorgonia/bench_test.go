package gorgonia

import (
	"fmt"
	"testing"

	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/tensor/cpu"
)

// BenchmarkEngine compares the Engine with gt.StdEng.
func BenchmarkEngine(b *testing.B) {
	for _, threads := range []int{1, 2} {
		dev := cpu.New(threads)
		defer dev.Close()
		for name, e := range map[string]gt.Engine{"StdEng": gt.StdEng{}, fmt.Sprintf("Engine/threads=%d", threads): NewEngine(dev)} {
			if threads == 2 && name == "StdEng" {
				continue
			}
			x, y := packedArray(numbers(gt.Float32, ordinary), e, gt.Shape{512, 512}),
				packedArray(numbers(gt.Float32, ordinary), e, gt.Shape{512, 512})
			out := packedArray(numbers(gt.Float32, ordinary), e, gt.Shape{512, 512})
			b.Run("matmul/"+name, func(b *testing.B) {
				for b.Loop() {
					must(gt.MatMul(x, y, gt.WithReuse(out)))
				}
			})
			b.Run("add/"+name, func(b *testing.B) {
				for b.Loop() {
					must(gt.Add(x, y, gt.WithReuse(out)))
				}
			})
			b.Run("exp/"+name, func(b *testing.B) {
				for b.Loop() {
					must(gt.Exp(x, gt.WithReuse(out)))
				}
			})
		}
	}
}
