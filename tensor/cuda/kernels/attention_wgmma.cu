#include "attention_wgmma.cuh"

// Attention forward on compute capability 9.0 (Shah et al., "FlashAttention-3", 2024). A warpgroup computes the scores of the next tile,
// and the sum of the values of this one, at once, and the softmax of the next one meanwhile. Tiles go from the last one back.
enum { Q_BYTES = OWN_BYTES, KV_BYTES = TILE_BYTES };

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention_wgmma(T* out, float* lse, const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                const __grid_constant__ TensorMap map_v, const __grid_constant__ Params p) {
  unsigned char* smem = (unsigned char*)dynamic_shared<u64>();
  u32 base = (shared_address(smem) + 1023) & ~1023u;
  u32 sq = base, sk = sq + OWN * Q_BYTES, sv = sk + STAGES * KV_BYTES, bars = sv + STAGES * KV_BYTES;
  u32 q_full = bars, q_empty = bars + 16, k_full = bars + 32, k_empty = k_full + 8 * STAGES, v_full = k_empty + 8 * STAGES;
  u32 v_empty = v_full + 8 * STAGES;
  Work* works = (Work*)(smem + (bars - shared_address(smem)) + 192);
  int warp = __shfl_sync(FULL_WARP, threadIdx.x >> 5, 0), wg = warp >> 2;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) barrier_init(q_full + 8 * i, 1), barrier_init(q_empty + 8 * i, 4 * WGS);
    for (int i = 0; i < STAGES; i++) {
      barrier_init(k_full + 8 * i, 1), barrier_init(k_empty + 8 * i, 4 * WGS);
      barrier_init(v_full + 8 * i, 1), barrier_init(v_empty + 8 * i, 4 * WGS);
    }
    barriers_ready();
  }
  __syncthreads();
  if (warp >= 4 * WGS) {
    fewer_registers<WGS == 2 ? 24 : 32>();
    if (threadIdx.x == 128 * WGS) {
      prefetch_map(map_q), prefetch_map(map_k), prefetch_map(map_v);
      int nq = 0, nk = 0, nv = 0;
      int group = p.heads / p.kv;
      for (int w = blockIdx.x;;) {
        Work x;
        x.more = x.end = 0;
        if (w < p.works) {
          x = work_of_queries(p, w);
          if (p.lengths && x.first <= 0) check_index(p.bad, p.op, p.lengths[x.batch], p.keys + 1);
        }
        int n = (x.end + BN - 1) / BN, kv_head = x.head / group;
        {
          int s = nq % OWN;
          barrier_wait(q_empty + 8 * s, (nq / OWN & 1) ^ 1);
          works[s] = x;
          if (x.more && n > 0) {
            barrier_expect(q_full + 8 * s, Q_BYTES);
#pragma unroll
            for (int c = 0; c < HD / 64; c++)
              copy_box(sq + s * Q_BYTES + c * BM * 128, map_q, c * 64, x.first, x.head, x.batch, q_full + 8 * s);
          } else
            barrier_arrive(q_full + 8 * s);
          nq++;
        }
        if (!x.more) break;
        w = (int)gridDim.x + atomicAdd(p.next, 1);
        if (n == 0) continue;
        auto load = [&](const TensorMap* map, u32 to, u32 bar, int j) {
          barrier_expect(bar, KV_BYTES);
#pragma unroll
          for (int c = 0; c < HD / 64; c++) copy_box(to + c * BN * 128, *map, c * 64, j * BN, kv_head, x.batch, bar);
        };
        auto load_k = [&](int j) {
          int s = nk % STAGES;
          barrier_wait(k_empty + 8 * s, (nk / STAGES & 1) ^ 1);
          load(&map_k, sk + s * KV_BYTES, k_full + 8 * s, j);
          nk++;
        };
        auto load_v = [&](int j) {
          int s = nv % STAGES;
          barrier_wait(v_empty + 8 * s, (nv / STAGES & 1) ^ 1);
          load(&map_v, sv + s * KV_BYTES, v_full + 8 * s, j);
          nv++;
        };
        load_k(n - 1);
#pragma unroll 1
        for (int j = n - 1; j > 0; j--) load_k(j - 1), load_v(j);
        load_v(0);
      }
      last_block(p);
    }
    return;
  }
  more_registers<WGS == 2 ? 240 : 160>();
  int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, nq = 0, nk = 0, nv = 0;
  float scale2 = p.scale * LOG2E;
  first_turn(wg);
  for (;;) {
    int qs = nq % OWN;
    barrier_wait(q_full + 8 * qs, nq / OWN & 1);
    nq++;
    const Work& x = works[qs];  // not kept in registers
    if (!__shfl_sync(FULL_WARP, x.more, 0)) break;
    int n = __shfl_sync(FULL_WARP, (x.end + BN - 1) / BN, 0), row0 = x.first + wg * 64 + (warp & 3) * 16 + g;
    float o[HD / 2], s[BN / 2], row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0, 0};
    u32 pr[BN / 4];
