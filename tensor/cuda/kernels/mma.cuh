// Tensor cores and copies that run beside the threads: instructions of sm_80 and later, as inline PTX; on the emulator,
// functions of the same layouts (internal/cuda/emu, src/mma.h). All 32 lanes of a warp call them together.
//
// A fragment is a small matrix spread over the registers of a warp (PTX ISA, "Matrix fragments for mma.m16n8k16"). With
// g = lane/4 and t = lane%4, and two elements a register, the lower half first:
//
//   a [16,16]: a[0] = (g, 2t..2t+1), a[1] = (g+8, 2t..), a[2] = (g, 2t+8..), a[3] = (g+8, 2t+8..)
//   b [16,8]:  b0 = (2t..2t+1, g), b1 = (2t+8..2t+9, g)
//   d [16,8]:  d[0], d[1] = (g, 2t..2t+1), d[2], d[3] = (g+8, 2t..)
//
// So the d of two neighbours, rounded, is an a: a product's result is the next product's operand without leaving the registers.

template <class E> struct IsHalf { static constexpr bool value = false; };
template <> struct IsHalf<f16> { static constexpr bool value = true; };

#ifdef RINGO_EMU
template <class E> inline void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) { emu_mma(d, a, b0, b1, IsHalf<E>::value, __LINE__); }
inline void ldmatrix(u32 (&r)[4], const void* row) { emu_ldmatrix(r, row, false, __LINE__); }
inline void ldmatrix_trans(u32 (&r)[4], const void* row) { emu_ldmatrix(r, row, true, __LINE__); }
inline void copy16(void* to, const void* from, bool real) { emu_copy(to, from, 16, real ? 16 : 0, __LINE__); }
inline void copy8(void* to, const void* from, bool real) { emu_copy(to, from, 8, real ? 8 : 0, __LINE__); }
inline u32 shared_address(const void* p) { return emu_shared_address(p); }
inline void copies_commit() { emu_copies_commit(); }
template <int N> inline void copies_wait() { emu_copies_wait(N); }
template <class E> inline u32 pack(float lo, float hi) { return from_float<E>(lo).bits | (u32)from_float<E>(hi).bits << 16; }
#else
// mma is d += a b, in float32. It is volatile, like all that a warp does together. Otherwise the compiler may move it to where its
// result is used: after a branch that some lanes do not take.
template <class E> __device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if (IsHalf<E>::value)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// ldmatrix loads four 8x8 matrices of 16-bit elements from shared memory; lane 8m + r gives the address of row r of matrix m,
// a multiple of 16 bytes. Register m gets elements 2t and 2t+1 of row g of matrix m; of column g with trans.
__device__ __forceinline__ void ldmatrix(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

// copy16 starts to copy 16 bytes from global to shared memory; it writes zeros if they are not real. copy8 copies 8 bytes. The copies that
// were started before copies_commit are a group. copies_wait<N> waits for all groups of this thread but the last N.
__device__ __forceinline__ void copy16(void* to, const void* from, bool real) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(shared_address(to)), "l"(from), "r"(real ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy8(void* to, const void* from, bool real) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" : : "r"(shared_address(to)), "l"(from), "r"(real ? 8 : 0) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int N> __device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory"); }

// pack rounds two numbers to E, the first to the lower half.
template <class E> __device__ __forceinline__ u32 pack(float lo, float hi) {
  u32 r;
  if (IsHalf<E>::value)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
#endif
