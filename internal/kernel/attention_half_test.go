package kernel

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Keys and values that are widened block by block give the bits of those that were
// widened as a whole.
func TestAttentionOfHalves(t *testing.T) {
	const batch, heads, kvHeads, dim = 2, 6, 2, 24
	const step = kvHeads*dim + 5
	for _, queries := range []int{1, 7, 70} {
		for _, keys := range []int{1, 255, 257, 600} {
			r := rand.New(rand.NewPCG(uint64(queries), uint64(keys)))
			a := Attention[float32]{AttentionShape: AttentionShape{Batch: batch, Queries: queries, Keys: keys, Heads: heads, KVHeads: kvHeads,
				HeadDim: dim, QStep: heads * dim, KVStep: step, Causal: true, Offset: keys - queries}, Scale: 0.2,
				Q: make([]float32, batch*queries*heads*dim), K: make([]float32, batch*keys*step), V: make([]float32, batch*keys*step)}
			for i := range a.Q {
				a.Q[i] = r.Float32() - 0.5
			}
			k, v := make([]BF16, len(a.K)), make([]BF16, len(a.V))
			for i := range k {
				k[i], v[i] = ToBF16(r.Float32()-0.5), ToBF16(r.Float32()-0.5)
				a.K[i], a.V[i] = k[i].Float32(), v[i].Float32()
			}
			a.KeyLengths = []int64{int64(keys), int64(keys+1) / 2}
			run := func(a Attention[float32]) (out, lse []float32) {
				a.Out, a.LSE = make([]float32, len(a.Q)), make([]float32, batch*heads*queries)
				AttentionForward(&a, NewAttentionWork[float32](), 0, a.Blocks())
				return a.Out, a.LSE
			}
			out, lse := run(a)
			a.K, a.V = nil, nil
			a.K16, a.V16 = halfBits(k), halfBits(v)
			a.Widen = func(dst []float32, src []uint16) {
				for i, x := range src {
					dst[i] = BF16(x).Float32()
				}
			}
			gotOut, gotLSE := run(a)
			require.Equal(t, out, gotOut, "%d queries, %d keys", queries, keys)
			require.Equal(t, lse, gotLSE)
		}
	}
}

func halfBits(x []BF16) []uint16 { return unsafe.Slice((*uint16)(unsafe.Pointer(&x[0])), len(x)) }
