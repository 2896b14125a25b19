// Kernels that copy elements and compute nothing. T is an unsigned integer of the element's size, or 16 bytes.

// strided_copy copies operand 1 to operand 0.
extern "C" __global__ void strided_copy(T* y, const T* x, const __grid_constant__ Strided s) {
  for (i64 i = first_item(); i < s.n; i += all_threads()) {
    Place p = locate(s, i);
    y[p.at[0]] = x[p.at[1]];
  }
}

enum { TILE = 32, TILE_ROWS = 8 };

// transpose copies blocks of rows x cols elements, one for each element of s: y has stride 1 along the columns and ld_y along
// the rows, x has stride 1 along the rows and ld_x along the columns. Tiles go through shared memory, so that both sides are
// accessed along their lines. A block has TILE x TILE_ROWS threads.
extern "C" __global__ void transpose(T* y, const T* x, const __grid_constant__ Strided s, i64 rows, i64 cols, i64 ld_y, i64 ld_x) {
  __shared__ T tile[TILE][TILE + 1];
  i64 down = (rows + TILE - 1) / TILE, across = (cols + TILE - 1) / TILE, b = blockIdx.x;
  Place p = locate(s, b / (down * across));
  i64 r0 = b / across % down * TILE, c0 = b % across * TILE, r = r0 + threadIdx.x, c = c0 + threadIdx.x;
  for (int k = threadIdx.y; k < TILE; k += TILE_ROWS)
    if (r < rows && c0 + k < cols) tile[k][threadIdx.x] = x[p.at[1] + (c0 + k) * ld_x + r];
  __syncthreads();
  for (int k = threadIdx.y; k < TILE; k += TILE_ROWS)
    if (c < cols && r0 + k < rows) y[p.at[0] + (r0 + k) * ld_y + c] = tile[threadIdx.x][k];
}

enum { VEC = 16 / sizeof(T) };

extern "C" __global__ void fill(T* y, i64 n, T v) {
  typedef Pack<T, VEC> P;
  i64 done = 0;
  if (aligned(y, 16)) {
    P p;
#pragma unroll
    for (int k = 0; k < VEC; k++) p.v[k] = v;
    for (i64 i = first_item(); i < n / VEC; i += all_threads()) ((P*)y)[i] = p;
    done = n / VEC * VEC;
  }
  for (i64 i = done + first_item(); i < n; i += all_threads()) y[i] = v;
}

// fill_from sets the n elements of y to *x.
extern "C" __global__ void fill_from(T* y, const T* x, i64 n) {
  typedef Pack<T, VEC> P;
  T v = *x;
  i64 done = 0;
  if (aligned(y, 16)) {
    P p;
#pragma unroll
    for (int k = 0; k < VEC; k++) p.v[k] = v;
    for (i64 i = first_item(); i < n / VEC; i += all_threads()) ((P*)y)[i] = p;
    done = n / VEC * VEC;
  }
  for (i64 i = done + first_item(); i < n; i += all_threads()) y[i] = v;
}

// where computes y = c ? a : b.
extern "C" __global__ void where(T* y, const bool* c, const T* a, const T* b, i64 n) {
  typedef Pack<T, VEC> P;
  typedef Pack<bool, VEC> C;
  i64 done = 0;
  if (aligned(y, 16) && aligned(c, VEC) && aligned(a, 16) && aligned(b, 16)) {
    for (i64 i = first_item(); i < n / VEC; i += all_threads()) {
      P p = ((const P*)a)[i], q = ((const P*)b)[i];
      C m = ((const C*)c)[i];
#pragma unroll
      for (int k = 0; k < VEC; k++) p.v[k] = m.v[k] ? p.v[k] : q.v[k];
      ((P*)y)[i] = p;
    }
    done = n / VEC * VEC;
  }
  for (i64 i = done + first_item(); i < n; i += all_threads()) y[i] = c[i] ? a[i] : b[i];
}

// gather_rows copies row ids[r] of x, of rows rows, to row r of y.
extern "C" __global__ void gather_rows(T* y, const T* x, const i64* ids, i64 n, i64 cols, i64 rows, u64* bad, u32 op) {
  for (i64 i = first_item(); i < n * cols; i += all_threads()) {
    i64 id = ids[i / cols];
    if (check_index(bad, op, id, rows)) y[i] = x[id * cols + i % cols];
  }
}

// gather copies x[o, ids[o,j,i], i] to y[o,j,i]; x is [outer, n, inner], y and ids are [outer, m, inner].
extern "C" __global__ void gather(T* y, const T* x, const i64* ids, i64 outer, i64 n, i64 m, i64 inner, u64* bad, u32 op) {
  for (i64 e = first_item(); e < outer * m * inner; e += all_threads()) {
    i64 id = ids[e];
    if (check_index(bad, op, id, n)) y[e] = x[(e / (m * inner) * n + id) * inner + e % inner];
  }
}
