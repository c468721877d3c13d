// Attention of one row per slot to the cached keys and values of its slot. Keys are cut into chunks of 128, whatever
// the batch. Three kernels cover the batch sizes:
//
//   decode_attend          few rows: a block per chunk; partial results go to memory and are merged by decode_merge,
//                          or by the product that reads them
//   decode_attend_whole    many rows: a block per head runs through all chunks and merges them
//   decode_attend_streams  many rows, heads of 32 or 64 channels: as above, but each warp has every fourth chunk and
//                          prefetches its tiles, so that warps wait for each other only once
//
// All three give the same bits for the partial result of a chunk and merge them in chunk order, so the result does
// not depend on the batch size. The first two share `part_of`; `attend_streams` repeats its two passages (scores, then
// weighted values) because one warp, not a block, holds the tiles. A change to one must be made in the other.
//
// Keys are stored [slot][head][row][channel]; values likewise, but for heads of 32 channels or more
// [slot][head][tile][channel][row of the tile]. Scores are exponents of two: queries are scaled accordingly.
#define BLOCK 256
#define WARPS (BLOCK / 32)

// Shared memory the warps of a block exchange results through.
template <int SIZE>
struct Shared {
  float most[WARPS], sum[WARPS], result[WARPS][SIZE], weights[WARPS][16];
};

// Keys and values of a chunk, as held by a thread.
template <int SIZE>
struct Held {
  static constexpr int LANES = SIZE / 8, GROUPS = BLOCK / LANES;
  static constexpr int PASSES = GROUPS >= CHUNK ? 1 : CHUNK / GROUPS;
  // For small heads LANES threads share a row. For others lane 4 n + q has channels 32 c + 8 q .. of keys n and n +
  // 8 of its warp's 16, and rows 4 q .. 4 q + 3 of the values of channels 16 m + n and 16 m + n + 8.
  static constexpr bool TILES = SIZE >= TURNED;
  uint4 k[TILES ? SIZE / 16 : PASSES];
  uint4 v[TILES ? SIZE / 16 : PASSES];
};

// The query as held by a thread: for small heads its 8 channels; for others two bf16 for each channel in the first
// two columns of a product, which are added up.
template <int SIZE>
struct Query {
  u32 words[SIZE >= TURNED ? SIZE / 8 : 8];
};
template <int SIZE>
__device__ __forceinline__ void load_query(Query<SIZE>& query, const float* from) {
  int lane = threadIdx.x & 31;
  if (SIZE >= TURNED) {
    int n = lane >> 2, q = lane & 3;
#pragma unroll
    for (int c = 0; c < SIZE / 32; ++c) {
      float own[8];
      load4_fresh(from + c * 32 + q * 8, own);
      load4_fresh(from + c * 32 + q * 8 + 4, own + 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        u32 high = pack_bf16(own[2 * j], own[2 * j + 1]);
        u32 low = pack_bf16(own[2 * j] - low_bf16(high), own[2 * j + 1] - high_bf16(high));
        query.words[4 * c + j] = n == 0 ? high : n == 1 ? low : 0u;
      }
    }
  } else {
    float own[8];
    int at = (int)threadIdx.x % (SIZE / 8) * 8;
    load4_fresh(from + at, own);
    load4_fresh(from + at + 4, own + 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) query.words[j % (SIZE >= TURNED ? SIZE / 8 : 8)] = __float_as_uint(own[j]);
  }
}