#if DOCS
    i64 doc[2] = {p.qdocs[(i64)x.batch * p.steps + max(row0, 0)], p.qdocs[(i64)x.batch * p.steps + max(row0 + 8, 0)]};
    auto mask_documents = [&](int j0) {
      const i64* kd = p.kdocs + (i64)x.batch * p.keys;
#pragma unroll
      for (int i = 0; i < BN / 8; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          i64 d = kd[min(j0 + 8 * i + 2 * t + e, p.keys - 1)];
          if (d != doc[0]) s[4 * i + e] = -INFINITY;
          if (d != doc[1]) s[4 * i + 2 + e] = -INFINITY;
        }
    };
#endif
#if DROP
    u64 drop0 = first_of_dropout(p, x.number) + (u64)row0 * p.keys, drop1 = drop0 + 8 * p.keys;
    drop0 >>= 2, drop1 >>= 2;
    auto drop = [&](int j0) {
      u32 bits[(BN + 63) / 64];
      kept_rows<BN>(bits, p.key, p.limit, drop0 + j0 / 4, drop1 + j0 / 4);
#pragma unroll
      for (int i = 0; i < BN / 2; i++) s[i] = kept(bits, i) ? s[i] : 0.f;
    };
#endif
    auto mask = [&](int j0) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int limit = x.keys;
        if (p.causal) limit = min(limit, row0 + 8 * h + 1 + p.offset);
        limit -= j0 + 2 * t;
#pragma unroll
        for (int i = 0; i < BN / 8; i++)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (8 * i + e >= limit) s[4 * i + 2 * h + e] = -INFINITY;
      }
    };
    auto softmax = [&](float (&rescale)[2]) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float m = row_max[h];
