package disttest

import (
	"fmt"
	"math"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// bf16 and f16 store numbers that are exact in 16 bits, and NaN.
func bf16(x float64) tensor.BF16 { return tensor.BF16(math.Float32bits(float32(x)) >> 16) }

func f16(x float64) tensor.F16 {
	switch {
	case x != x:
		return 0x7e00
	case x == 0:
		return 0
	}
	u := math.Float32bits(float32(x))
	return tensor.F16(u>>16&0x8000 | (u&0x7fffffff)>>13 - 112<<10)
}

// reductions runs AllReduce, Reduce, ReduceScatter and ReduceScatterV with every reduction and type: empty, one element,
// eager sizes, sizes that do not divide, and several blocks.
func (s *suite) reductions(t *testing.T) {
	for _, n := range s.sizes() {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			s.ok(t, n, func(r *dist.Rank) error {
				for red := range reds {
					for d := tensor.DType(0); d < tensor.NumDTypes; d++ {
						if !valid(reds[red].name, d) {
							continue
						}
						if err := reduceAll(r, red, d); err != nil {
							return fmt.Errorf("%s of %v: %w", reds[red].name, d, err)
						}
					}
				}
				return nil
			})
		})
	}
}

func reduceAll(r *dist.Rank, red int, d tensor.DType) error {
	g := r.World
	n, me := g.Size(), g.Rank()
	op := reds[red].op(me)
	in := cycle(func(i int) float64 { return value(reds[red].name, d, n, me, i) })
	out := cycle(func(i int) float64 { return reduced(red, d, n, i) })
	for k, count := range []int{0, 1, 7, 130, big(4099), big(20_000)} {
		x := filled(r, d, count, in)
		if err := g.AllReduce(x, op).Wait(); err != nil {
			return err
		}
		if err := holds(fmt.Sprint("allreduce of ", count), x, out); err != nil {
			return err
		}
		root := (k + red) % n
		x = filled(r, d, count, in)
		if err := g.Reduce(x, op, root).Wait(); err != nil {
			return err
		}
		want := out
		if me != root {
			want = in // unchanged
		}
		if err := holds(fmt.Sprint("reduce of ", count), x, want); err != nil {
			return err
		}
	}
	return scatterReduced(r, red, d, in, out)
}

func scatterReduced(r *dist.Rank, red int, d tensor.DType, in, out func(i int) float64) error {
	g := r.World
	n, me := g.Size(), g.Rank()
	op := reds[red].op(me)
	for _, count := range []int{0, 3, big(5001)} {
		src, dst := filled(r, d, n*count, in), tensor.New(r.Device, d, count)
		if err := g.ReduceScatter(dst, src, op).Wait(); err != nil {
			return err
		}
		if err := holds(fmt.Sprint("reducescatter of ", count), dst, func(i int) float64 { return out(me*count + i) }); err != nil {
			return err
		}
		counts, first, total := make([]int, n), 0, 0
		for i := range counts {
			counts[i] = (i * count) % 4099
			if i < me {
				first += counts[i]
			}
			total += counts[i]
		}
		src, dst = filled(r, d, total, in), tensor.New(r.Device, d, counts[me])
		if err := g.ReduceScatterV(dst, src, counts, op).Wait(); err != nil {
			return err
		}
		if err := holds(fmt.Sprint("reducescatterv of ", counts), dst, func(i int) float64 { return out(first + i) }); err != nil {
			return err
		}
	}
	return nil
}

// nan checks that the result of Min and Max is NaN, whichever rank has a NaN.
func (s *suite) nan(t *testing.T) {
	s.ok(t, 3, func(r *dist.Rank) error {
		for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
			for _, op := range []dist.Op{dist.Min, dist.Max} {
				x := filled(r, d, 100, func(i int) float64 {
					if i%4 == r.World.Rank() {
						return math.NaN()
					}
					return 1
				})
				if err := r.World.AllReduce(x, op).Wait(); err != nil {
					return err
				}
				if err := holds(op.String(), x, func(i int) float64 {
					if i%4 < 3 {
						return math.NaN()
					}
					return 1
				}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// halfRoundsOnce checks that 16-bit floats are summed in float32, in rank order, and rounded once: 1 + 2⁻⁸ + 2⁻⁸ is 1 + 2⁻⁷ in bfloat16,
// but 1 if each sum is rounded.
func (s *suite) halfRoundsOnce(t *testing.T) {
	s.ok(t, 3, func(r *dist.Rank) error {
		for _, count := range []int{5, 3000} {
			x := filled(r, tensor.BFloat16, count, func(int) float64 {
				if r.World.Rank() == 0 {
					return 1
				}
				return math.Ldexp(1, -8)
			})
			if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
				return err
			}
			if err := holds("bfloat16 sum", x, func(int) float64 { return 1 + math.Ldexp(1, -7) }); err != nil {
				return err
			}
		}
		// Float32 in rank order: (1e8 + 1) - 1e8 is 0, 1e8 - 1e8 + 1 would be 1.
		v := []float64{1e8, 1, -1e8}[r.World.Rank()]
		x := filled(r, tensor.Float32, 3000, func(int) float64 { return v })
		if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
			return err
		}
		return holds("float32 sum in rank order", x, func(int) float64 { return 0 })
	})
}
