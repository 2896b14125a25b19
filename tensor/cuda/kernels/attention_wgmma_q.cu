#include "attention_wgmma.cuh"

// The gradient of queries, dq = scale * dS k, by tiles of queries, and their stats for attention_wgmma_kv.cu: lse*log2(e), and delta, the
// sums of dO*O (less the gradient of lse).

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention_wgmma_q(T* grad_q, float2* stats, const T* out, const T* dout, const float* lse, const float* dlse,
                 const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k, const __grid_constant__ TensorMap map_v,
                 const __grid_constant__ TensorMap map_do, const __grid_constant__ TensorMap map_o, const __grid_constant__ Params p) {
  unsigned char* smem = (unsigned char*)dynamic_shared<u64>();
  u32 base = (shared_address(smem) + 1023) & ~1023u;
  u32 sq = base, sdo = sq + OWN * OWN_BYTES, sk = sdo + OWN * OWN_BYTES, sv = sk + STAGES * TILE_BYTES, bars = sv + STAGES2 * TILE_BYTES;
  u32 q_full = bars, q_empty = q_full + 8 * OWN, k_full = q_empty + 8 * OWN, k_empty = k_full + 8 * STAGES, v_full = k_empty + 8 * STAGES;
  u32 v_empty = v_full + 8 * STAGES2;
  Work* works = (Work*)(smem + (bars - shared_address(smem)) + 192);
  int warp = __shfl_sync(FULL_WARP, threadIdx.x >> 5, 0), wg = warp >> 2;
  if (threadIdx.x == 0) {
    for (int i = 0; i < OWN; i++) barrier_init(q_full + 8 * i, 1), barrier_init(q_empty + 8 * i, 4 * WGS);
    for (int i = 0; i < STAGES; i++) barrier_init(k_full + 8 * i, 1), barrier_init(k_empty + 8 * i, 4 * WGS);
    for (int i = 0; i < STAGES2; i++) barrier_init(v_full + 8 * i, 1), barrier_init(v_empty + 8 * i, 4 * WGS);
    barriers_ready();
  }
  __syncthreads();
  if (warp >= 4 * WGS) {
    fewer_registers<WGS == 2 ? 24 : 32>();
    if (threadIdx.x == 128 * WGS) {
      prefetch_map(map_q), prefetch_map(map_k), prefetch_map(map_v), prefetch_map(map_do), prefetch_map(map_o);
      int nq = 0, nk = 0, nv = 0, group = p.heads / p.kv;
      for (int w = blockIdx.x;;) {
        Work x;
        x.more = x.end = 0;
        if (w < p.works) x = work_of_queries(p, w);
        int n = (x.end + BN - 1) / BN, kv_head = x.head / group, s = nq % OWN;
        barrier_wait(q_empty + 8 * s, (nq / OWN & 1) ^ 1);
        works[s] = x;
        if (x.more && n > 0) {
          barrier_expect(q_full + 8 * s, 2 * OWN_BYTES);
#pragma unroll
          for (int c = 0; c < HD / 64; c++) {
            copy_box(sq + s * OWN_BYTES + c * BM * 128, map_q, c * 64, x.first, x.head, x.batch, q_full + 8 * s);
            copy_box(sdo + s * OWN_BYTES + c * BM * 128, map_do, c * 64, x.first, x.head, x.batch, q_full + 8 * s);
            prefetch_box(map_o, c * 64, x.first, x.head, x.batch);
          }
        } else
          barrier_arrive(q_full + 8 * s);
        nq++;
        if (!x.more) break;
        w = (int)gridDim.x + atomicAdd(p.next, 1);
#pragma unroll 1
        for (int j = n - 1; j >= 0; j--) {
          int s = nk % STAGES;
          barrier_wait(k_empty + 8 * s, (nk / STAGES & 1) ^ 1);
          barrier_expect(k_full + 8 * s, TILE_BYTES);
#pragma unroll
          for (int c = 0; c < HD / 64; c++)
            copy_box(sk + s * TILE_BYTES + c * BN * 128, map_k, c * 64, j * BN, kv_head, x.batch, k_full + 8 * s);
          nk++;
          s = nv % STAGES2;
          barrier_wait(v_empty + 8 * s, (nv / STAGES2 & 1) ^ 1);
          barrier_expect(v_full + 8 * s, TILE_BYTES);
#pragma unroll
          for (int c = 0; c < HD / 64; c++)
            copy_box(sv + s * TILE_BYTES + c * BN * 128, map_v, c * 64, j * BN, kv_head, x.batch, v_full + 8 * s);
          nv++;
        }
      }
      last_block(p);
    }
    return;
  }
  more_registers<WGS == 2 ? 240 : 160>();
  int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, nq = 0, nk = 0, nv = 0;
  float scale2 = p.scale * LOG2E;
  first_turn(wg);
  for (;; nq++) {
    int qs = nq % OWN;
    barrier_wait(q_full + 8 * qs, nq / OWN & 1);
    const Work& x = works[qs];
    if (!__shfl_sync(FULL_WARP, x.more, 0)) break;
    int n = __shfl_sync(FULL_WARP, (x.end + BN - 1) / BN, 0), first_row = x.first + wg * 64, row0 = first_row + (warp & 3) * 16 + g;
    int seen = x.keys, full_from = x.keys;
    if (p.causal) {
      seen = max(0, min(seen, first_row + 64 + p.offset));
      full_from = min(full_from, first_row + 1 + p.offset);
    }
    int mine = __shfl_sync(FULL_WARP, first_row + 64 > 0 ? (seen + BN - 1) / BN : 0, 0);
    u32 my_q = sq + qs * OWN_BYTES + wg * 64 * 128, my_do = sdo + qs * OWN_BYTES + wg * 64 * 128;
    // What delta needs of the output is on its way while the first product runs.
    float lse2[2] = {INFINITY, INFINITY}, delta[2] = {0, 0};
    uint4 of[2][HD / 32];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row = row0 + 8 * h;
      if (row >= 0) {
        const uint4* a = (const uint4*)(out + (((i64)x.batch * p.steps + row) * p.heads + x.head) * p.hd);
#pragma unroll
        for (int c = 0; c < HD / 32; c++) of[h][c] = 8 * (4 * c + t) < p.hd ? a[4 * c + t] : make_uint4(0, 0, 0, 0);
        i64 i = (i64)x.number * p.steps + row;
        float l = lse[i];
        if (l != -INFINITY) lse2[h] = l * LOG2E;
        if (dlse && t == 0) delta[h] = -dlse[i];
      } else {
#pragma unroll
        for (int c = 0; c < HD / 32; c++) of[h][c] = make_uint4(0, 0, 0, 0);
      }
    }
    auto row_stats = [&] {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int row = row0 + 8 * h, r = (warp & 3) * 16 + g + 8 * h;
        float sum = delta[h];
#pragma unroll
        for (int c = 0; c < HD / 32; c++) {
          u32 vs[4], us[4] = {of[h][c].x, of[h][c].y, of[h][c].z, of[h][c].w};
          int chunk = 4 * c + t;
          load16(vs, at(my_do, r, chunk));
#pragma unroll
          for (int e = 0; e < 4; e++) {
            float u0, u1, v0, v1;
            unpack(us[e], u0, u1), unpack(vs[e], v0, v1);
            sum = fmaf(u0, v0, fmaf(u1, v1, sum));
          }
        }
        sum += __shfl_xor_sync(FULL_WARP, sum, 1);
        sum += __shfl_xor_sync(FULL_WARP, sum, 2);
        delta[h] = sum;
        if (t == 0 && row >= 0) stats[(i64)x.number * p.padded + row] = make_float2(lse2[h], sum);
      }
    };
    // Stats behind those of the last query leave nothing of a query.
    if (x.first <= 0 && wg == 0)
      for (int r = p.steps + threadIdx.x; r < p.padded; r += 128) stats[(i64)x.number * p.padded + r] = make_float2(INFINITY, 0.f);
    float dq[HD / 2], s[BN / 2], dp[BN / 2];
    u32 ds[BN / 4];
