// libcublasLt stand-in: plain loops that run on the stream, and those checks of
// the real one that are documented or were seen. What the real one may refuse (epilogues of float64, algorithms
// whose alignment or workspace is not there), this one always refuses.
#pragma GCC optimize("O3")  // products are most of the time of a test that trains
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <mutex>
#include <set>
#include <string>
#include <vector>
#define API extern "C" __attribute__((visibility("default")))

typedef int Status;
enum : Status { Ok = 0, NotInitialized = 1, InvalidValue = 7, ExecutionFailed = 13, NotSupported = 15 };
enum : int { F32 = 0, F64 = 1, F16 = 2, BF16 = 14, E4M3 = 28, E5M2 = 29 };
enum : int { Compute32 = 68, Compute64 = 70, ComputeTF32 = 77 };
enum : unsigned { Relu = 2, Bias = 4, Bgrad = 16, Gelu = 32, Dgelu = 64, Aux = 128, BgradA = 256, BgradB = 512 };

// The objects that exist: a handle that is none of them is refused.
static std::mutex mu;
static std::set<void*> objects;
template <class T> static T* make() {
  T* o = new T();
  std::lock_guard<std::mutex> l(mu);
  objects.insert(o);
  return o;
}
static bool exists(const void* o) { std::lock_guard<std::mutex> l(mu); return objects.count((void*)o); }
template <class T> static Status destroy(T* o) {
  { std::lock_guard<std::mutex> l(mu); if (!objects.erase(o)) return InvalidValue; }
  delete o;
  return Ok;
}

// What the emulated driver offers, from the library that RINGO_CUDA_LIB names.
static void* driver(const char* name) {
  const char* path = getenv("RINGO_CUDA_LIB");
  void* lib = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  return lib ? dlsym(lib, name) : nullptr;
}
static void* context() {
  static auto get = (int (*)(void**))driver("cuCtxGetCurrent");
  void* c = nullptr;
  return get && get(&c) == 0 ? c : nullptr;
}

struct Handle { void* context; };
struct Desc {
  int compute, scale; int ta = 0, tb = 0; unsigned epilogue = 1; char* bias = nullptr; char* aux = nullptr; int64_t aux_ld = 0;
  float *scale_a = nullptr, *scale_b = nullptr; int mode_a = 0, mode_b = 0;  // of 8-bit floats; mode 3: one for each row
  int64_t bias_stride = 0;  // of a batch
  int8_t fast = 0;  // of 8-bit floats: sums keep 14 bits
};
struct Layout { int type; uint64_t rows, cols; int64_t ld; int batch = 1; int64_t stride = 0; };
struct Preference { uint64_t workspace = 0; unsigned reduction = 7; unsigned align[4] = {256, 256, 256, 256}; };
// Algo is what the opaque 64 bytes hold here.
struct Algo { uint64_t magic, problem, workspace; unsigned align, id; uint64_t rest[4]; };
static_assert(sizeof(Algo) == 64, "");
struct Heuristic { Algo algo; size_t workspace; Status state; float waves; int reserved[4]; };
static_assert(sizeof(Heuristic) == 96, "");
constexpr uint64_t Magic = 0x656d75616c676f31;

