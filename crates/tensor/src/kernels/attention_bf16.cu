// Attention in bf16 on tensor cores: head size 64 or 32, 4 warps, each owning 16 * MT rows; streamed tiles of 64
// rows. Every pointer must be aligned to 16 bytes and every stride must be a multiple of 8 elements.
#if __CUDA_ARCH__ >= 800
template <int D, int MT, int NT>
__device__ __forceinline__ void forward(View<const bf16> q, View<const bf16> k, View<const bf16> v, View<bf16> o,
                                        float* lse, const int* key_lengths, const int* key_mask, int batches,
                                        int heads, int tq, int tk, bool causal, float scale) {
  constexpr int ROWS = 64 * MT, WIDTH = 8 * NT, TILE_BYTES = TILE * D * 2;
  int lane = threadIdx.x & 31, shift = tk - tq;
  Place place = find_place((tq + ROWS - 1) / ROWS, heads, batches, causal);
  int slot = find_slot(place.tile), first_row = place.tile * ROWS, own = first_row + slot * 16 * MT;
  int keys = count_keys(key_lengths, place.batch, tk);
  if (causal) keys = min(keys, min(first_row + ROWS, tq) + shift);
  int own_keys = own >= tq ? 0 : causal ? min(keys, own + 16 * MT + shift) : keys;
  int tiles = max(0, keys + TILE - 1) / TILE;
  const int* mask = key_mask ? key_mask + (i64)place.batch * tk : nullptr;
  const bf16* from_k = k.at(place.batch, place.head);
  const bf16* from_v = v.at(place.batch, place.head);
  u32 queries = shared_address(shared_memory), stages = queries + ROWS * D * 2;
  u32 by_rows = lane_by_rows<D>(), by_chunks = lane_by_chunks<D>();

  load_tile<D, ROWS>(queries, q.at(place.batch, place.head), q.time, first_row, tq);
  if (tiles) {
    load_tile<D, TILE>(stages, from_k, k.time, 0, keys);
    load_tile<D, TILE>(stages + TILE_BYTES, from_v, v.time, 0, keys);
  }
  await_copies();
  __syncthreads();
  u32 query[MT][D / 16][4];
  load_fragments<D, MT>(query, queries + slot * MT * 32 * D, by_rows);

  float acc[MT][D / 8][4] = {}, top[MT][2], sum[MT][2] = {};
#pragma unroll
  for (int m = 0; m < MT; ++m) top[m][0] = top[m][1] = -INF;
  // Exponents are relative to a maximum that may lag behind the true one by 8 binary orders: sums stay far from
  // overflow, and the accumulators are rescaled a few times per row instead of once per tile.
  float factor = scale * LOG2E, slack = __fdividef(8.f, factor);

  for (int i = 0; i < tiles; ++i) {
    if (i) { await_copies(); __syncthreads(); }
    if (i + 1 < tiles) {
      u32 next = stages + ((i + 1) & 1) * 2 * TILE_BYTES;
      load_tile<D, TILE>(next, from_k, k.time, (i + 1) * TILE, keys);
      load_tile<D, TILE>(next + TILE_BYTES, from_v, v.time, (i + 1) * TILE, keys);
    }
#pragma unroll 1
    for (int part = 0; part < TILE; part += WIDTH) {
      int first = i * TILE + part;
      if (first >= own_keys) break;
      u32 tile = stages + (i & 1) * 2 * TILE_BYTES + part * D * 2, seen[NT / 4];
      bool whole = !causal || first + WIDTH - 1 <= own + shift;
#pragma unroll
      for (int word = 0; word < NT / 4; ++word) {
        seen[word] = seen_keys(mask, first + 32 * word, keys);
        whole = whole && seen[word] == FULL_MASK;
      }
      float s[MT][NT][4] = {};
      add_scores<D, MT, NT>(s, query, tile, by_chunks);
      if (!whole)
        hide<MT, NT>(s, [&](int row, int word) {
          return seen[word] & (causal ? bits_through(own + row + shift - first - 32 * word) : FULL_MASK);
        });

      float high[MT][2];
      bool grows = false;
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float x = fmaxf(s[m][0][2 * half], s[m][0][2 * half + 1]);
#pragma unroll
          for (int n = 1; n < NT; ++n) x = fmaxf(x, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
          high[m][half] = x;
          grows = grows || x > top[m][half] + slack;
        }
      if (__any_sync(FULL_MASK, grows)) {
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float x = fmaxf(high[m][half], __shfl_xor_sync(FULL_MASK, high[m][half], 1));
            x = fmaxf(fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 2)), top[m][half]);
            // If both maxima are still -INF, their difference would be NaN; the accumulators are 0 there whatever
            // the ratio.
            float ratio = x == -INF ? 1.f : fast_exp2((top[m][half] - x) * factor);
            top[m][half] = x;
            sum[m][half] *= ratio;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) { acc[m][n][2 * half] *= ratio; acc[m][n][2 * half + 1] *= ratio; }
          }
      }
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float base = top[m][half] == -INF ? 0.f : top[m][half] * factor;
#pragma unroll
          for (int n = 0; n < NT; ++n) {
            float x = fast_exp2(__fmul_rn(s[m][n][2 * half], factor) - base);
            float y = fast_exp2(__fmul_rn(s[m][n][2 * half + 1], factor) - base);
            sum[m][half] += x + y;
            s[m][n][2 * half] = x;
            s[m][n][2 * half + 1] = y;
          }
        }
      u32 weights[MT][NT / 2][4];
      pack_weights<MT, NT>(weights, s);
      add_weighted<D, MT, NT>(acc, weights, tile + TILE_BYTES, by_rows);
    }
  }

