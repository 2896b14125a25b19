#include "attention_wgmma.cuh"

// dv = Pt dO and dk = scale * dSt q of tiles of keys, over the heads of queries that share them. Scores are transposed: rows are keys.
enum { STAT_BYTES = BN * 8 };

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention_wgmma_kv(T* grad_k, T* grad_v, const float2* stats,
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k, const __grid_constant__ TensorMap map_v,
                  const __grid_constant__ TensorMap map_do, const __grid_constant__ Params p) {
  unsigned char* smem = (unsigned char*)dynamic_shared<u64>();
  u32 base = (shared_address(smem) + 1023) & ~1023u;
  u32 sk = base, sv = sk + OWN * OWN_BYTES, sq = sv + OWN * OWN_BYTES, sdo = sq + STAGES * TILE_BYTES, sst = sdo + STAGES * TILE_BYTES;
  u32 bars = sst + STAGES * STAT_BYTES;
  u32 own_full = bars, own_empty = own_full + 8 * OWN, q_full = own_empty + 8 * OWN, do_full = q_full + 8 * STAGES;
  u32 empty = do_full + 8 * STAGES;
  Work* works = (Work*)(smem + (bars - shared_address(smem)) + 192);
  int warp = __shfl_sync(FULL_WARP, threadIdx.x >> 5, 0), wg = warp >> 2, group = p.heads / p.kv;
  if (threadIdx.x == 0) {
    for (int i = 0; i < OWN; i++) barrier_init(own_full + 8 * i, 1), barrier_init(own_empty + 8 * i, 4 * WGS);
    for (int i = 0; i < STAGES; i++)
      barrier_init(q_full + 8 * i, 1), barrier_init(do_full + 8 * i, 1), barrier_init(empty + 8 * i, 4 * WGS);
    barriers_ready();
  }
  __syncthreads();
  if (warp >= 4 * WGS) {
    fewer_registers<WGS == 2 ? 24 : 32>();
    if (threadIdx.x == 128 * WGS) {
      prefetch_map(map_q), prefetch_map(map_k), prefetch_map(map_v), prefetch_map(map_do);
      int no = 0, nq = 0;
      for (int w = blockIdx.x;;) {
        Work x;
        x.more = x.begin = x.end = 0;
        if (w < p.works) {
          x = work_number(p, w);
          x.first *= BM;
          x.batch = x.number / (u32)p.kv;
          x.head = x.number - x.batch * p.kv;
          x.keys = p.keys;
          if (p.lengths) x.keys = (int)max(0ll, min((i64)p.keys, p.lengths[x.batch]));
          x.begin = p.causal ? max(0, x.first - p.offset) / BN : 0;  // tiles of queries before see none of the keys
          x.end = x.first < x.keys ? max(x.begin, (p.steps + BN - 1) / BN) : x.begin;
        }
        int s = no % OWN;
        barrier_wait(own_empty + 8 * s, (no / OWN & 1) ^ 1);
        works[s] = x;
        if (x.more && x.begin < x.end) {
          barrier_expect(own_full + 8 * s, 2 * OWN_BYTES);
#pragma unroll
          for (int c = 0; c < HD / 64; c++) {
            copy_box(sk + s * OWN_BYTES + c * BM * 128, map_k, c * 64, x.first, x.head, x.batch, own_full + 8 * s);
            copy_box(sv + s * OWN_BYTES + c * BM * 128, map_v, c * 64, x.first, x.head, x.batch, own_full + 8 * s);
          }
        } else
          barrier_arrive(own_full + 8 * s);
        no++;
        if (!x.more) break;
        w = (int)gridDim.x + atomicAdd(p.next, 1);
        int n = (x.end - x.begin) * group, head = x.head * group, i = x.begin;
#pragma unroll 1
        for (int k = 0; k < n; k++) {
          int s = nq % STAGES;
          barrier_wait(empty + 8 * s, (nq / STAGES & 1) ^ 1);
          barrier_expect(q_full + 8 * s, TILE_BYTES + STAT_BYTES);
          copy_bytes(sst + s * STAT_BYTES, stats + ((i64)x.batch * p.heads + head) * p.padded + i * BN, STAT_BYTES, q_full + 8 * s);
#pragma unroll
          for (int c = 0; c < HD / 64; c++)
            copy_box(sq + s * TILE_BYTES + c * BN * 128, map_q, c * 64, i * BN, head, x.batch, q_full + 8 * s);
          barrier_expect(do_full + 8 * s, TILE_BYTES);
#pragma unroll
          for (int c = 0; c < HD / 64; c++)
            copy_box(sdo + s * TILE_BYTES + c * BN * 128, map_do, c * 64, i * BN, head, x.batch, do_full + 8 * s);
          nq++;
          if (++i == x.end) i = x.begin, head++;
        }
      }
      last_block(p);
    }
    return;
  }
  more_registers<WGS == 2 ? 240 : 160>();
  int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, no = 0, nq = 0;
  float scale2 = p.scale * LOG2E;
  first_turn(wg);
  for (;; no++) {
    int os = no % OWN;
    barrier_wait(own_full + 8 * os, no / OWN & 1);
    const Work& x = works[os];
    if (!__shfl_sync(FULL_WARP, x.more, 0)) break;
    int begin = __shfl_sync(FULL_WARP, x.begin, 0), end = __shfl_sync(FULL_WARP, x.end, 0);
    int first_row = x.first + wg * 64, row0 = first_row + (warp & 3) * 16 + g;
    // Of the blocks of queries, the warpgroup's keys are seen from one on; none if they do not count. All keys are seen by blocks from
    // full_from on.
    int from = begin, full_from = first_row + 64 > x.keys ? 1 << 30 : 0;
    if (p.causal) {
      from = max(begin, max(0, first_row - p.offset) / BN);
      full_from = max(full_from, first_row + 63 - p.offset);
    }
    if (first_row >= x.keys) from = end;
    from = __shfl_sync(FULL_WARP, from, 0);
#if DOCS
    i64 doc[2] = {p.kdocs[(i64)x.batch * p.keys + min(row0, p.keys - 1)], p.kdocs[(i64)x.batch * p.keys + min(row0 + 8, p.keys - 1)]};
#endif
    u32 my_k = sk + os * OWN_BYTES + wg * 64 * 128, my_v = sv + os * OWN_BYTES + wg * 64 * 128;
    float dk[HD / 2], dv[HD / 2], s[BN / 2], dp[BN / 2];
    u32 pr[BN / 4];
#pragma unroll
    for (int i = 0; i < HD / 2; i++) dk[i] = dv[i] = 0;
    int n = begin < end ? group * (end - begin) : 0, i = begin;
#pragma unroll 1
    for (int k = 0; k < n; k++, nq++) {
      int st = nq % STAGES;
      barrier_wait(q_full + 8 * st, nq / STAGES & 1);
      barrier_wait(do_full + 8 * st, nq / STAGES & 1);
      take_turn(wg);
      if (i < from) {
        next_turn(wg);
      } else {
        keep(s);
        keep(dp);
        wgmma_fence();
        scores<BM, BN>(s, my_k, sq + st * TILE_BYTES);
        wgmma_commit();
        scores<BM, BN>(dp, my_v, sdo + st * TILE_BYTES);
        wgmma_commit();
        next_turn(wg);
        wgmma_wait<1>();
        keep(s);
        bool masked = i * BN < full_from;
        if (masked) {
#pragma unroll
          for (int h = 0; h < 2; h++) {
            int row = row0 + 8 * h, least = p.causal ? row - p.offset : 0;  // the first query that sees the key
            if (row >= x.keys) least = 1 << 30;
            least -= i * BN + 2 * t;
#pragma unroll
            for (int c = 0; c < BN / 8; c++)
#pragma unroll
              for (int e = 0; e < 2; e++)
                if (8 * c + e < least) s[4 * c + 2 * h + e] = -INFINITY;
          }
        }
#if DOCS
        const i64* qd = p.qdocs + (i64)x.batch * p.steps;
#pragma unroll
        for (int c = 0; c < BN / 8; c++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            i64 d = qd[min(i * BN + 8 * c + 2 * t + e, p.steps - 1)];
            if (d != doc[0]) s[4 * c + e] = -INFINITY;
            if (d != doc[1]) s[4 * c + 2 + e] = -INFINITY;
          }
#endif
        u32 stat = sst + st * STAT_BYTES + t * 16;
#pragma unroll
        for (int c = 0; c < BN / 8; c++) {
          u32 v[4];
          load16(v, stat + c * 64);
#pragma unroll
          for (int e = 0; e < 4; e++) s[4 * c + e] = exp2_(fmaf(s[4 * c + e], scale2, -__uint_as_float(v[e % 2 * 2])));
        }
#if DROP
        u32 bits[(BN + 63) / 64];
        {
          int head = x.number * group + k / (end - begin);
          u64 n = first_of_dropout(p, head) + (u64)(i * BN) * p.keys + (row0 & ~3);
          kept_cols<BN>(bits, p.key, p.limit, n >> 2, p.keys >> 2);
        }
#pragma unroll
        for (int c = 0; c < BN / 4; c++) pr[c] = pack<T>(kept(bits, 2 * c) ? s[2 * c] : 0.f, kept(bits, 2 * c + 1) ? s[2 * c + 1] : 0.f);
#else
        pack_all(pr, s);
#endif
        wgmma_wait<0>();
        keep(dp);
        keep(pr);
        keep(dv);
        wgmma_fence();
        add_product<BN>(dv, pr, sdo + st * TILE_BYTES);
        wgmma_commit();
        u32 ds[BN / 4];
#if DROP
#pragma unroll
        for (int c = 0; c < BN / 2; c++) dp[c] = kept(bits, c) ? dp[c] * p.keep : 0.f;
#endif
#pragma unroll
        for (int c = 0; c < BN / 8; c++) {
          u32 v[4];
          load16(v, stat + c * 64);
#pragma unroll
          for (int e = 0; e < 4; e++) s[4 * c + e] *= dp[4 * c + e] - __uint_as_float(v[e % 2 * 2 + 1]);
        }
        if (masked) {
#pragma unroll
          for (int c = 0; c < BN / 2; c++)
            if (!(fabsf(s[c]) < INFINITY)) s[c] = 0;  // 0 * infinity
        }
        pack_all(ds, s);
        keep(ds);
        keep(dk);
        wgmma_fence();
        add_product<BN>(dk, ds, sq + st * TILE_BYTES);
        wgmma_commit();
        wgmma_wait<0>();
        keep(dv);
        keep(dk);
        keep(pr);
        keep(ds);
      }
      release(empty + 8 * st);
      if (++i == end) i = begin;
    }
    i64 from_row = (i64)x.batch * p.keys * p.kstep + x.head * p.hd;
    float keep_scale = DROP ? p.keep : 1.f;
    store_rows<false>(p, grad_k + from_row, p.kstep, row0 - g, p.keys, my_k + (warp & 3) * 16 * 128, dk, p.scale, p.scale, 0);
    store_rows<false>(p, grad_v + from_row, p.kstep, row0 - g, p.keys, my_v + (warp & 3) * 16 * 128, dv, keep_scale, keep_scale, 0);
    see_stores();
    __syncwarp();
    release(own_empty + 8 * os);
  }
  last_turn(wg);
}
