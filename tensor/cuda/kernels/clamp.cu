// Elements between two bounds.

// clamp computes y = min(max(x, lo), hi). NaN stays NaN, and +0 counts as larger than -0, as on the CPU.
extern "C" __global__ void clamp(T* y, const T* x, i64 n, W lo, W hi) {
  for (i64 i = first_item(); i < n; i += all_threads()) {
    W v = widen(x[i]);
    if (v < lo || v == lo && v == 0) v = v < lo ? lo : (W)(v + lo);
    if (v > hi || v == hi && v == 0) v = v > hi ? hi : (W)(-(-v + -hi));
    y[i] = narrow<T>(v);
  }
}

// clamp_grad computes d = g where lo <= x <= hi, 0 elsewhere.
extern "C" __global__ void clamp_grad(T* d, const T* g, const T* x, i64 n, W lo, W hi) {
  for (i64 i = first_item(); i < n; i += all_threads()) {
    W v = widen(x[i]);
    d[i] = v >= lo && v <= hi ? g[i] : narrow<T>(W(0));
  }
}