#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum_of_four_lanes(sum[m][half]), inverse = total == 0.f ? 0.f : __fdividef(1.f, total);
      int row = own + 16 * m + 8 * half + (lane >> 2);
      if ((lane & 3) == 0 && row < tq)
        lse[((i64)place.batch * heads + place.head) * tq + row] =
            total == 0.f ? INF : top[m][half] * factor + __log2f(total);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) { acc[m][n][2 * half] *= inverse; acc[m][n][2 * half + 1] *= inverse; }
    }
  write_rows<D, MT>(shared_memory + slot * MT * 32 * D, acc, 1.f, o.at(place.batch, place.head), o.time, own, tq);
}

template <int D, int MT, int NT>
__device__ __forceinline__ void backward_q(View<const bf16> q, View<const bf16> k, View<const bf16> v,
                                           View<const bf16> o, View<const bf16> grad, View<bf16> dq,
                                           const float* lse, float* delta, const int* key_lengths,
                                           const int* key_mask, int batches, int heads, int tq, int tk, bool causal,
                                           float scale) {
  constexpr int ROWS = 64 * MT, WIDTH = 8 * NT, TILE_BYTES = TILE * D * 2;
  int lane = threadIdx.x & 31, shift = tk - tq;
  Place place = find_place((tq + ROWS - 1) / ROWS, heads, batches, causal);
  int slot = find_slot(place.tile), first_row = place.tile * ROWS, own = first_row + slot * 16 * MT;
  int keys = count_keys(key_lengths, place.batch, tk);
  if (causal) keys = min(keys, min(first_row + ROWS, tq) + shift);
  int own_keys = own >= tq ? 0 : causal ? min(keys, own + 16 * MT + shift) : keys;
  int tiles = max(0, keys + TILE - 1) / TILE;
  const int* mask = key_mask ? key_mask + (i64)place.batch * tk : nullptr;
  const bf16* from_k = k.at(place.batch, place.head);
  const bf16* from_v = v.at(place.batch, place.head);
  u32 queries = shared_address(shared_memory), grads = queries + ROWS * D * 2, stages = grads + ROWS * D * 2;
  u32 outputs = stages + 2 * TILE_BYTES;  // uses the second stage until the first tile is processed
  u32 by_rows = lane_by_rows<D>(), by_chunks = lane_by_chunks<D>(), warp_rows = slot * MT * 32 * D;

  load_tile<D, ROWS>(queries, q.at(place.batch, place.head), q.time, first_row, tq);
  load_tile<D, ROWS>(grads, grad.at(place.batch, place.head), grad.time, first_row, tq);
  load_tile<D, ROWS>(outputs, o.at(place.batch, place.head), o.time, first_row, tq);
  if (tiles) {
    load_tile<D, TILE>(stages, from_k, k.time, 0, keys);
    load_tile<D, TILE>(stages + TILE_BYTES, from_v, v.time, 0, keys);
  }
  await_copies();
  __syncthreads();
  u32 query[MT][D / 16][4], gradient[MT][D / 16][4];
  load_fragments<D, MT>(query, queries + warp_rows, by_rows);
  load_fragments<D, MT>(gradient, grads + warp_rows, by_rows);
  float row_lse[MT][2], row_delta[MT][2] = {};
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      u32 output[4];
      ldmatrix(output, outputs + warp_rows + m * 32 * D + (by_rows ^ (n << 5)));
#pragma unroll
      for (int r = 0; r < 4; ++r)
        row_delta[m][r & 1] += low_bf16(output[r]) * low_bf16(gradient[m][n][r]) +
                               high_bf16(output[r]) * high_bf16(gradient[m][n][r]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = own + 16 * m + 8 * half + (lane >> 2);
      i64 at = ((i64)place.batch * heads + place.head) * tq + row;
      row_delta[m][half] = sum_of_four_lanes(row_delta[m][half]);
      row_lse[m][half] = row < tq ? lse[at] : INF;
      if ((lane & 3) == 0 && row < tq) delta[at] = row_delta[m][half];
    }
  }
  __syncthreads();

  float acc[MT][D / 8][4] = {}, factor = scale * LOG2E;
  for (int i = 0; i < tiles; ++i) {
    if (i) { await_copies(); __syncthreads(); }
    if (i + 1 < tiles) {
      u32 next = stages + ((i + 1) & 1) * 2 * TILE_BYTES;
      load_tile<D, TILE>(next, from_k, k.time, (i + 1) * TILE, keys);
      load_tile<D, TILE>(next + TILE_BYTES, from_v, v.time, (i + 1) * TILE, keys);
    }
#pragma unroll 1
    for (int part = 0; part < TILE; part += WIDTH) {
      int first = i * TILE + part;
      if (first >= own_keys) break;
      u32 tile = stages + (i & 1) * 2 * TILE_BYTES + part * D * 2, seen[NT / 4];
      bool whole = !causal || first + WIDTH - 1 <= own + shift;
#pragma unroll
      for (int word = 0; word < NT / 4; ++word) {
        seen[word] = seen_keys(mask, first + 32 * word, keys);
        whole = whole && seen[word] == FULL_MASK;
      }
      float s[MT][NT][4] = {}, dp[MT][NT][4] = {};
      add_scores<D, MT, NT>(s, query, tile, by_chunks);
      if (!whole)
        hide<MT, NT>(s, [&](int row, int word) {
          return seen[word] & (causal ? bits_through(own + row + shift - first - 32 * word) : FULL_MASK);
        });
      // After the branch, so that the exponentials overlap with this product.
      add_scores<D, MT, NT>(dp, gradient, tile + TILE_BYTES, by_chunks);
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[m][n][e] = fast_exp2(fminf(__fmul_rn(s[m][n][e], factor) - row_lse[m][e >> 1], 0.f)) * (dp[m][n][e] - row_delta[m][e >> 1]);
      u32 weights[MT][NT / 2][4];
      pack_weights<MT, NT>(weights, s);
      add_weighted<D, MT, NT>(acc, weights, tile, by_rows);
    }
  }
  write_rows<D, MT>(shared_memory + warp_rows, acc, scale, dq.at(place.batch, place.head), dq.time, own, tq);
}