#pragma unroll
    for (int i = 0; i < HD / 2; i++) dq[i] = 0;
#if DROP
    u64 drop0 = first_of_dropout(p, x.number) + (u64)row0 * p.keys, drop1 = drop0 + 8 * p.keys;
    drop0 >>= 2, drop1 >>= 2;
#endif
#if DOCS
    i64 doc[2] = {p.qdocs[(i64)x.batch * p.steps + max(row0, 0)], p.qdocs[(i64)x.batch * p.steps + max(row0 + 8, 0)]};
#endif
    auto pointwise = [&](int j) {
#if DOCS
      const i64* kd = p.kdocs + (i64)x.batch * p.keys;
#pragma unroll
      for (int i = 0; i < BN / 8; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          i64 d = kd[min(j * BN + 8 * i + 2 * t + e, p.keys - 1)];
          if (d != doc[0]) s[4 * i + e] = -INFINITY;
          if (d != doc[1]) s[4 * i + 2 + e] = -INFINITY;
        }
#endif
      if ((j + 1) * BN > full_from) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          int limit = x.keys;
          if (p.causal) limit = min(limit, row0 + 8 * h + 1 + p.offset);
          limit -= j * BN + 2 * t;
#pragma unroll
          for (int i = 0; i < BN / 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++)
              if (8 * i + e >= limit) s[4 * i + 2 * h + e] = -INFINITY, dp[4 * i + 2 * h + e] = 0;
        }
      }