__device__ __forceinline__ uint2 load2_fresh(const void* p) {
  uint2 v;
  asm volatile("ld.global.cg.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

// Loads rows `from` .. `end` of the chunk; a second call may load the rest.
template <int SIZE>
__device__ __forceinline__ void load_chunk(
    Held<SIZE>& h, const bf16* keys, const bf16* values, int start, int from, int end) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (Held<SIZE>::TILES) {
    int n = lane >> 2, q = lane & 3, tile = start + warp * 16;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int at = tile + n + 8 * i;
      if (at >= from && at < end)
#pragma unroll
        for (int c = 0; c < SIZE / 32; ++c)
          h.k[2 * c + i] = load_fresh((const void*)(keys + (i64)at * SIZE + c * 32 + q * 8));
    }
    // Four rows at a time: they are loaded once the last of them has been written.
    int at = tile + 4 * q, last = min(at + 3, end - 1);
    if (at < end && last >= from)
#pragma unroll
      for (int m = 0; m < SIZE / 16; ++m) {
        const bf16* p = values + (i64)tile * SIZE + (m * 16 + n) * TILE + at - tile;
        uint2 low = load2_fresh(p), high = load2_fresh(p + 8 * TILE);
        h.v[m] = make_uint4(low.x, high.x, low.y, high.y);
      }
  } else {
    int group = threadIdx.x / Held<SIZE>::LANES, own = threadIdx.x - group * Held<SIZE>::LANES;
#pragma unroll
    for (int p = 0; p < Held<SIZE>::PASSES; ++p) {
      int offset = group + p * Held<SIZE>::GROUPS, at = start + offset;
      if (offset < CHUNK && at >= from && at < end) {
        h.k[p] = load_fresh((const void*)(keys + (i64)at * SIZE + own * 8));
        h.v[p] = load_fresh((const void*)(values + (i64)at * SIZE + own * 8));
      }
    }
  }
}

// The partial result of a chunk whose rows end at `count`: thread c < SIZE returns the sum of channel c, the last
// thread the sum of weights, all of them the maximum score. Contains a block barrier before `shared` is written, so
// `shared` may be reused after it returns.
template <int SIZE>
__device__ __forceinline__ float part_of(
    Held<SIZE>& h, const Query<SIZE>& query, Shared<SIZE>& shared, int start, int count, float& most) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  most = -INF;
  float sum = 0.f;
  if (Held<SIZE>::TILES) {
#if __CUDA_ARCH__ >= 800
    int n = lane >> 2, q = lane & 3, tile = start + warp * 16;
    float score[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int c = 0; c < SIZE / 32; ++c) {
      const uint4 &l = h.k[2 * c], &u = h.k[2 * c + 1];
      const u32* b = query.words + 4 * c;
      mma(score, l.x, u.x, l.y, u.y, b[0], b[1]);
      mma(score, l.z, u.z, l.w, u.w, b[2], b[3]);
    }
    // Lanes with q = 0 have the scores of rows n and n + 8.
    float s0 = q == 0 && tile + n < count ? score[0] + score[1] : -INF;
    float s1 = q == 0 && tile + n + 8 < count ? score[2] + score[3] : -INF;
    most = warp_max(fmaxf(s0, s1));
    if (lane == 0) shared.most[warp] = most;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; ++i) most = fmaxf(most, shared.most[i]);
    float e0 = exp2f(s0 - most), e1 = exp2f(s1 - most);
    sum = warp_sum(e0 + e1);
    if (q == 0) {
      shared.weights[warp][n] = e0;
      shared.weights[warp][n + 8] = e1;
    }
    __syncwarp();
    float e[4];
    load4(&shared.weights[warp][4 * q], e);
    u32 b[2], mask[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      u32 high = pack_bf16(e[2 * j], e[2 * j + 1]);
      u32 low = pack_bf16(e[2 * j] - low_bf16(high), e[2 * j + 1] - high_bf16(high));
      b[j] = n == 0 ? high : n == 1 ? low : 0u;
      // Memory after the last row may hold NaN.
      int at = tile + 4 * q + 2 * j;
      mask[j] = (at < count ? 0xffffu : 0u) | (at + 1 < count ? 0xffff0000u : 0u);
    }
#pragma unroll
    for (int m = 0; m < SIZE / 16; ++m) {
      float y[4] = {0.f, 0.f, 0.f, 0.f};
      const uint4& v = h.v[m];
      mma(y, v.x & mask[0], v.y & mask[0], v.z & mask[1], v.w & mask[1], b[0], b[1]);
      if (q == 0) {
        shared.result[warp][m * 16 + n] = y[0] + y[1];
        shared.result[warp][m * 16 + n + 8] = y[2] + y[3];
      }
    }
