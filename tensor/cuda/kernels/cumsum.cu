// Running sums along the middle dimension of x [outer, n, inner], from the end if reverse. Floats are added in double, in an
// order that depends on the shape alone.

template <class E> struct Sum { typedef E type; };
template <> struct Sum<float> { typedef double type; };
typedef Sum<W>::type S;

// cumsum_columns: a thread for each line.
extern "C" __global__ void cumsum_columns(T* y, const T* x, i64 n, i64 inner, i64 lines, int reverse) {
  for (i64 line = first_item(); line < lines; line += all_threads()) {
    i64 at = line / inner * n * inner + line % inner, step = inner;
    if (reverse) at += (n - 1) * inner, step = -inner;
    S sum = 0;
    for (i64 k = 0; k < n; k++, at += step) {
      sum = plus(sum, (S)widen(x[at]));
      y[at] = narrow<T>((W)sum);
    }
  }
}

enum { THREADS = 256 };

// cumsum_rows: a block for each row, THREADS elements at a time.
extern "C" __global__ void cumsum_rows(T* y, const T* x, i64 n, int reverse) {
  __shared__ S shared[THREADS];
  int t = threadIdx.x;
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  S before = 0;
  for (i64 from = 0; from < n; from += THREADS) {
    i64 k = from + t, at = reverse ? n - 1 - k : k;
    shared[t] = k < n ? (S)widen(x[at]) : S(0);
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {
      S left = t >= distance ? shared[t - distance] : S(0);
      __syncthreads();
      shared[t] = plus(shared[t], left);
      __syncthreads();
    }
    if (k < n) y[at] = narrow<T>((W)plus(before, shared[t]));
    before = plus(before, shared[THREADS - 1]);
    __syncthreads();
  }
}
