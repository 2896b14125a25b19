// Instructions of sm_90a, as inline PTX: the copy engine, barriers that count its bytes, and products of four warps (PTX ISA, "mbarrier",
// "cp.async.bulk.tensor", "wgmma"); on the emulator, functions that do the same (internal/cuda/emu, src/hopper.h). There, `line` is the
// caller's.

// TensorMap is a CUtensorMap: what the copy engine knows of a matrix.
struct __align__(64) TensorMap { u64 words[16]; };

// matrix_at describes a matrix of rows of 128 bytes, swizzled by 128 bytes. If k is along the rows, eight rows and eight columns of 16
// bytes are a block. With ACROSS, 64 elements by eight rows are one; the next 64 elements are `box` bytes on.
template <int ACROSS> __device__ __forceinline__ u64 matrix_at(u32 p, int box) {
  u64 lead = ACROSS ? box / 16 : 1, stride = 1024 / 16;
  return (u64)((p & 0x3ffff) >> 4) | lead << 16 | stride << 32 | 1ull << 62;
}

#ifdef RINGO_EMU
#define CALLED int line = __builtin_LINE()
inline void barrier_init(u32 b, u32 n, CALLED) { emu_mbarrier_init(b, n, line); }
inline void barriers_ready() { emu_mbarriers_ready(); }
inline void barrier_arrive(u32 b, CALLED) { emu_mbarrier_arrive(b, 0, line); }
inline void barrier_expect(u32 b, u32 bytes, CALLED) { emu_mbarrier_arrive(b, bytes, line); }
inline void barrier_wait(u32 b, u32 parity, CALLED) { emu_mbarrier_wait(b, parity, line); }
inline void group_barrier(int number, CALLED) { emu_bar(number, 128, true, line); }
template <int N> inline void threads_wait(int number, CALLED) { emu_bar(number, N, true, line); }
inline void two_groups_wait(int number, CALLED) { emu_bar(number, 256, true, line); }
inline void two_groups_arrive(int number, CALLED) { emu_bar(number, 256, false, line); }
struct At { u32 bar; int line; At(u32 bar, CALLED) : bar(bar), line(line) {} };
inline void copy_box(u32 to, const TensorMap& map, int x, int y, int z, At at) { emu_copy_box(to, &map, x, y, z, 0, 3, at.bar, at.line); }
inline void copy_box(u32 to, const TensorMap& map, int x, int y, int z, int w, At at) { emu_copy_box(to, &map, x, y, z, w, 4, at.bar, at.line); }
inline void prefetch_box(const TensorMap&, int, int, int, int) {}
inline void prefetch_map(const TensorMap&) {}
inline void copy_bytes(u32 to, const void* from, u32 bytes, u32 bar, CALLED) { emu_copy_bytes(to, from, bytes, bar, line); }
inline void load16(u32 (&v)[4], u32 from, CALLED) { *(uint4*)v = *(uint4*)emu_shared(from, 16, "a load", line); }
inline void store16(void* to, const u32 (&v)[4]) { *(uint4*)to = make_uint4(v[0], v[1], v[2], v[3]); }
inline void store_matrices(u32 row, u32 a, u32 b, u32 c, u32 d, CALLED) {
  u32 r[4] = {a, b, c, d};
  emu_store_matrices(row, r, line);
}
inline void zero16(u32 p, CALLED) {
  u32 none[4] = {0, 0, 0, 0};
  emu_store16(p, none, line);
}
inline void see_stores() { emu_see_stores(); }
template <int N> inline void fewer_registers(CALLED) { emu_registers(N, false, line); }
template <int N> inline void more_registers(CALLED) { emu_registers(N, true, line); }
inline void wgmma_fence() { emu_wgmma_fence(); }
inline void wgmma_commit() { emu_wgmma_commit(); }
template <int N> inline void wgmma_wait(CALLED) { emu_wgmma_wait(N, line); }
template <class R> inline void keep(R&) {}
template <int ACROSS_A, int ACROSS_B> inline void wgmma256(float (&d)[128], u64 a, u64 b, int add, CALLED) {
  emu_wgmma(d, 256, nullptr, a, b, ACROSS_A | ACROSS_B << 1, add, IsHalf<T>::value, line);
}
template <int R> inline void wgmma_ss(float (&d)[R], u64 a, u64 b, int add, CALLED) {
  emu_wgmma(d, 2 * R, nullptr, a, b, 0, add, IsHalf<T>::value, line);
}
template <int R> inline void wgmma_rs(float (&d)[R], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int add, CALLED) {
  u32 a[4] = {a0, a1, a2, a3};
  emu_wgmma(d, 2 * R, a, 0, b, 2, add, IsHalf<T>::value, line);
}
#else
// A barrier is eight bytes of shared memory. A phase ends when n threads have arrived and the expected bytes are there.
__device__ __forceinline__ void barrier_init(u32 b, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }
__device__ __forceinline__ void barrier_arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(b) : "memory"); }
__device__ __forceinline__ void barrier_expect(u32 b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(b), "r"(bytes) : "memory");
}
// barrier_wait waits until the phase of this parity is over.
__device__ __forceinline__ void barrier_wait(u32 b, u32 parity) {
  asm volatile("{\n .reg .pred p;\nAGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               " @p bra DONE_%=;\n bra AGAIN_%=;\nDONE_%=:\n}"
               : : "r"(b), "r"(parity) : "memory");
}
// group_barrier waits for the 128 threads of a warpgroup.
__device__ __forceinline__ void group_barrier(int number) { asm volatile("bar.sync %0, 128;" : : "r"(number) : "memory"); }