#endif
  } else {
    constexpr int LANES = Held<SIZE>::LANES, PASSES = Held<SIZE>::PASSES;
    int group = threadIdx.x / LANES, own = threadIdx.x - group * LANES;
    float part[8], score[PASSES];
#pragma unroll
    for (int j = 0; j < 8; ++j) part[j] = __uint_as_float(query.words[j % (SIZE >= TURNED ? SIZE / 8 : 8)]);
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
      int offset = group + p * Held<SIZE>::GROUPS;
      float c[8], s = 0.f;
      unpack(h.k[p], c);
#pragma unroll
      for (int j = 0; j < 8; ++j) s += part[j] * c[j];
#pragma unroll
      for (int o = 1; o < LANES; o <<= 1) s += __shfl_xor_sync(FULL_MASK, s, o);
      score[p] = offset < CHUNK && start + offset < count ? s : -INF;
      most = fmaxf(most, score[p]);
    }
    most = warp_max(most);
    if (lane == 0) shared.most[warp] = most;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; ++i) most = fmaxf(most, shared.most[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) part[j] = 0.f;
#pragma unroll
    for (int p = 0; p < PASSES; ++p) {
      // Memory after the last row may hold NaN.
      float e = exp2f(score[p] - most), c[8];
      if (e == 0.f) h.v[p] = make_uint4(0, 0, 0, 0);
      sum += e;
      unpack(h.v[p], c);
#pragma unroll
      for (int j = 0; j < 8; ++j) part[j] += e * c[j];
    }
#pragma unroll
    for (int o = LANES; o < 32; o <<= 1) {
      sum += __shfl_xor_sync(FULL_MASK, sum, o);
#pragma unroll
      for (int j = 0; j < 8; ++j) part[j] += __shfl_xor_sync(FULL_MASK, part[j], o);
    }
    if (lane < LANES)
#pragma unroll
      for (int j = 0; j < 8; ++j) shared.result[warp][own * 8 + j] = part[j];
  }
  if (lane == 0) shared.sum[warp] = sum;
  __syncthreads();
  float y = 0.f;
  if (threadIdx.x < SIZE) {
#pragma unroll
    for (int i = 0; i < WARPS; ++i) y += shared.result[i][threadIdx.x];
  } else if (threadIdx.x == BLOCK - 1) {
#pragma unroll
    for (int i = 0; i < WARPS; ++i) y += shared.sum[i];
  }
  return y;
}

// One chunk per block.
template <int SIZE>
__device__ __forceinline__ void attend(
    const Row* rows, const float* queries, const bf16* keys, const bf16* values, float* parts, float* weights,
    int heads, int room, int chunks) {
  __shared__ Shared<SIZE> shared;
  int chunk = blockIdx.x, head = blockIdx.y, row = blockIdx.z;
  // The row state changes at the end of a step, at least two kernels ago: it and the keys of earlier steps may be
  // read before the previous kernel has finished.
  Row state = load_row_state(rows + row);
  int count = is_active(state) && state.position < room ? state.position + 1 : 0, start = chunk * CHUNK;
  if (start >= count) {
    enter();
    return;
  }
  i64 base = ((i64)state.slot * heads + head) * room * SIZE;
  Held<SIZE> held = {};
  load_chunk<SIZE>(held, keys + base, values + base, start, 0, min(count, state.fresh));
  enter();
  load_chunk<SIZE>(held, keys + base, values + base, start, state.fresh, count);
  float most;
  Query<SIZE> query;
  load_query<SIZE>(query, queries + ((i64)row * heads + head) * SIZE);
  float y = part_of<SIZE>(held, query, shared, start, count, most);
  i64 part = ((i64)row * heads + head) * chunks + chunk;
  if (threadIdx.x < SIZE) parts[part * SIZE + threadIdx.x] = y;
  if (threadIdx.x == BLOCK - 1) {
    weights[part * 2] = most;
    weights[part * 2 + 1] = y;
  }
}