API size_t cublasLtGetVersion() { return 130400; }
API Status cublasLtCreate(Handle** h) {
  void* c = context();
  if (!c) return NotInitialized;
  *h = make<Handle>();
  (*h)->context = c;
  return Ok;
}
API Status cublasLtDestroy(Handle* h) { return destroy(h); }
API Status cublasLtMatmulDescCreate(Desc** d, int compute, int scale) {
  *d = make<Desc>();
  (*d)->compute = compute, (*d)->scale = scale;
  return Ok;
}
API Status cublasLtMatmulDescDestroy(Desc* d) { return destroy(d); }
template <class T> static Status put(T& to, const void* from, size_t n) {
  if (n != sizeof to) return InvalidValue;
  memcpy(&to, from, n);
  return Ok;
}
API Status cublasLtMatmulDescSetAttribute(Desc* d, int attr, const void* v, size_t n) {
  if (!exists(d) || !v) return InvalidValue;
  switch (attr) {
    case 3: return put(d->ta, v, n);
    case 4: return put(d->tb, v, n);
    case 7: return put(d->epilogue, v, n);
    case 8: return put(d->bias, v, n);
    case 10: return put(d->bias_stride, v, n);
    case 11: return put(d->aux, v, n);
    case 12: return put(d->aux_ld, v, n);
    case 17: return put(d->scale_a, v, n);
    case 18: return put(d->scale_b, v, n);
    case 25: return put(d->fast, v, n);
    case 31: return put(d->mode_a, v, n);
    case 32: return put(d->mode_b, v, n);
  }
  return InvalidValue;
}
API Status cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  *l = make<Layout>();
  (*l)->type = type, (*l)->rows = rows, (*l)->cols = cols, (*l)->ld = ld;
  return Ok;
}
API Status cublasLtMatrixLayoutDestroy(Layout* l) { return destroy(l); }
API Status cublasLtMatrixLayoutSetAttribute(Layout* l, int attr, const void* v, size_t n) {
  if (!exists(l) || !v) return InvalidValue;
  switch (attr) {
    case 5: return put(l->batch, v, n);
    case 6: return put(l->stride, v, n);
  }
  return InvalidValue;
}
API Status cublasLtMatmulPreferenceCreate(Preference** p) { *p = make<Preference>(); return Ok; }
API Status cublasLtMatmulPreferenceDestroy(Preference* p) { return destroy(p); }
API Status cublasLtMatmulPreferenceSetAttribute(Preference* p, int attr, const void* v, size_t n) {
  if (!exists(p) || !v) return InvalidValue;
  switch (attr) {
    case 1: return put(p->workspace, v, n);
    case 3: return put(p->reduction, v, n);
    case 5: case 6: case 7: case 8: return put(p->align[attr - 5], v, n);
  }
  return InvalidValue;
}

static bool is8(int type) { return type == E4M3 || type == E5M2; }
static size_t size_of(int type) { return is8(type) ? 1 : type == F64 ? 8 : type == F32 ? 4 : 2; }
static bool power2(unsigned n) { return n && !(n & (n - 1)); }

// check8 is check for 8-bit floats, of which Hopper wants both matrices with k along their rows, and sizes that are multiples of 16.
static Status check8(const Desc* d, const Layout* a, const Layout* b, const Layout* c, const Layout* o, uint64_t k) {
  if (!is8(a->type) || !is8(b->type) || (a->type == E5M2 && b->type == E5M2)) return NotSupported;
  if (d->compute != Compute32 || d->scale != F32 || is8(o->type) || o->type == F64 || c->type != o->type) return NotSupported;
  if (!d->ta || d->tb || k % 16 || o->rows % 16 || a->ld % 16 || b->ld % 16 || o->batch > 1 || d->epilogue != 1) return NotSupported;
  if ((d->mode_a != 0 && d->mode_a != 3) || d->mode_a != d->mode_b) return NotSupported;
  if (!d->scale_a || !d->scale_b) return InvalidValue;
  return (uintptr_t)d->scale_a % 16 || (uintptr_t)d->scale_b % 16 ? NotSupported : Ok;
}

