// The data of the emulated NCCL: matching and arithmetic as the real one does
// it: an order of ranks that depends on the place, 16-bit floats rounded after
// each addition, NaN lost in min and max, averages by multiplying first.
#include "nccl.h"
#include <math.h>
#include <string.h>
#include <algorithm>

std::atomic<uint64_t> moved;

size_t type_size(int t) {
  static const size_t size[NumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return size[t];
}

Extent extent(const Call& c, int rank, int ranks) {
  size_t bytes = c.n * type_size(c.type), in = bytes, out = bytes;
  if (c.kind == AllGather || c.kind == AllToAll) out *= ranks;
  if (c.kind == ReduceScatter || c.kind == AllToAll) in *= ranks;
  bool reads = c.kind != Recv && (c.kind != Broadcast || c.root == rank);
  bool writes = c.kind != Send && (c.kind != Reduce || c.root == rank);
  return {reads ? in : 0, writes ? out : 0};
}

static void finish(Call& c) {
  c.done = true;
  if (c.over) c.over();
}

static float from_half(uint16_t h) {
  uint32_t sign = (h & 0x8000u) << 16, exp = h >> 10 & 31, man = h & 1023, u;
  if (exp == 31) u = sign | 0x7f800000 | man << 13;
  else if (exp) u = sign | (exp + 112) << 23 | man << 13;
  else {
    float f = ldexpf((float)man, -24);
    return sign ? -f : f;
  }
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static uint16_t to_half(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t sign = u >> 16 & 0x8000;
  u &= 0x7fffffff;
  if (u > 0x7f800000) return sign | 0x7e00;
  if (u >= 0x477ff000) return sign | 0x7c00;
  if (u < 0x38800000) return sign | (uint16_t)lrintf(ldexpf(fabsf(f), 24));  // subnormal, to even
  return sign | (uint16_t)((u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13);
}
static float from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static uint16_t to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if (f != f) return 0x7fff;
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

// A type in memory (M) and in arithmetic (A).
struct Half { typedef uint16_t M; typedef float A; static A load(M m) { return from_half(m); } static M store(A a) { return to_half(a); } };
struct Brain { typedef uint16_t M; typedef float A; static A load(M m) { return from_bf16(m); } static M store(A a) { return to_bf16(a); } };
template <class T> struct Same { typedef T M; typedef T A; static A load(M m) { return m; } static M store(A a) { return a; } };

template <class A> static A combine(A a, A b, int op) {
  switch (op) {
    case Prod: return a * b;
    case Max: return std::is_floating_point<A>::value ? (A)fmax((double)a, (double)b) : std::max(a, b);
    case Min: return std::is_floating_point<A>::value ? (A)fmin((double)a, (double)b) : std::min(a, b);
  }
  return a + b;
}

// reduce writes elements [first, first+n) of the reduction of all inputs to dst.
template <class T> static void reduce(const std::vector<Call*>& c, size_t first, size_t n, void* to) {
  typedef typename T::A A;
  typedef typename T::M M;
  const bool real = std::is_floating_point<A>::value;
  int ranks = (int)c.size(), op = c[0]->op;
  auto in = [&](int r, size_t i) {
    A x = T::load(((const M*)c[r]->src)[i]);
    if (c[r]->scaled) x = T::load(T::store(x * T::load(T::store((A)c[r]->factor))));
    if (op == Avg && real) x = T::load(T::store(x * T::load(T::store((A)(1.0 / ranks)))));
    return x;
  };
  for (size_t i = 0; i < n; i++) {
    int start = (int)((first + i) / 64 % ranks);
    A acc = in(start, first + i);
    for (int k = 1; k < ranks; k++) acc = T::load(T::store(combine<A>(acc, in((start + k) % ranks, first + i), op)));
    if (op == Avg && !real) acc = acc / (A)ranks;
    ((M*)to)[i] = T::store(acc);
  }
}
static void reduce_any(const std::vector<Call*>& c, size_t first, size_t n, void* to) {
  switch (c[0]->type) {
    case I8: return reduce<Same<int8_t>>(c, first, n, to);
    case U8: return reduce<Same<uint8_t>>(c, first, n, to);
    case I32: case U32:
      if (c[0]->type == I32 && (c[0]->op == Max || c[0]->op == Min || c[0]->op == Avg)) return reduce<Same<int32_t>>(c, first, n, to);
      return reduce<Same<uint32_t>>(c, first, n, to);
    case I64: case U64:
      if (c[0]->type == I64 && (c[0]->op == Max || c[0]->op == Min || c[0]->op == Avg)) return reduce<Same<int64_t>>(c, first, n, to);
      return reduce<Same<uint64_t>>(c, first, n, to);
    case F16: return reduce<Half>(c, first, n, to);
    case BF16: return reduce<Brain>(c, first, n, to);
    case F32: return reduce<Same<float>>(c, first, n, to);
    case F64: return reduce<Same<double>>(c, first, n, to);
  }
}

// carry_out does a collective that all ranks have come to.
static void carry_out(const std::vector<Call*>& c) {
  size_t n = c.size(), count = c[0]->n, bytes = count * type_size(c[0]->type);
  Kind k = c[0]->kind;
  size_t whole = k == AllGather || k == ReduceScatter || k == AllToAll ? bytes * n : bytes;
  std::vector<char> out(whole);
  if (k == AllReduce || k == Reduce) reduce_any(c, 0, count, out.data());
  if (k == ReduceScatter) reduce_any(c, 0, count * n, out.data());
  if (k == Broadcast) memcpy(out.data(), c[c[0]->root]->src, bytes);
  if (k == AllGather)
    for (size_t r = 0; r < n; r++) memcpy(&out[r * bytes], c[r]->src, bytes);
  if (k == AllToAll) {
    std::vector<char> all(n * whole);
    for (size_t r = 0; r < n; r++) memcpy(&all[r * whole], c[r]->src, whole);
    for (size_t r = 0; r < n; r++)
      for (size_t s = 0; s < n; s++) memcpy(c[r]->dst + s * bytes, &all[s * whole + r * bytes], bytes);
  }
  for (size_t r = 0; r < n; r++) {
    if (k == AllReduce || k == Broadcast || k == AllGather || (k == Reduce && (int)r == c[0]->root)) memcpy(c[r]->dst, out.data(), whole);
    if (k == ReduceScatter) memcpy(c[r]->dst, &out[r * bytes], bytes);
    finish(*c[r]);
  }
}

static bool agree(const std::vector<Call*>& c) {
  for (Call* x : c)
    if (!x || x->kind != c[0]->kind || x->n != c[0]->n || x->type != c[0]->type || x->op != c[0]->op || x->root != c[0]->root ||
        x->scaled != c[0]->scaled)
      return false;
  return true;
}

void post(Meeting& m, int rank, uint64_t number, Call& c) {
  if (c.kind == Send || c.kind == Recv) {
    auto key = c.kind == Send ? std::make_pair(rank, c.root) : std::make_pair(c.root, rank);
    auto& mine = (c.kind == Send ? m.sends : m.recvs)[key];
    auto& other = (c.kind == Send ? m.recvs : m.sends)[key];
    mine.push_back(&c);
    while (!mine.empty() && !other.empty() && mine[0]->n == other[0]->n && mine[0]->type == other[0]->type) {
      Call *s = c.kind == Send ? mine[0] : other[0], *r = c.kind == Send ? other[0] : mine[0];
      memcpy(r->dst, s->src, s->n * type_size(s->type));
      if (key.first != key.second) moved += s->n * type_size(s->type);
      finish(*s);
      finish(*r);
      mine.erase(mine.begin());
      other.erase(other.begin());
    }
  } else {
    auto& step = m.steps[number];
    step.resize(m.n);
    step[rank] = &c;
    if (agree(step)) {
      carry_out(step);
      m.steps.erase(number);
    }
  }
  m.changed.notify_all();
}

void withdraw(Meeting& m, const std::set<Call*>& gone) {
  for (auto i = m.away.begin(); i != m.away.end();) i = gone.count(i->second) ? m.away.erase(i) : std::next(i);
  for (auto& s : m.steps)
    for (auto& c : s.second)
      if (gone.count(c)) c = nullptr;
  for (auto* side : {&m.sends, &m.recvs})
    for (auto& p : *side)
      p.second.erase(std::remove_if(p.second.begin(), p.second.end(), [&](Call* c) { return gone.count(c) > 0; }), p.second.end());
}

double half_value(uint16_t bits, bool brain) { return brain ? from_bf16(bits) : from_half(bits); }
