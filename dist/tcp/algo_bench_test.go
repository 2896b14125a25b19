package tcp

import (
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/dist/backend"
)

// An all-reduce by every algorithm.
func BenchmarkAlgorithms(b *testing.B) {
	for _, n := range []int{2, 4} {
		for _, bytes := range []int{4 << 10, 1 << 20, 16 << 20} {
			for _, name := range []string{"linear", "direct", "ring", "halving-doubling", "double-tree"} {
				b.Run(fmt.Sprintf("%d/%d/%s", n, bytes, name), func(b *testing.B) { benchmark(b, n, bytes/4, name) })
			}
		}
	}
}

// benchmark all-reduces among n ranks, one operation after the other.
func benchmark(b *testing.B, n, count int, name string) {
	be, x := open(b, start(b, n, nil), "world"), inputs(n, count)
	var first uint64
	round := func(times int) {
		for _, err := range each(n, func(r int) error {
			op := backend.Op{Kind: backend.AllReduce, Algo: name, Count: count, Src: memOf(x[r]), Dst: memOf(x[r])}
			for i := range times {
				op.Seq = first + uint64(i) + 1
				if err := do(be[r], &op); err != nil {
					return err
				}
			}
			return nil
		}) {
			if err != nil {
				b.Fatal(err)
			}
		}
		first += uint64(times)
	}
	round(3)
	b.SetBytes(int64(4 * count))
	b.ResetTimer()
	round(b.N)
}