// All chunks in one block, which merges them: for batches of many rows.
template <int SIZE>
__device__ __forceinline__ void attend_whole(
    const Row* rows, const float* queries, const bf16* keys, const bf16* values, bf16* out, int heads, int room,
    int stride) {
  __shared__ Shared<SIZE> shared;
  __shared__ float parts[32][SIZE], greatest[32], sums[32];
  int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x & 31;
  let_next_in();
  Row state = load_row_state(rows + row);
  int count = is_active(state) && state.position < room ? state.position + 1 : 0;
  if (count == 0) {
    wait_for_last();
    return;
  }
  i64 base = ((i64)state.slot * heads + head) * room * SIZE;
  const bf16 *k = keys + base, *v = values + base;
  Held<SIZE> held = {};
  load_chunk<SIZE>(held, k, v, 0, 0, min(count, state.fresh));
  wait_for_last();
  load_chunk<SIZE>(held, k, v, 0, state.fresh, count);
  Query<SIZE> query;
  load_query<SIZE>(query, queries + ((i64)row * heads + head) * SIZE);
  int chunks = (count + CHUNK - 1) / CHUNK;
  for (int s = 0; s < chunks; ++s) {
    Held<SIZE> next = {};
    if (s + 1 < chunks) load_chunk<SIZE>(next, k, v, (s + 1) * CHUNK, 0, count);
    float most, y = part_of<SIZE>(held, query, shared, s * CHUNK, count, most);
    if (threadIdx.x < SIZE) parts[s][threadIdx.x] = y;
    if (threadIdx.x == BLOCK - 1) {
      greatest[s] = most;
      sums[s] = y;
    }
    held = next;
  }
  __syncthreads();
  int c = threadIdx.x;
  if (c >= SIZE && c >= 32) return;
  float scale, y = 0.f;
  float e = part_weight(lane < chunks ? greatest[lane] : -INF, lane < chunks ? sums[lane] : 0.f, scale);
  for (int s = 0; s < chunks; ++s) {
    float f = __shfl_sync(FULL_MASK, e, s);
    if (c < SIZE) y = __fmaf_rn(f, parts[s][c], y);
  }
  if (c < SIZE) out[(i64)row * stride + head * SIZE + c] = to_bf16(y * scale);
}

// A tile of 16 rows, of keys or of values, as held by a thread: lanes as in `Held`.
template <int SIZE>
struct Rows16 {
  uint4 words[SIZE / 16];
};
template <int SIZE>
__device__ __forceinline__ void load_keys(Rows16<SIZE>& to, const bf16* keys, int tile, int from, int end) {
  int lane = threadIdx.x & 31, n = lane >> 2, q = lane & 3;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int at = tile + n + 8 * i;
    if (at >= from && at < end)
#pragma unroll
      for (int c = 0; c < SIZE / 32; ++c)
        to.words[2 * c + i] = load_fresh((const void*)(keys + (i64)at * SIZE + c * 32 + q * 8));
  }
}
template <int SIZE>
__device__ __forceinline__ void load_values(Rows16<SIZE>& to, const bf16* values, int tile, int end) {
  int lane = threadIdx.x & 31, n = lane >> 2, q = lane & 3;
  if (tile + 4 * q < end)
#pragma unroll
    for (int m = 0; m < SIZE / 16; ++m) {
      const bf16* p = values + (i64)tile * SIZE + (m * 16 + n) * TILE + 4 * q;
      uint2 low = load2_fresh(p), high = load2_fresh(p + 8 * TILE);
      to.words[m] = make_uint4(low.x, high.x, low.y, high.y);
    }
}