// check says whether the descriptors fit each other and what is implemented.
static Status check(const Desc* d, const Layout* a, const Layout* b, const Layout* c, const Layout* o) {
  if (!exists(d) || !exists(a) || !exists(b) || !exists(c) || !exists(o)) return InvalidValue;
  for (auto l : {a, b, c, o}) if (!l->rows || !l->cols || l->ld < (int64_t)l->rows || l->batch < 1) return InvalidValue;
  if (d->ta > 1 || d->tb > 1) return InvalidValue;
  uint64_t m = d->ta ? a->cols : a->rows, k = d->ta ? a->rows : a->cols;
  uint64_t kb = d->tb ? b->cols : b->rows, n = d->tb ? b->rows : b->cols;
  if (k != kb || o->rows != m || o->cols != n || c->rows != m || c->cols != n) return InvalidValue;
  if (a->batch != o->batch || b->batch != o->batch || c->batch != o->batch) return InvalidValue;
  if (o->batch > 1 && o->stride < (int64_t)o->ld * (int64_t)(n - 1) + (int64_t)m) return InvalidValue;
  if (is8(a->type) || is8(b->type)) return check8(d, a, b, c, o, k);
  bool same = a->type == b->type && a->type == c->type && a->type == o->type;
  bool f32 = (d->compute == Compute32 && (a->type == F32 || a->type == BF16 || a->type == F16)) || (d->compute == ComputeTF32 && a->type == F32);
  bool f64 = d->compute == Compute64 && d->scale == F64 && a->type == F64;
  if (!same || !((f32 && d->scale == F32) || f64)) return NotSupported;
  if (f64 && d->epilogue != 1) return NotSupported;
  unsigned e = d->epilogue;
  if ((e & (Bias | Bgrad | BgradA | BgradB)) && (!d->bias || (uintptr_t)d->bias % size_of(a->type))) return InvalidValue;
  if (e & Aux) {
    if (!d->aux || d->aux_ld < (int64_t)m || d->aux_ld % 8 || (uintptr_t)d->aux % 16 || o->batch > 1) return InvalidValue;
  }
  switch (e) {
    case 1: case Relu: case Bias: case Relu | Bias: case Gelu: case Gelu | Bias: case Gelu | Aux: case Gelu | Aux | Bias:
    case Dgelu | Aux: case Dgelu | Aux | Bgrad: return Ok;
    case BgradA: case BgradB: return o->batch > 1 && d->bias_stride < (int64_t)(e == BgradA ? m : n) ? NotSupported : Ok;
  }
  return NotSupported;
}

static uint64_t problem(const Desc* d, const Layout* a, const Layout* b, const Layout* c, const Layout* o) {
  uint64_t h = 14695981039346656037ull;
  auto mix = [&h](uint64_t v) { h = (h ^ v) * 1099511628211ull; h ^= h >> 29; };
  for (int v : {d->compute, d->scale, d->ta, d->tb, (int)d->epilogue, d->mode_a, d->mode_b, (int)d->fast}) mix(v);
  mix(d->aux_ld), mix(d->bias_stride);
  for (auto l : {a, b, c, o}) for (uint64_t v : {(uint64_t)l->type, l->rows, l->cols, (uint64_t)l->ld, (uint64_t)l->batch, (uint64_t)l->stride}) mix(v);
  return h;
}

// Algorithms, the fastest first: one that wants 16-byte operands and workspace,
// one that wants 16-byte operands, and one that takes anything.
API Status cublasLtMatmulAlgoGetHeuristic(Handle* h, Desc* d, Layout* a, Layout* b, Layout* c, Layout* o, Preference* p, int want,
                                          Heuristic* out, int* count) {
  *count = 0;
  if (!exists(h)) return NotInitialized;
  if (want < 1 || !exists(p)) return InvalidValue;
  if (Status s = check(d, a, b, c, o)) return s;
  unsigned least = 256;
  for (unsigned n : p->align) { if (!power2(n)) return InvalidValue; if (n < least) least = n; }
  for (auto l : {a, b, c, o})
    while (least > 1 && (l->ld | (l->batch > 1 ? l->stride : 0)) * size_of(l->type) % least) least /= 2;
  uint64_t work = (o->type == F64 ? 8 : 4) * o->rows * o->cols;
  for (unsigned id = 0; id < 3 && *count < want; id++) {
    unsigned align = id < 2 || is8(a->type) ? 16 : (unsigned)size_of(a->type);
    if (align > least || (id == 0 && (work > p->workspace || !(p->reduction & 2)))) continue;
    Heuristic r = {};
    r.algo = {Magic, problem(d, a, b, c, o), id == 0 ? work : 0, align, id, {}};
    bool idle = d->epilogue & (BgradA | BgradB) && (d->ta ? a->rows : a->cols) >= 4096;  // cuts no sums
    r.workspace = r.algo.workspace, r.waves = idle ? 0.25f : 1;
    out[(*count)++] = r;
  }
  return *count ? Ok : NotSupported;
}