// threads_wait waits for N threads, whole warps.
template <int N> __device__ __forceinline__ void threads_wait(int number) {
  asm volatile("bar.sync %0, %1;" : : "r"(number), "n"(N) : "memory");
}

// copy_box copies the map's box at column x, row y of matrix z to shared memory, and tells a barrier. What lies outside is 0.
__device__ __forceinline__ void copy_box(u32 to, const TensorMap& map, int x, int y, int z, u32 bar) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               : : "r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y), "r"(z) : "memory");
}
// copy_box of a map of four dimensions; prefetch_box brings the box to L2.
__device__ __forceinline__ void copy_box(u32 to, const TensorMap& map, int x, int y, int z, int w, u32 bar) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               : : "r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
__device__ __forceinline__ void prefetch_box(const TensorMap& map, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];"
               : : "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory"); }
// copy_bytes copies neighbours, 16 bytes or a multiple.
__device__ __forceinline__ void copy_bytes(u32 to, const void* from, u32 bytes, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               : : "r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
// two_groups_wait waits for 256 threads, of which those of two_groups_arrive go on.
__device__ __forceinline__ void two_groups_wait(int number) { asm volatile("bar.sync %0, 256;" : : "r"(number) : "memory"); }
__device__ __forceinline__ void two_groups_arrive(int number) { asm volatile("bar.arrive %0, 256;" : : "r"(number) : "memory"); }

// load16 and store16 move 16 bytes from shared memory and to memory; store_matrices is ldmatrix (mma.cuh) the other way around.
__device__ __forceinline__ void load16(u32 (&v)[4], u32 from) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void store16(void* to, const u32 (&v)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" : : "l"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
__device__ __forceinline__ void store_matrices(u32 row, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" : : "r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
// zero16 clears 16 bytes of shared memory; see_stores lets wgmma see what threads stored.
__device__ __forceinline__ void zero16(u32 p) { asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" : : "r"(p), "r"(0) : "memory"); }
__device__ __forceinline__ void see_stores() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// The registers of a thread, from now on: a warpgroup that only copies gives its own to those that compute.
template <int N> __device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N)); }
template <int N> __device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N)); }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory"); }

// keep ties registers to their place among wgmma's fences and waits; the compiler does not know that wgmma uses them in between.
template <int N> __device__ __forceinline__ void keep(float (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(r[i]) : : "memory");
}
template <int N> __device__ __forceinline__ void keep(u32 (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(r[i]) : : "memory");
}

#define TEN(t) "%" t "0, %" t "1, %" t "2, %" t "3, %" t "4, %" t "5, %" t "6, %" t "7, %" t "8, %" t "9, "
#define FOUR_SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN_SUMS(i) FOUR_SUMS(i), FOUR_SUMS(i + 4), FOUR_SUMS(i + 8), FOUR_SUMS(i + 12)
#define SUMS_OF(i) SIXTEEN_SUMS(i), SIXTEEN_SUMS(i + 16)
#define WGMMA256(TYPES)                                                                                                                  \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %130, 0;\n wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPES " {"                   \
      TEN("") TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") TEN("6") TEN("7") TEN("8") TEN("9") TEN("10") TEN("11")                       \
      "%120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p, 1, 1, %131, %132;\n}"                                             \
      : SUMS_OF(0), SUMS_OF(32), SUMS_OF(64), SUMS_OF(96) : "l"(a), "l"(b), "r"(add), "n"(ACROSS_A), "n"(ACROSS_B))

// wgmma256 is d = a b, or d += a b if add, for a [64,16] and b [16,256] in shared memory, which matrix_at describes. With ACROSS_A, not k
// but the rows of a are neighbours in memory; with ACROSS_B, the columns of b. Warp w of the four has rows 16w..16w+15; of these a thread
// has rows lane/4 and 8 more: d[4j], d[4j+1] are columns 8j + 2(lane%4) and the next one, d[4j+2], d[4j+3] those 8 rows on.
template <int ACROSS_A, int ACROSS_B> __device__ __forceinline__ void wgmma256(float (&d)[128], u64 a, u64 b, int add) {
  if (IsHalf<T>::value)
    WGMMA256("f16.f16");
  else
    WGMMA256("bf16.bf16");
}