#pragma unroll
        for (int i = 0; i < BN / 8; i++) m = fmaxf(m, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
        m = fmaxf(m, __shfl_xor_sync(FULL_WARP, m, 1));
        m = fmaxf(m, __shfl_xor_sync(FULL_WARP, m, 2));
        float b = m == -INFINITY ? 0.f : m * scale2, sum = 0;
        // 1 if it has not grown: rounded as b was. With dropout of wide heads that would spill more registers; 1 is then rounded, too.
        rescale[h] = exp2_(DROP && HD > 64 ? fmaf(row_max[h], scale2, -b) : row_max[h] * scale2 - b);
        row_max[h] = m;
#pragma unroll
        for (int i = 0; i < BN / 8; i++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float v = exp2_(fmaf(s[4 * i + 2 * h + e], scale2, -b));
            s[4 * i + 2 * h + e] = v;
            sum += v;
          }
        row_sum[h] = fmaf(row_sum[h], rescale[h], sum);
      }
    };
    // Of the blocks of keys, the warpgroup's queries see those before mine: the others are passed on.
    int seen = x.keys, full_from = x.keys, first_row = x.first + wg * 64;  // tiles that end behind full_from are masked
    if (p.causal) {
      seen = max(0, min(seen, first_row + 64 + p.offset));
      full_from = min(full_from, first_row + 1 + p.offset);
    }
    int mine = __shfl_sync(FULL_WARP, first_row + 64 > 0 ? (seen + BN - 1) / BN : 0, 0);
    if (n > 0) {
      u32 my_q = sq + qs * Q_BYTES + wg * 64 * 128;
#pragma unroll 1
      for (int j = n; j > mine; j--) {
        int ks = nk % STAGES, vs = nv % STAGES;
        barrier_wait(k_full + 8 * ks, nk / STAGES & 1);
        release(k_empty + 8 * ks);
        take_turn(wg);
        next_turn(wg);
        barrier_wait(v_full + 8 * vs, nv / STAGES & 1);
        release(v_empty + 8 * vs);
        nk++, nv++;
      }
      float rescale[2];
#pragma unroll
      for (int i = 0; i < HD / 2; i++) o[i] = 0;
      if (mine > 0) {
        int ks = nk % STAGES;
        barrier_wait(k_full + 8 * ks, nk / STAGES & 1);
        nk++;
        take_turn(wg);
        wgmma_fence();
        keep(s);
        scores<BM, BN>(s, my_q, sk + ks * KV_BYTES);
        wgmma_commit();
        next_turn(wg);
        wgmma_wait<0>();
        keep(s);
        release(k_empty + 8 * ks);
        if (mine * BN > full_from) mask((mine - 1) * BN);
#if DOCS
        mask_documents((mine - 1) * BN);
#endif
        softmax(rescale);
#if DROP
        drop((mine - 1) * BN);
#endif
        pack_all(pr, s);
        barrier_wait(v_full + 8 * (nv % STAGES), nv / STAGES & 1);
        if (x.keys < p.keys && mine * BN > x.keys) clear_rows<BN>(sv + nv % STAGES * KV_BYTES, x.keys - (mine - 1) * BN, wg);
        for (int j = mine - 2; j >= 0; j--) {
          int ks = nk % STAGES, vs = nv % STAGES;
          barrier_wait(k_full + 8 * ks, nk / STAGES & 1);
          take_turn(wg);
          keep(s);
          keep(o);
          keep(pr);
          wgmma_fence();
          scores<BM, BN>(s, my_q, sk + ks * KV_BYTES);
          wgmma_commit();
          add_product<BN>(o, pr, sv + vs * KV_BYTES);
          wgmma_commit();
          next_turn(wg);
          nk++, nv++;
          wgmma_wait<1>();
          keep(s);
          release(k_empty + 8 * ks);
          if ((j + 1) * BN > full_from) mask(j * BN);
#if DOCS
          mask_documents(j * BN);
#endif
          softmax(rescale);
#if DROP
          drop(j * BN);
#endif
          keep(s);
          // This wait for the next values stands here because the compiler would move the next one, for the product, before softmax.
          barrier_wait(v_full + 8 * (nv % STAGES), nv / STAGES & 1);
          wgmma_wait<0>();
          keep(o);
          keep(pr);
          release(v_empty + 8 * vs);
#pragma unroll
          for (int i = 0; i < HD / 2; i++) o[i] *= rescale[i / 2 & 1];
          pack_all(pr, s);
        }
        int vs = nv % STAGES;
        nv++;
        keep(o);
        keep(pr);
        wgmma_fence();
        add_product<BN>(o, pr, sv + vs * KV_BYTES);
        wgmma_commit();
        wgmma_wait<0>();
        keep(o);
        keep(pr);
        release(v_empty + 8 * vs);
      }
    } else {
#pragma unroll
      for (int i = 0; i < HD / 2; i++) o[i] = 0;
    }
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float total = row_sum[h];
      total += __shfl_xor_sync(FULL_WARP, total, 1);
      total += __shfl_xor_sync(FULL_WARP, total, 2);
      scale[h] = total == 0 ? 0.f : rcp_(total);  // a query that sees no key
      if (DROP) scale[h] *= p.keep;
      int row = row0 + 8 * h;
      if (t == 0 && row >= 0) lse[(i64)x.number * p.steps + row] = fmaf(row_max[h], p.scale, log2_(total) * 0.69314718f);
    }
    // The output goes through the warp's own rows of the queries, which nobody else reads. With DOCS or DROP, an early
    // release would spill more.
    i64 width = (i64)p.heads * p.hd;
    store_rows<!DOCS && !DROP>(p, out + x.batch * p.steps * width + x.head * p.hd, width, row0 - g, p.steps,
                                sq + qs * Q_BYTES + wg * 64 * 128 + (warp & 3) * 16 * 128, o, scale[0], scale[1], q_empty + 8 * qs);
    if (DOCS || DROP) {
      see_stores();
      __syncwarp();
      release(q_empty + 8 * qs);
    }
  }
  last_turn(wg);
}
