// one_hot computes y[r, c] = 1 where c is ids[r], 0 elsewhere.
extern "C" __global__ void one_hot(T* y, const i64* ids, i64 all, i64 classes, u64* bad, u32 op) {
  for (i64 i = first_item(); i < all; i += all_threads()) {
    i64 id = ids[i / classes], c = i % classes;
    if (c == 0) check_index(bad, op, id, classes);
    y[i] = narrow<T>(W(c == id ? 1 : 0));
  }
}

// bincount adds to counts, which are 0 before, how often each of 0 to bins-1 is in x. Integers may be added in any order.
extern "C" __global__ void bincount(u64* counts, const i64* x, i64 n, i64 bins, u64* bad, u32 op) {
  for (i64 i = first_item(); i < n; i += all_threads())
    if (check_index(bad, op, x[i], bins)) atomicAdd(counts + x[i], 1ull);
}

// arange computes y[i] = start + i*step.
extern "C" __global__ void arange(T* y, i64 n, double start, double step) {
  for (i64 i = first_item(); i < n; i += all_threads()) y[i] = narrow<T>((W)(start + (double)i * step));
}
