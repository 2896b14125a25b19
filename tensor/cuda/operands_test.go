package cuda_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu/fragment"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// launchText runs a kernel of text, compiled after a file of kernels, on one block. Operands are as in launchHeader.
func launchText(t *testing.T, dev *cuda.Device, file, text, name string, threads, shared int, xs []operand, defines ...string) {
	t.Helper()
	require.NoError(t, dev.Bind())
	f, err := cuda.Header(dev, file, text, "bf16", name, defines...)
	require.NoError(t, err)
	launchOn(t, dev, f, threads, shared, xs, nil)
}

// sideSource loads operands of a grouped product from numbered matrices: tiles of 128 rows or columns and 32 of k.
const sideSource = `
template <bool A, bool INNER> __device__ void sides(u32* r, const T* x, int at, int k) {
  T* tile = dynamic_shared<T>();
  Side<A, INNER> s = {x, INNER ? DEPTH : TILE, TILE, DEPTH};
  s.fetch(tile, 0);
  copies_commit();
  copies_wait<0>();
  __syncthreads();
  u32 q[4];
  s.load(q, tile, at, k);
  if (threadIdx.x < 32)
    for (int i = 0; i < 4; i++) r[4 * threadIdx.x + i] = q[i];
}
extern "C" __global__ void a_inner(u32* r, const T* x) { sides<true, true>(r, x, 48, 16); }
extern "C" __global__ void a_outer(u32* r, const T* x) { sides<true, false>(r, x, 48, 16); }
extern "C" __global__ void b_inner(u32* r, const T* x) { sides<false, true>(r, x, 48, 16); }
extern "C" __global__ void b_outer(u32* r, const T* x) { sides<false, false>(r, x, 48, 16); }
`

// Operands of grouped products are where mma.sync needs them, element by element.
func TestOperandsOfGroups(t *testing.T) {
	const tile, depth, at, k = 128, 32, 48, 16
	dev := device(t)
	for name, inner := range map[string]bool{"a_inner": true, "a_outer": false, "b_inner": true, "b_outer": false} {
		x := blank(tensor.BFloat16, tile*depth)
		for row := range tile {
			for col := range depth {
				i := col*tile + row
				if inner {
					i = row*depth + col
				}
				*(*uint16)(unsafe.Pointer(&x.bytes[2*i])) = uint16(row*depth + col)
			}
		}
		r := blank(tensor.Int32, 4*fragment.Lanes)
		launchText(t, dev, "grouped_mma.cu", sideSource, name, 256, 2*tile*(depth+8), []operand{r, x})
		for i := range 8 * fragment.Lanes {
			row, col := fragment.A.At(i/8, i%8)
			if name[0] == 'b' { // two operands: of the first eight columns, and of the next
				col, row = fragment.B.At(i/8, i%4)
				row += i % 8 / 4 * 8
			}
			require.Equal(t, uint16((at+row)*depth+k+col), *(*uint16)(unsafe.Pointer(&r.bytes[2*i])), "%s: lane %d, element %d", name, i/8, i%8)
		}
	}
}

// attentionSource computes s = q kᵀ and y = p k for a block's tile q [128,32] and a tile k [32,32] of the others; p is [128,32].
const attentionSource = `
extern "C" __global__ void products_of(float* s, float* y, const T* queries, const T* keys, const float* p) {
  T *q = dynamic_shared<T>(), *k = q + BLOCK_M * LD;
  fetch<BLOCK_M>(q, queries, 0, UNITS, 0, BLOCK_M);
  fetch<BLOCK_N>(k, keys, 0, UNITS, 0, BLOCK_N);
  copies_commit();
  copies_wait<0>();
  __syncthreads();
  Scores a, b;
  scores(a, SharedRows{q}, k);
  scores(b, [&] { RegisterRows h; h.load(q); return h; }(), k);
  each([&](int m, int n, int e) {
    s[row_of(m, e) * BLOCK_N + col_of(n, e)] = a[m][n][e] == b[m][n][e] ? a[m][n][e] : INFINITY;
    a[m][n][e] = p[row_of(m, e) * BLOCK_N + col_of(n, e)];
  });
  Sums sums = {};
  add_product(sums, a, k);
  for (int m = 0; m < M; m++)
    for (int n = 0; n < HD / 8; n++)
      for (int e = 0; e < 4; e++) y[row_of(m, e) * HD + col_of(n, e)] = sums[m][n][e];
}
`

// Products of attention are exact for integers: each row is multiplied with each column, and with nothing else.
func TestProductsOfAttention(t *testing.T) {
	const mine, n = 128, 32
	dev := device(t)
	r := rng(4)
	number := func(int) float64 { return float64(r.IntN(31) - 15) }
	q, k := values(tensor.BFloat16, mine*n, number), values(tensor.BFloat16, n*n, number)
	p, s, y := values(tensor.Float32, mine*n, number), blank(tensor.Float32, mine*n), blank(tensor.Float32, mine*n)
	xs := []operand{s, y, q, k, p}
	launchText(t, dev, "attention_mma.cuh", attentionSource, "products_of", 128, 2*(mine+n)*(n+8), xs,
		"-DHD=32", "-DDROP=0", "-DDOCS=0", "-DM=2", "-DBLOCK_N=32")
	for i := range mine {
		for j := range n {
			var score, sum float64
			for l := range n {
				score += q.at(i*n+l) * k.at(j*n+l)
				sum += p.at(i*n+l) * k.at(l*n+j)
			}
			require.Equal(t, score, s.at(i*n+j), "q kᵀ: row %d, column %d", i, j)
			require.Equal(t, sum, y.at(i*n+j), "p k: row %d, column %d", i, j)
		}
	}
}