// Scores are transposed here, with keys as rows and queries as columns: weights are then the A operand of both
// sums. HOLD keeps the warp's keys and values in registers; with MT = 2 the accumulators leave no room for them.
template <int D, int MT, int NT, bool HOLD>
__device__ __forceinline__ void backward_kv(View<const bf16> q, View<const bf16> k, View<const bf16> v,
                                            View<const bf16> grad, View<bf16> dk, View<bf16> dv, const float* lse,
                                            const float* delta, const int* key_lengths, const int* key_mask,
                                            int batches, int heads, int tq, int tk, bool causal, float scale) {
  constexpr int ROWS = 64 * MT, WIDTH = 8 * NT, TILE_BYTES = TILE * D * 2, STAGE = 2 * TILE_BYTES + 2 * TILE * 4;
  constexpr u32 ALL = MT == 2 ? FULL_MASK : 0xffffu;
  int lane = threadIdx.x & 31, shift = tk - tq;
  Place place = find_place((tk + ROWS - 1) / ROWS, heads, batches, false);
  int slot = find_slot(place.tile), first_row = place.tile * ROWS, own = first_row + slot * 16 * MT;
  int keys = count_keys(key_lengths, place.batch, tk);
  u32 seen = seen_keys(key_mask ? key_mask + (i64)place.batch * tk : nullptr, own, keys) & ALL;
  int begin = causal ? max(0, first_row - shift) / TILE : 0, end = first_row < keys ? (tq + TILE - 1) / TILE : 0;
  const bf16* from_q = q.at(place.batch, place.head);
  const bf16* from_grad = grad.at(place.batch, place.head);
  u32 pair = place.batch * heads + place.head;
  u32 own_k = shared_address(shared_memory), own_v = own_k + ROWS * D * 2, stages = own_v + ROWS * D * 2;
  u32 by_rows = lane_by_rows<D>(), by_chunks = lane_by_chunks<D>(), warp_rows = slot * MT * 32 * D;

  // Rows past the last query are 0 in q, do, lse and delta: they add nothing, so they need no mask.
  auto load_stage = [&](int i) {
    u32 stage = stages + (i & 1) * STAGE;
    load_tile<D, TILE>(stage, from_q, q.time, i * TILE, tq);
    load_tile<D, TILE>(stage + TILE_BYTES, from_grad, grad.time, i * TILE, tq);
    int row = i * TILE + (threadIdx.x & (TILE - 1));
    copy4(stage + 2 * TILE_BYTES + threadIdx.x * 4,
          (threadIdx.x < TILE ? lse : delta) + (u64)pair * (u32)tq + (u32)min(row, tq - 1), row < tq);
  };
  if (begin < end) {
    load_tile<D, ROWS>(own_k, k.at(place.batch, place.head), k.time, first_row, keys);
    load_tile<D, ROWS>(own_v, v.at(place.batch, place.head), v.time, first_row, keys);
    load_stage(begin);
  }
  await_copies();
  __syncthreads();
  u32 key[HOLD ? MT : 1][D / 16][4], value[HOLD ? MT : 1][D / 16][4];
  if constexpr (HOLD) {
    load_fragments<D, MT>(key, own_k + warp_rows, by_rows);
    load_fragments<D, MT>(value, own_v + warp_rows, by_rows);
  }

  float acc_k[MT][D / 8][4] = {}, acc_v[MT][D / 8][4] = {}, factor = scale * LOG2E;
  for (int i = begin; i < end; ++i) {
    if (i > begin) { await_copies(); __syncthreads(); }
    if (i + 1 < end) load_stage(i + 1);
#pragma unroll 1
    for (int part = 0; part < TILE; part += WIDTH) {
      int first = i * TILE + part;
      if (seen == 0 || first >= tq || (causal && first + WIDTH <= own - shift)) continue;
      u32 tile = stages + (i & 1) * STAGE + part * D * 2;
      const float* columns = reinterpret_cast<const float*>(shared_memory + 2 * ROWS * D * 2 + (i & 1) * STAGE +
                                                            2 * TILE_BYTES) + part + 2 * (lane & 3);
      float s[MT][NT][4] = {}, dp[MT][NT][4] = {};
      if constexpr (HOLD)
        add_scores<D, MT, NT>(s, key, tile, by_chunks);
      else
        add_scores<D, MT, NT>(s, own_k + warp_rows, by_rows, tile, by_chunks);
      if (seen != ALL || (causal && first < own + 16 * MT - 1 - shift))
        hide<MT, NT>(s, [&](int row, int word) {
          u32 bits = causal ? ~bits_through(own + row - shift - first - 32 * word - 1) : FULL_MASK;
          return seen >> row & 1 ? bits : 0u;
        });
      if constexpr (HOLD)
        add_scores<D, MT, NT>(dp, value, tile + TILE_BYTES, by_chunks);
      else
        add_scores<D, MT, NT>(dp, own_v + warp_rows, by_rows, tile + TILE_BYTES, by_chunks);
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        float2 column_lse = *reinterpret_cast<const float2*>(columns + 8 * n);
        float2 column_delta = *reinterpret_cast<const float2*>(columns + TILE + 8 * n);
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float p = fast_exp2(fminf(__fmul_rn(s[m][n][e], factor) - (e & 1 ? column_lse.y : column_lse.x), 0.f));
            s[m][n][e] = p;
            dp[m][n][e] = p * (dp[m][n][e] - (e & 1 ? column_delta.y : column_delta.x));
          }
      }
      u32 weights[MT][NT / 2][4];
      pack_weights<MT, NT>(weights, s);
      add_weighted<D, MT, NT>(acc_v, weights, tile + TILE_BYTES, by_rows);
      pack_weights<MT, NT>(weights, dp);
      add_weighted<D, MT, NT>(acc_k, weights, tile, by_rows);
    }
  }
  write_rows<D, MT>(shared_memory + warp_rows, acc_k, scale, dk.at(place.batch, place.head), dk.time, own, tk);
  write_rows<D, MT>(shared_memory + ROWS * D * 2 + warp_rows, acc_v, 1.f, dv.at(place.batch, place.head), dv.time,
                    own, tk);
}