// All chunks in one block, every fourth of them in one warp: the warps wait for each other once, at the end. Two
// tiles are loaded while the two before them are computed, the value tiles after the key tiles.
#define STREAMS 4
#define TOGETHER 2
#define TILES_PER_CHUNK (CHUNK / TILE)
template <int SIZE>
__device__ __forceinline__ void attend_streams(
    const Row* rows, const float* queries, const bf16* keys, const bf16* values, bf16* out, int heads, int room,
    int stride) {
#if __CUDA_ARCH__ >= 800
  __shared__ float parts[32][SIZE], greatest[32], sums[32];
  __shared__ __align__(16) float weights[STREAMS][CHUNK];
  int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int n = lane >> 2, q = lane & 3;
  let_next_in();
  Row state = load_row_state(rows + row);
  int count = is_active(state) && state.position < room ? state.position + 1 : 0;
  if (count == 0) {
    wait_for_last();
    return;
  }
  i64 base = ((i64)state.slot * heads + head) * room * SIZE;
  const bf16 *k = keys + base, *v = values + base;
  Rows16<SIZE> tiles[2][TOGETHER] = {};
#pragma unroll
  for (int j = 0; j < TOGETHER; ++j)
    load_keys<SIZE>(tiles[0][j], k, warp * CHUNK + j * TILE, 0, min(count, state.fresh));
  wait_for_last();
#pragma unroll
  for (int j = 0; j < TOGETHER; ++j)
    load_keys<SIZE>(tiles[0][j], k, warp * CHUNK + j * TILE, state.fresh, count);
  Query<SIZE> query;
  load_query<SIZE>(query, queries + ((i64)row * heads + head) * SIZE);
  int chunks = (count + CHUNK - 1) / CHUNK;
  for (int s = warp; s < chunks; s += STREAMS) {
    int start = s * CHUNK;
    float score[TILES_PER_CHUNK][2], y[SIZE / 16][2], most = -INF, sum = 0.f;
#pragma unroll
    for (int m = 0; m < SIZE / 16; ++m) y[m][0] = y[m][1] = 0.f;
#pragma unroll
    for (int i = 0; i < 2 * TILES_PER_CHUNK; ++i) {
      const Rows16<SIZE>& own = tiles[i / TOGETHER & 1][i % TOGETHER];
      int t = i % TILES_PER_CHUNK, tile = start + t * TILE;
      if (i % TOGETHER == 0)
#pragma unroll
        for (int j = i + TOGETHER; j < i + 2 * TOGETHER; ++j) {
          Rows16<SIZE>& next = tiles[j / TOGETHER & 1][j % TOGETHER];
          int at = start + j % TILES_PER_CHUNK * TILE;
          if (j < TILES_PER_CHUNK) load_keys<SIZE>(next, k, at, 0, count);
          else if (j < 2 * TILES_PER_CHUNK) load_values<SIZE>(next, v, at, count);
          else load_keys<SIZE>(next, k, at + STREAMS * CHUNK, 0, count);
        }
      if (i < TILES_PER_CHUNK) {
        float both[4] = {0.f, 0.f, 0.f, 0.f};
        if (tile < count)
#pragma unroll
          for (int c = 0; c < SIZE / 32; ++c) {
            const uint4 &l = own.words[2 * c], &u = own.words[2 * c + 1];
            const u32* b = query.words + 4 * c;
            mma(both, l.x, u.x, l.y, u.y, b[0], b[1]);
            mma(both, l.z, u.z, l.w, u.w, b[2], b[3]);
          }
        // Lanes with q = 0 have the scores of rows n and n + 8.
        score[t][0] = q == 0 && tile + n < count ? both[0] + both[1] : -INF;
        score[t][1] = q == 0 && tile + n + 8 < count ? both[2] + both[3] : -INF;
        most = fmaxf(most, fmaxf(score[t][0], score[t][1]));
        if (i + 1 < TILES_PER_CHUNK) continue;
        most = warp_max(most);
        __syncwarp();
#pragma unroll
        for (int j = 0; j < TILES_PER_CHUNK; ++j) {
          float e0 = exp2f(score[j][0] - most), e1 = exp2f(score[j][1] - most), both_e = e0 + e1;
          // The other lanes have zero, so a sum over all lanes gives the same bits.
#pragma unroll
          for (int o = 16; o > 2; o >>= 1) both_e += __shfl_xor_sync(FULL_MASK, both_e, o);
          sum += both_e;
          if (q == 0) {
            weights[warp][j * TILE + n] = e0;
            weights[warp][j * TILE + n + 8] = e1;
          }
        }
        __syncwarp();
      } else if (tile < count) {
        float e[4];
        load4(&weights[warp][t * TILE + 4 * q], e);
        u32 b[2], mask[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          u32 high = pack_bf16(e[2 * j], e[2 * j + 1]);
          u32 low = pack_bf16(e[2 * j] - low_bf16(high), e[2 * j + 1] - high_bf16(high));
          b[j] = n == 0 ? high : n == 1 ? low : 0u;
          // Memory after the last row may hold NaN.
          int at = tile + 4 * q + 2 * j;
          mask[j] = (at < count ? 0xffffu : 0u) | (at + 1 < count ? 0xffff0000u : 0u);
        }
#pragma unroll
        for (int m = 0; m < SIZE / 16; ++m) {
          float made[4] = {0.f, 0.f, 0.f, 0.f};
          const uint4& w = own.words[m];
          mma(made, w.x & mask[0], w.y & mask[0], w.z & mask[1], w.w & mask[1], b[0], b[1]);
          y[m][0] += made[0] + made[1];
          y[m][1] += made[2] + made[3];
        }
      }
    }
    if (q == 0)
#pragma unroll
      for (int m = 0; m < SIZE / 16; ++m) {
        parts[s][m * 16 + n] = y[m][0];
        parts[s][m * 16 + n + 8] = y[m][1];
      }
    if (lane == 0) {
      greatest[s] = most;
      sums[s] = sum;
    }
  }
  __syncthreads();
  int c = threadIdx.x;
  if (c >= SIZE) return;
  float scale, all = 0.f;
  float e = part_weight(lane < chunks ? greatest[lane] : -INF, lane < chunks ? sums[lane] : 0.f, scale);
  for (int s = 0; s < chunks; ++s) all = __fmaf_rn(__shfl_sync(FULL_MASK, e, s), parts[s][c], all);
  out[(i64)row * stride + head * SIZE + c] = to_bf16(all * scale);
#endif
}