// Products of 64 rows with N columns, of a thread's N/2 sums. wgmma_ss is d = a bT, or d += a bT if add, for a [64,16] and b [N,16] in
// shared memory, k along the rows. wgmma_rs is d += a b for a in registers, the layout of which is that of d, packed, and b [16,N], columns
// along the rows.
#define WGMMA_SS(N, D, A, B, ADD, OF, TYPES)                                                                                             \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " ADD ", 0;\n wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPES " {" D "}, "      \
               A ", " B ", p, 1, 1, 0, 0;\n}" : OF : "l"(a), "l"(b), "r"(add))
#define WGMMA_RS(N, D, A, B, ADD, OF, TYPES)                                                                                             \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " ADD ", 0;\n wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPES " {" D "}, {"     \
               A "}, " B ", p, 1, 1, 1;\n}" : OF : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add))
#define SUMS_64 SUMS_OF(0)
#define D_64 TEN("") TEN("1") TEN("2") "%30, %31"
__device__ __forceinline__ void wgmma_ss(float (&d)[32], u64 a, u64 b, int add) {
  if (IsHalf<T>::value) WGMMA_SS("64", D_64, "%32", "%33", "%34", SUMS_64, "f16.f16");
  else WGMMA_SS("64", D_64, "%32", "%33", "%34", SUMS_64, "bf16.bf16");
}
__device__ __forceinline__ void wgmma_rs(float (&d)[32], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int add) {
  if (IsHalf<T>::value) WGMMA_RS("64", D_64, "%32, %33, %34, %35", "%36", "%37", SUMS_64, "f16.f16");
  else WGMMA_RS("64", D_64, "%32, %33, %34, %35", "%36", "%37", SUMS_64, "bf16.bf16");
}
#define SUMS_80 SUMS_OF(0), FOUR_SUMS(32), FOUR_SUMS(36)
#define D_80 TEN("") TEN("1") TEN("2") "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
__device__ __forceinline__ void wgmma_ss(float (&d)[40], u64 a, u64 b, int add) {
  if (IsHalf<T>::value) WGMMA_SS("80", D_80, "%40", "%41", "%42", SUMS_80, "f16.f16");
  else WGMMA_SS("80", D_80, "%40", "%41", "%42", SUMS_80, "bf16.bf16");
}
__device__ __forceinline__ void wgmma_rs(float (&d)[40], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int add) {
  if (IsHalf<T>::value) WGMMA_RS("80", D_80, "%40, %41, %42, %43", "%44", "%45", SUMS_80, "f16.f16");
  else WGMMA_RS("80", D_80, "%40, %41, %42, %43", "%44", "%45", SUMS_80, "bf16.bf16");
}
#define SUMS_96 SUMS_OF(0), FOUR_SUMS(32), FOUR_SUMS(36), FOUR_SUMS(40), FOUR_SUMS(44)
#define D_96 TEN("") TEN("1") TEN("2") TEN("3") "%40, %41, %42, %43, %44, %45, %46, %47"
__device__ __forceinline__ void wgmma_ss(float (&d)[48], u64 a, u64 b, int add) {
  if (IsHalf<T>::value) WGMMA_SS("96", D_96, "%48", "%49", "%50", SUMS_96, "f16.f16");
  else WGMMA_SS("96", D_96, "%48", "%49", "%50", SUMS_96, "bf16.bf16");
}
__device__ __forceinline__ void wgmma_rs(float (&d)[48], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int add) {
  if (IsHalf<T>::value) WGMMA_RS("96", D_96, "%48, %49, %50, %51", "%52", "%53", SUMS_96, "f16.f16");
  else WGMMA_RS("96", D_96, "%48, %49, %50, %51", "%52", "%53", SUMS_96, "bf16.bf16");
}
#define SUMS_128 SUMS_OF(0), SUMS_OF(32)
#define D_128 TEN("") TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") "%60, %61, %62, %63"
__device__ __forceinline__ void wgmma_ss(float (&d)[64], u64 a, u64 b, int add) {
  if (IsHalf<T>::value) WGMMA_SS("128", D_128, "%64", "%65", "%66", SUMS_128, "f16.f16");
  else WGMMA_SS("128", D_128, "%64", "%65", "%66", SUMS_128, "bf16.bf16");
}
__device__ __forceinline__ void wgmma_rs(float (&d)[64], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int add) {
  if (IsHalf<T>::value) WGMMA_RS("128", D_128, "%64, %65, %66, %67", "%68", "%69", SUMS_128, "f16.f16");
  else WGMMA_RS("128", D_128, "%64, %65, %66, %67", "%68", "%69", SUMS_128, "bf16.bf16");
}
#endif