// Launch, with ROWS = 64 MT (128 for head size 64, 64 for 32), 128 threads, and bytes of dynamic shared memory:
//   forward      batches * heads * ceil(tq / ROWS) blocks   (ROWS + 256) * D * 2
//   backward_q   batches * heads * ceil(tq / ROWS) blocks   (2 * ROWS + 256) * D * 2
//   backward_kv  batches * heads * ceil(tk / ROWS) blocks   (2 * ROWS + 256) * D * 2 + 1024, after backward_q
// lse and delta are [batch, head, tq]; absent key_lengths [batch] and key_mask [batch, tk] are null.
#define MASKS_AND_SIZES                                                                                         \
  const int *key_lengths, const int *key_mask, int batches, int heads, int tq, int tk, int causal, float scale
#define FORWARD(NAME, D, MT, NT, BLOCKS)                                                                        \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                 \
      NAME(View<const bf16> q, View<const bf16> k, View<const bf16> v, View<bf16> o, float* lse, MASKS_AND_SIZES) { \
    enter(); \
    forward<D, MT, NT>(q, k, v, o, lse, key_lengths, key_mask, batches, heads, tq, tk, causal != 0, scale);     \
  }
#define BACKWARD_Q(NAME, D, MT, NT, BLOCKS)                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                 \
      NAME(View<const bf16> q, View<const bf16> k, View<const bf16> v, View<const bf16> o, View<const bf16> grad, \
           View<bf16> dq, const float* lse, float* delta, MASKS_AND_SIZES) {                                    \
    enter(); \
    backward_q<D, MT, NT>(q, k, v, o, grad, dq, lse, delta, key_lengths, key_mask, batches, heads, tq, tk,      \
                          causal != 0, scale);                                                                  \
  }