#if DROP
      u32 bits[(BN + 63) / 64];
      kept_rows<BN>(bits, p.key, p.limit, drop0 + j * BN / 4, drop1 + j * BN / 4);
#pragma unroll
      for (int i = 0; i < BN / 2; i++) dp[i] = kept(bits, i) ? dp[i] * p.keep : 0.f;
#endif
#pragma unroll
      for (int i = 0; i < BN / 2; i++) {
        float pr = exp2_(fmaf(s[i], scale2, -lse2[i / 2 & 1]));
        s[i] = pr * (dp[i] - delta[i / 2 & 1]);
      }
    };
    auto products = [&] {
      wgmma_fence();
      keep(s);
      keep(dp);
      scores<BM, BN>(s, my_q, sk + nk % STAGES * TILE_BYTES);
      scores<BM, BN>(dp, my_do, sv + nv % STAGES2 * TILE_BYTES);
      wgmma_commit();
    };
    auto wait_tiles = [&] {
      barrier_wait(k_full + 8 * (nk % STAGES), nk / STAGES & 1);
      barrier_wait(v_full + 8 * (nv % STAGES2), nv / STAGES2 & 1);
    };
#pragma unroll 1
    for (int j = n; j > mine; j--) {
      wait_tiles();
      release(k_empty + 8 * (nk % STAGES));
      release(v_empty + 8 * (nv % STAGES2));
      take_turn(wg);
      next_turn(wg);
      nk++, nv++;
    }
    if (mine > 0) {
      wait_tiles();
      if (x.keys < p.keys && mine * BN > x.keys) clear_rows<BN>(sk + nk % STAGES * TILE_BYTES, x.keys - (mine - 1) * BN, wg);
      take_turn(wg);
      products();
      next_turn(wg);
      row_stats();
      wgmma_wait<0>();
      keep(s);
      keep(dp);
      release(v_empty + 8 * (nv % STAGES2));
      nk++, nv++;
      pointwise(mine - 1);
      pack_all(ds, s);
      for (int j = mine - 2; j >= 0; j--) {
        wait_tiles();
        take_turn(wg);
        keep(ds);
        keep(dq);
        products();
        add_product<BN>(dq, ds, sk + (nk - 1) % STAGES * TILE_BYTES);
        wgmma_commit();
        next_turn(wg);
        wgmma_wait<1>();
        keep(s);
        keep(dp);
        release(v_empty + 8 * (nv % STAGES2));
        nk++, nv++;
        pointwise(j);
        keep(s);
        if (j > 0) wait_tiles();  // here, so that the compiler does not move the next wait before pointwise
        wgmma_wait<0>();
        keep(dq);
        keep(ds);
        release(k_empty + 8 * ((nk - 2) % STAGES));
        pack_all(ds, s);
      }
      keep(ds);
      keep(dq);
      wgmma_fence();
      add_product<BN>(dq, ds, sk + (nk - 1) % STAGES * TILE_BYTES);
      wgmma_commit();
      wgmma_wait<0>();
      keep(dq);
      keep(ds);
      release(k_empty + 8 * ((nk - 1) % STAGES));
    } else {  // no query sees a key: delta is 0, and does not matter as P is
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (t == 0 && row0 + 8 * h >= 0) stats[(i64)x.number * p.padded + row0 + 8 * h] = make_float2(INFINITY, 0.f);
    }
    store_rows<false>(p, grad_q + (i64)x.batch * p.steps * p.qstep + x.head * p.hd, p.qstep, row0 - g, p.steps,
                      my_q + (warp & 3) * 16 * 128, dq, p.scale, p.scale, 0);
    see_stores();
    __syncwarp();
    release(q_empty + 8 * qs);
  }
  last_turn(wg);
}