#define STREAMED(SIZE) \
  extern "C" __global__ void __launch_bounds__(128, 4) decode_attend_streams_##SIZE( \
      const Row* rows, const float* queries, const bf16* keys, const bf16* values, bf16* out, int heads, int room, \
      int stride) { \
    enter_later(); \
    attend_streams<SIZE>(rows, queries, keys, values, out, heads, room, stride); \
  }
STREAMED(32)
STREAMED(64)

#define KERNEL(SIZE) \
  extern "C" __global__ void __launch_bounds__(256) decode_attend_##SIZE( \
      const Row* rows, const float* queries, const bf16* keys, const bf16* values, float* parts, float* weights, \
      int heads, int room, int chunks) { \
    enter_later(); \
    attend<SIZE>(rows, queries, keys, values, parts, weights, heads, room, chunks); \
  } \
  extern "C" __global__ void __launch_bounds__(256, SIZE > 64 ? 1 : 3) decode_attend_whole_##SIZE( \
      const Row* rows, const float* queries, const bf16* keys, const bf16* values, bf16* out, int heads, int room, \
      int stride) { \
    enter_later(); \
    attend_whole<SIZE>(rows, queries, keys, values, out, heads, room, stride); \
  }
KERNEL(8)
KERNEL(16)
KERNEL(32)
KERNEL(64)
KERNEL(128)

// Merges the partial results of a head, one warp per head.
extern "C" __global__ void decode_merge(
    const Row* rows, const float* parts, const float* weights, bf16* out, int heads, int size, int room,
    int chunks, int stride) {
  enter();
  int lane = threadIdx.x & 31, head = blockIdx.x * 4 + (threadIdx.x >> 5), row = blockIdx.y;
  Row state = load_row_state(rows + row);
  if (head >= heads || !is_active(state) || state.position >= room) return;
  int count = state.position / CHUNK + 1;
  i64 part = ((i64)row * heads + head) * chunks;
  float most = lane < count ? load_fresh(weights + (part + lane) * 2) : -INF;
  float sum = lane < count ? load_fresh(weights + (part + lane) * 2 + 1) : 0.f;
  float scale, e = part_weight(most, sum, scale);
  for (int start = 0; start < size; start += 32) {
    int c = start + lane;
    float y = 0.f;
#pragma unroll 4
    for (int s = 0; s < count; ++s) {
      float f = __shfl_sync(FULL_MASK, e, s);
      if (c < size) y = __fmaf_rn(f, load_fresh(parts + (part + s) * size + c), y);
    }
    if (c < size) out[(i64)row * stride + head * size + c] = to_bf16(y * scale);
  }
}
