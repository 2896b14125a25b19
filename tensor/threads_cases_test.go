package tensor_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// threadCounts are devices that divide even the smallest work over their threads.
func threadCounts(t *testing.T) (devs []*cpu.Device) {
	for _, n := range []int{1, 2, 3, 5} {
		d := cpu.New(n)
		cutAll(d)
		t.Cleanup(d.Close)
		devs = append(devs, d)
	}
	return devs
}

// No operation's bits depend on the number of threads. In the short form, all sizes are those of float32.
func TestThreadsValues(t *testing.T) {
	devs := threadCounts(t)
	for _, c := range tensortest.ValueCases() {
		for k, dims := range c.Dims {
			for _, d := range floatTypes {
				if d != tensor.Float32 && !reliability.Long(t) && k != int(d)%len(c.Dims) {
					continue
				}
				var in []tensor.Tensor
				for i, s := range dims {
					in = append(in, c.Operand(d, uint64(i), s))
				}
				want := tensor.Floats(run(c, devs[0], in))
				for _, dev := range devs[1:] {
					tensortest.RequireClose(t, want, tensor.Floats(run(c, dev, in)), 0, fmt.Sprint(c.Name, d, dims, dev.Threads()))
				}
			}
		}
	}
}

func TestLongThreadsValues(t *testing.T) { reliability.AsLong(t, TestThreadsValues) }

func TestLongThreadsGradients(t *testing.T) { reliability.AsLong(t, TestThreadsGradients) }

// No gradient's bits depend on the number of threads.
func TestThreadsGradients(t *testing.T) {
	devs := threadCounts(t)
	for op, cases := range tensortest.GradCases() {
		for _, c := range cases {
			r := rand.New(rand.NewPCG(uint64(op), 9))
			for k := range uint64(3) {
				if k > 0 && !reliability.Long(t) {
					continue
				}
				dims := c.Shapes(r)
				_, want := newGradRun(t, devs[0], op, c, dims, k).Grads(tensortest.How{})
				for _, dev := range devs[1:] {
					_, got := newGradRun(t, dev, op, c, dims, k).Grads(tensortest.How{})
					tensortest.RequireGrads(t, want, got, 0, fmt.Sprint(op, c.Name, dims, dev.Threads()))
				}
			}
		}
	}
}