static double load8(uint8_t c, int mantissa, int bias) {
  int exponent = (c & 0x7f) >> mantissa, fraction = c & ((1 << mantissa) - 1);
  if (mantissa == 3 ? (c & 0x7f) == 0x7f : exponent == 31 && fraction) return NAN;
  if (mantissa == 2 && exponent == 31) return c & 0x80 ? -INFINITY : INFINITY;
  double v = ldexp(fraction + (exponent ? 1 << mantissa : 0), (exponent ? exponent : 1) - bias - mantissa);
  return c & 0x80 ? -v : v;
}
static double load(const char* p, int type, int64_t i) {
  switch (type) {
    case F64: return ((const double*)p)[i];
    case F32: return ((const float*)p)[i];
    case F16: return (double)((const _Float16*)p)[i];
    case E4M3: return load8((uint8_t)p[i], 3, 7);
    case E5M2: return load8((uint8_t)p[i], 2, 15);
  }
  uint32_t u = (uint32_t)((const uint16_t*)p)[i] << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static void store(char* p, int type, int64_t i, double v) {
  float f = (float)v;
  uint32_t u;
  memcpy(&u, &f, 4);
  switch (type) {
    case F64: ((double*)p)[i] = v; break;
    case F32: ((float*)p)[i] = f; break;
    case F16: ((_Float16*)p)[i] = (_Float16)f; break;
    default: ((uint16_t*)p)[i] = f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
}
// tf32 keeps 10 bits of a float's fraction.
static double tf32(double v) {
  float f = (float)v;
  uint32_t u;
  memcpy(&u, &f, 4);
  u = (u + 0xfff + (u >> 13 & 1)) & ~0x1fffu;
  memcpy(&f, &u, 4);
  return f;
}
static double gelu(double x) { return .5 * x * (1 + tanh(.7978845608028654 * (x + .044715 * x * x * x))); }
static double gelu_slope(double x) {
  double t = tanh(.7978845608028654 * (x + .044715 * x * x * x));
  return .5 * (1 + t) + .5 * x * (1 - t * t) * .7978845608028654 * (1 + 3 * .044715 * x * x);
}

// Job is a product that waits in a stream.
struct Job {
  Desc d;
  Layout a, b, c, o;
  double alpha, beta;
  const char *A, *B, *C;
  char *D, *work;
  uint64_t work_size;
};

// pack makes rows of k elements, one after the other, of op(A) or the columns of op(B).
template <class T> static std::vector<T> pack(const char* p, const Layout& l, bool k_first, int64_t n, int64_t k, int64_t at, bool round) {
  std::vector<T> out(n * k);
  for (int64_t i = 0; i < n; i++)
    for (int64_t t = 0; t < k; t++) {
      double v = load(p, l.type, at + (k_first ? t + i * l.ld : i + t * l.ld));
      out[i * k + t] = (T)(round ? tf32(v) : v);
    }
  return out;
}

// dot adds up eight sums: g++ makes vectors of them.
template <class T> static T dot(const T* x, const T* y, int64_t k) {
  T sum[8] = {}, all = 0;
  int64_t t = 0;
  for (; t + 8 <= k; t += 8)
    for (int i = 0; i < 8; i++) sum[i] += x[t + i] * y[t + i];
  for (; t < k; t++) sum[0] += x[t] * y[t];
  for (T v : sum) all += v;
  return all;
}

static double finish(const Job& j, double v, int64_t i, int64_t n, int64_t q) {
  unsigned e = j.d.epilogue;
  int type = j.o.type;
  if (e & Bias) v += load(j.d.bias, type, i + q * j.d.bias_stride);
  if (e & Relu) return v > 0 || v != v ? v : 0;
  if (e & Gelu) {
    if (e & Aux) store(j.d.aux, type, i + n * j.d.aux_ld, v);
    return gelu(v);
  }
  return e & Dgelu ? v * gelu_slope(load(j.d.aux, type, i + n * j.d.aux_ld)) : v;
}

// bias_gradient adds up D's rows (Bgrad), or A's or B's sums over k.
static void bias_gradient(const Job& j, int64_t m, int64_t n, int64_t k, int64_t q) {
  unsigned e = j.d.epilogue;
  int64_t length = e & BgradB ? n : m, over = e & Bgrad ? n : k;
  for (int64_t i = 0; i < length; i++) {
    float sum = 0;
    for (int64_t t = 0; t < over; t++) {
      if (e & Bgrad) sum += (float)load(j.D, j.o.type, q * j.o.stride + i + t * j.o.ld);
      else if (e & BgradA) sum += (float)load(j.A, j.a.type, q * j.a.stride + (j.d.ta ? t + i * j.a.ld : i + t * j.a.ld));
      else sum += (float)load(j.B, j.b.type, q * j.b.stride + (j.d.tb ? i + t * j.b.ld : t + i * j.b.ld));
    }
    store(j.d.bias, j.o.type, i + q * j.d.bias_stride, sum);
  }
}

// few_bits adds up as Hopper's tensor cores do with fast accumulation: 32 products and the sum so far are cut to the place of the 14th bit
// of the largest of them. Of 4096 squares of normal numbers that loses 5%, which is what an H100 lost.
static double few_bits(const float* x, const float* y, int64_t k) {
  double sum = 0;
  for (int64_t t = 0; t < k; t += 32) {
    int64_t end = t + 32 < k ? t + 32 : k;
    double most = fabs(sum);
    for (int64_t i = t; i < end; i++) most = fmax(most, fabs((double)x[i] * y[i]));
    if (most == 0 || !isfinite(most)) {
      for (int64_t i = t; i < end; i++) sum += (double)x[i] * y[i];
      continue;
    }
    double place = ldexp(1, ilogb(most) - 13), parts = trunc(sum / place);
    for (int64_t i = t; i < end; i++) parts += trunc((double)x[i] * y[i] / place);
    sum = parts * place;
  }
  return sum;
}
static double few_bits(const double*, const double*, int64_t) { return NAN; }  // not of 8-bit floats

template <class T> static void multiply(const Job& j, int64_t m, int64_t n, int64_t k) {
  bool round = j.d.compute == ComputeTF32;
  for (int64_t q = 0; q < j.o.batch; q++) {
    auto x = pack<T>(j.A, j.a, j.d.ta, m, k, q * j.a.stride, round), y = pack<T>(j.B, j.b, !j.d.tb, n, k, q * j.b.stride, round);
    for (int64_t c = 0; c < n; c++)
      for (int64_t r = 0; r < m; r++) {
        T v = j.d.fast ? (T)few_bits(&x[r * k], &y[c * k], k) : dot(&x[r * k], &y[c * k], k);
        if (j.work_size) {  // a sum passes through the workspace, as split k does
          ((T*)j.work)[r + c * m] = v;
          v = ((T*)j.work)[r + c * m];
        }
        int64_t at = q * j.o.stride + r + c * j.o.ld;
        double old = j.beta != 0 ? load(j.C, j.c.type, q * j.c.stride + r + c * j.c.ld) : 0;
        if (is8(j.a.type)) v = v * j.d.scale_a[j.d.mode_a ? r : 0] * j.d.scale_b[j.d.mode_b ? c : 0];
        double out = j.alpha * (double)v + j.beta * old;
        store(j.D, j.o.type, at, finish(j, out, r, c, q));
      }
  }
}

// span is the memory of a matrix.
struct Span { uint64_t at, n; };
static Span span(const void* p, const Layout& l) {
  int64_t last = (l.batch - 1) * l.stride + (l.cols - 1) * l.ld + l.rows;
  return {(uint64_t)p, (uint64_t)last * size_of(l.type)};
}
static bool apart(Span a, Span b) { return a.at + a.n <= b.at || b.at + b.n <= a.at; }

static int run(void* arg) {
  constexpr int IllegalAddress = 700;  // CUDA's
  const Job& j = *(Job*)arg;
  static auto is_memory = (int (*)(uint64_t, uint64_t))driver("emu_is_memory");
  for (Span s : {span(j.A, j.a), span(j.B, j.b), span(j.D, j.o), j.beta != 0 ? span(j.C, j.c) : span(j.D, j.o), Span{(uint64_t)j.work, j.work_size},
                 Span{(uint64_t)j.d.scale_a, is8(j.a.type) ? 4 * (j.d.mode_a ? j.o.rows : 1) : 0},
                 Span{(uint64_t)j.d.scale_b, is8(j.a.type) ? 4 * (j.d.mode_b ? j.o.cols : 1) : 0}})
    if (s.n && !is_memory(s.at, s.n)) return IllegalAddress;
  int64_t m = j.o.rows, n = j.o.cols, k = j.d.ta ? j.a.rows : j.a.cols;
  if (j.work_size) memset(j.work, 0xff, j.work_size);  // two streams with one workspace would see it
  if (j.a.type == F64) multiply<double>(j, m, n, k);
  else multiply<float>(j, m, n, k);
  if (j.d.epilogue & (Bgrad | BgradA | BgradB))
    for (int64_t q = 0; q < j.o.batch; q++) bias_gradient(j, m, n, k, q);
  return 0;
}

API Status cublasLtMatmul(Handle* h, Desc* d, const void* alpha, const void* A, Layout* a, const void* B, Layout* b, const void* beta,
                          const void* C, Layout* c, void* D, Layout* o, const Algo* algo, void* work, size_t work_size, void* stream) {
  if (!exists(h)) return NotInitialized;
  if (context() != h->context) return InvalidValue;
  if (Status s = check(d, a, b, c, o)) return s;
  if (!alpha || !beta || !A || !B || !C || !D || !algo) return InvalidValue;
  if (algo->magic != Magic || algo->problem != problem(d, a, b, c, o)) return InvalidValue;
  if (work_size < algo->workspace || (algo->workspace && (!work || (uintptr_t)work % 256))) return InvalidValue;
  for (auto p : {A, B, C, (const void*)D, (const void*)(d->epilogue & (Bias | Bgrad | BgradA | BgradB) ? d->bias : nullptr)})
    if ((uintptr_t)p % algo->align) return InvalidValue;
  if (o->batch > 1 && d->epilogue & (Bias | Bgrad | BgradA | BgradB) && d->bias_stride * size_of(o->type) % algo->align) return InvalidValue;
  // Only C may be D, and then in the same places; what else overlaps has no meaning.
  Span out = span(D, *o);
  bool same = C == D && c->ld == o->ld && (o->batch == 1 || c->stride == o->stride);
  if (!same && !apart(out, span(C, *c))) return InvalidValue;
  if (!apart(out, span(A, *a)) || !apart(out, span(B, *b)) || !apart(out, {(uint64_t)work, algo->workspace})) return InvalidValue;
  Job* j = new Job{*d, *a, *b, *c, *o, 0, 0, (const char*)A, (const char*)B, (const char*)C, (char*)D, (char*)work, algo->workspace};
  if (d->scale == F64) j->alpha = *(const double*)alpha, j->beta = *(const double*)beta;
  else j->alpha = *(const float*)alpha, j->beta = *(const float*)beta;
  static auto enqueue = (int (*)(void*, const char*, int (*)(void*), void*, void (*)(void*)))driver("emu_enqueue");
  if (!enqueue) return NotInitialized;
  return enqueue(stream, "cublasLtMatmul", run, j, [](void* p) { delete (Job*)p; }) ? ExecutionFailed : Ok;
}
