// The reduction of dist/algo.Reducer, with its order, roundings and rules for NaN. The file is compiled for one element type.

typedef ELEM T;
typedef Wide<T>::type W;

// Ranks has the addresses of inputs and outputs, and the factors of inputs.
#ifdef ROWS  // the inputs are rows of one buffer (Rows in rows.go)
struct Ranks {
  const T* rows;
  i64 stride;
  T* to;
  const double* factors;
  __device__ __forceinline__ const T* src(int j) const { return rows + j * stride; }
  __device__ __forceinline__ T* dst(int) const { return to; }
  __device__ __forceinline__ double factor(int j) const { return factors[j]; }
};
#else  // each input has its own address (ranks in peer.go)
struct Ranks {
  const T* from[MAX_RANKS];
  T* to[MAX_RANKS];
  double factors[MAX_RANKS];
  __device__ __forceinline__ const T* src(int j) const { return from[j]; }
  __device__ __forceinline__ T* dst(int j) const { return to[j]; }
  __device__ __forceinline__ double factor(int j) const { return factors[j]; }
};
#endif

// The reductions. A bool is converted back after each operation, so Sum is "or" and Prod is "and".

#define OPERATION(name, expression) \
  struct name { static __device__ __forceinline__ W of(W a, W b) { return expression; } };

OPERATION(Sum, a + b)
OPERATION(Prod, a * b)
#ifdef FLOATS  // a NaN makes the result NaN, and -0 is less than 0
OPERATION(Min, a == b ? ((W)1 / a < 0 ? a : b) : (a < b || a != a ? a : b))
OPERATION(Max, a == b ? ((W)1 / a < 0 ? b : a) : (a > b || a != a ? a : b))
#else
OPERATION(Min, a < b ? a : b)
OPERATION(Max, a > b ? a : b)
OPERATION(And, a & b)
OPERATION(Or, a | b)
OPERATION(Xor, a ^ b)
#endif

// What is done to an input before the reduction, and to the result after it.
enum Extra { Plain, Divided, Scaled };

template <class Op, Extra X, int N>
__device__ __forceinline__ void piece(const Ranks& r, i64 i, int inputs, int outputs) {
  constexpr int M = 4;  // inputs that are loaded before the first is used, because loads have a long latency
  W acc[N];
  for (int j = 0; j < inputs; j += M) {
    Pack<T, N> p[M];
#pragma unroll
    for (int m = 0; m < M; m++)
      if (j + m < inputs) p[m] = *(const Pack<T, N>*)(r.src(j + m) + i);
#pragma unroll
    for (int m = 0; m < M; m++) {
      if (j + m >= inputs) break;
#pragma unroll
      for (int k = 0; k < N; k++) {
        W x = widen(p[m].v[k]);
        if constexpr (X == Scaled) x = x * (W)r.factor(j + m);
        acc[k] = j + m == 0 ? x : Op::of(acc[k], x);
      }
    }
  }
  Pack<T, N> out;
#pragma unroll
  for (int k = 0; k < N; k++) {
    if constexpr (X == Divided) acc[k] = acc[k] / (W)inputs;
    out.v[k] = narrow<T>(acc[k]);
  }
  for (int j = 0; j < outputs; j++) *(Pack<T, N>*)(r.dst(j) + i) = out;
}

// reduce handles count elements, 16 bytes at a time if vec is set: then all addresses are multiples of 16.
template <class Op, Extra X>
__device__ __forceinline__ void reduce(const Ranks& r, i64 count, int inputs, int outputs, int vec) {
  constexpr int N = 16 / sizeof(T);
  i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, all = (i64)gridDim.x * blockDim.x, done = 0;
  if (vec) {
    for (i64 i = first; i < count / N; i += all) piece<Op, X, N>(r, i * N, inputs, outputs);
    done = count / N * N;
  }
  for (i64 i = done + first; i < count; i += all) piece<Op, X, 1>(r, i, inputs, outputs);
}

#define REDUCTION(name, Op, X)                                                                                \
  extern "C" __global__ void peer_##name(Ranks r, i64 count, int inputs, int outputs, int vec) {              \
    reduce<Op, X>(r, count, inputs, outputs, vec);                                                            \
  }

REDUCTION(sum, Sum, Plain)
REDUCTION(prod, Prod, Plain)
REDUCTION(min, Min, Plain)
REDUCTION(max, Max, Plain)
#ifdef FLOATS
REDUCTION(avg, Sum, Divided)
REDUCTION(premulsum, Sum, Scaled)
#else
REDUCTION(band, And, Plain)
REDUCTION(bor, Or, Plain)
REDUCTION(bxor, Xor, Plain)
#endif
