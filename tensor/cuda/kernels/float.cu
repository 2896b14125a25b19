// Dropout and losses of single elements. T is a float.

// dropout: word i%4 of block i/4 decides about the element with global index i. If the word is at least limit, the element is kept and
// multiplied by scale. If elems is 0, element e has index first + e. Else a row has elems elements, in lines of cols elements: line l of
// row k begins at index first + stride*k + line*l. The first skip elements of these rows are not there. Elements from
// brk on of a row have an index that is `jump` larger.
extern "C" __global__ void dropout(T* y, const T* x, i64 n, u64 key, u64 limit, W scale, i64 first, i64 stride, i64 elems,
                                   i64 cols, i64 line, i64 skip, i64 brk, i64 jump) {
  if (elems == 0) {  // a thread does the four elements of a block
    int head = (int)(first & 3);
    bool vectors = head == 0 && aligned(x, 4 * sizeof(T)) && aligned(y, 4 * sizeof(T));
    for (i64 b = first_item(); 4 * b < n + head; b += all_threads()) {
      Words r = philox(key, (u64)(first >> 2) + b);
      i64 e = 4 * b - head;
      if (vectors && e + 4 <= n) {
        Pack<T, 4> p = *(const Pack<T, 4>*)(x + e);
#pragma unroll
        for (int k = 0; k < 4; k++) p.v[k] = narrow<T>(r.w[k] >= limit ? widen(p.v[k]) * scale : W(0));
        *(Pack<T, 4>*)(y + e) = p;
        continue;
      }
#pragma unroll
      for (int k = 0; k < 4; k++)
        if (e + k >= 0 && e + k < n) y[e + k] = narrow<T>(r.w[k] >= limit ? widen(x[e + k]) * scale : W(0));
    }
    return;
  }
  for (i64 e = first_item(); e < n; e += all_threads()) {
    i64 at = e + skip, c = at % elems;
    u64 i = (u64)(first + stride * (at / elems) + c / cols * line + c % cols + (c >= brk ? jump : 0));
    Words r = philox(key, i >> 2);
    y[e] = narrow<T>(word(r, i) >= limit ? widen(x[e]) * scale : W(0));
  }
}

__device__ __forceinline__ float log1p_(float x) { return log1pf(x); }
__device__ __forceinline__ double log1p_(double x) { return log1p(x); }

// The losses of 16-bit floats, and the gradient g of their sum, are in float.
extern "C" __global__ void mse(W* z, const T* x, const T* y, i64 n) {
  for (i64 i = first_item(); i < n; i += all_threads()) {
    W d = widen(x[i]) - widen(y[i]);
    z[i] = d * d;
  }
}
extern "C" __global__ void mse_grad(T* d, const T* x, const T* y, const W* g, i64 n) {
  for (i64 i = first_item(); i < n; i += all_threads()) d[i] = narrow<T>(*g * (2 * (widen(x[i]) - widen(y[i]))));
}

// bce is max(x,0) - x*y + ln(1+exp(-|x|)), of logits x and targets y.
extern "C" __global__ void bce(W* z, const T* x, const T* y, i64 n) {
  for (i64 i = first_item(); i < n; i += all_threads()) {
    W u = widen(x[i]);
    z[i] = (u != u || u > 0 ? u : W(0)) - u * widen(y[i]) + log1p_(exp_(u < 0 ? u : -u));
  }
}
extern "C" __global__ void bce_grad(T* d, const T* x, const T* y, const W* g, i64 n) {
  for (i64 i = first_item(); i < n; i += all_threads()) d[i] = narrow<T>(*g * (1 / (1 + exp_(-widen(x[i]))) - widen(y[i])));
}