#define BACKWARD_KV(NAME, D, MT, NT, HOLD, BLOCKS)                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                 \
      NAME(View<const bf16> q, View<const bf16> k, View<const bf16> v, View<const bf16> grad, View<bf16> dk,    \
           View<bf16> dv, const float* lse, const float* delta, MASKS_AND_SIZES) {                              \
    enter(); \
    backward_kv<D, MT, NT, HOLD>(q, k, v, grad, dk, dv, lse, delta, key_lengths, key_mask, batches, heads, tq, tk, \
                                 causal != 0, scale);                                                           \
  }
FORWARD(attention_forward_bf16_d64, 64, 2, 8, 2)
FORWARD(attention_forward_bf16_d32, 32, 1, 8, 2)
BACKWARD_Q(attention_backward_q_bf16_d64, 64, 2, 4, 2)
BACKWARD_Q(attention_backward_q_bf16_d32, 32, 1, 4, 2)
BACKWARD_KV(attention_backward_kv_bf16_d64, 64, 2, 4, false, 2)
BACKWARD_KV(attention_backward_kv_bf16_d32, 32, 1, 4, true, 2)
// Other tile shapes of the same kernels, to be timed against those above on a new GPU.
#ifdef ATTENTION_VARIANTS
FORWARD(attention_forward_bf16_d64_m2n4, 64, 2, 4, 3)
FORWARD(attention_forward_bf16_d64_m1n8, 64, 1, 8, 4)
BACKWARD_Q(attention_backward_q_bf16_d64_m1n8, 64, 1, 8, 3)
BACKWARD_Q(attention_backward_q_bf16_d64_m1n4, 64, 1, 4, 4)
BACKWARD_KV(attention_backward_kv_bf16_d64_m1n8, 64, 1, 8, true, 2)
BACKWARD_KV(attention_backward_kv_bf16_d64_m1n4, 64, 1, 4, true, 3)
#endif
#endif  // __CUDA_ARCH__ >= 800
