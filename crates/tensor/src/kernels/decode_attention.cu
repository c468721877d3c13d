// Attention of one row per slot to the keys and values of its slot, which lie [slot][head][row][channel]. Rows are cut
// into stretches, whatever the batch: a block makes the part of one stretch, of one head, of one row of the batch, and the
// parts are merged in the order of the stretches. Scores are in powers of two: queries are scaled for it.
#define BLOCK 256
#define WARPS (BLOCK / 32)

// LANES threads have a row of 8 LANES channels.
template <int LANES>
__device__ __forceinline__ void attend(
    const Row* rows, const float* queries, const bf16* keys, const bf16* values, float* parts, float* weights,
    int heads, int room, int stretches) {
  constexpr int SIZE = 8 * LANES, GROUPS = BLOCK / LANES, PASSES = GROUPS >= STRETCH ? 1 : STRETCH / GROUPS;
  __shared__ float most_of[WARPS], sum_of[WARPS], shared[WARPS][SIZE];
  int stretch = blockIdx.x, head = blockIdx.y, row = blockIdx.z;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int group = threadIdx.x / LANES, own = threadIdx.x - group * LANES;
  // The state of rows changes at the end of a step, two kernels ago at least: it and keys of earlier steps may be read
  // before the kernel ahead is over.
  Row state = load_row_state(rows + row);
  int count = is_active(state) && state.position < room ? state.position + 1 : 0;
  int start = stretch * STRETCH;
  if (start >= count) {
    enter();
    return;
  }
  i64 base = ((i64)state.slot * heads + head) * room;
  uint4 k[PASSES], v[PASSES];
#pragma unroll
  for (int p = 0; p < PASSES; ++p) {
    int offset = group + p * GROUPS, at = start + offset;
    k[p] = v[p] = make_uint4(0, 0, 0, 0);
    if (offset < STRETCH && at < min(count, state.fresh)) {
      k[p] = load_fresh((const void*)(keys + (base + at) * SIZE + own * 8));
      v[p] = load_fresh((const void*)(values + (base + at) * SIZE + own * 8));
    }
  }
  enter();
#pragma unroll
  for (int p = 0; p < PASSES; ++p) {
    int offset = group + p * GROUPS, at = start + offset;
    if (offset < STRETCH && at < count && at >= state.fresh) {
      k[p] = load_fresh((const void*)(keys + (base + at) * SIZE + own * 8));
      v[p] = load_fresh((const void*)(values + (base + at) * SIZE + own * 8));
    }
  }
  float query[8];
  const float* q = queries + ((i64)row * heads + head) * SIZE + own * 8;
  load4_fresh(q, query);
  load4_fresh(q + 4, query + 4);
  float score[PASSES], most = -INF;
#pragma unroll
  for (int p = 0; p < PASSES; ++p) {
    int offset = group + p * GROUPS;
    float c[8], s = 0.f;
    unpack(k[p], c);
#pragma unroll
    for (int j = 0; j < 8; ++j) s += query[j] * c[j];
#pragma unroll
    for (int o = 1; o < LANES; o <<= 1) s += __shfl_xor_sync(FULL_MASK, s, o);
    score[p] = offset < STRETCH && start + offset < count ? s : -INF;
    most = fmaxf(most, score[p]);
  }
  most = warp_max(most);
  if (lane == 0) most_of[warp] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < WARPS; ++i) most = fmaxf(most, most_of[i]);
  float sum = 0.f, result[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) result[j] = 0.f;
#pragma unroll
  for (int p = 0; p < PASSES; ++p) {
    float e = exp2f(score[p] - most), c[8];
    sum += e;
    unpack(v[p], c);
#pragma unroll
    for (int j = 0; j < 8; ++j) result[j] += e * c[j];
  }
#pragma unroll
  for (int o = LANES; o < 32; o <<= 1) {
    sum += __shfl_xor_sync(FULL_MASK, sum, o);
#pragma unroll
    for (int j = 0; j < 8; ++j) result[j] += __shfl_xor_sync(FULL_MASK, result[j], o);
  }
  if (lane == 0) sum_of[warp] = sum;
  if (lane < LANES)
#pragma unroll
    for (int j = 0; j < 8; ++j) shared[warp][own * 8 + j] = result[j];
  __syncthreads();
  i64 part = ((i64)row * heads + head) * stretches + stretch;
  int c = threadIdx.x;
  if (c < SIZE) {
    float y = 0.f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i) y += shared[i][c];
    parts[part * SIZE + c] = y;
  }
  if (threadIdx.x == BLOCK - 1) {
    float y = 0.f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i) y += sum_of[i];
    weights[part * 2] = most;
    weights[part * 2 + 1] = y;
  }
}

#define KERNEL(LANES) \
  extern "C" __global__ void decode_attend_##LANES( \
      const Row* rows, const float* queries, const bf16* keys, const bf16* values, float* parts, float* weights, \
      int heads, int room, int stretches) { \
    enter_later(); \
    attend<LANES>(rows, queries, keys, values, parts, weights, heads, room, stretches); \
  }
KERNEL(1)
KERNEL(2)
KERNEL(4)
KERNEL(8)
KERNEL(16)

// The parts of a head together, a warp to each.
extern "C" __global__ void decode_merge(
    const Row* rows, const float* parts, const float* weights, bf16* out, int heads, int size, int room,
    int stretches, int stride) {
  enter();
  int lane = threadIdx.x & 31, head = blockIdx.x * 4 + (threadIdx.x >> 5), row = blockIdx.y;
  Row state = load_row_state(rows + row);
  if (head >= heads || !is_active(state) || state.position >= room) return;
  int count = state.position / STRETCH + 1;
  i64 part = ((i64)row * heads + head) * stretches;
  float scale, e = part_weight(weights, part, count, scale);
  for (int start = 0; start < size; start += 32) {
    int c = start + lane;
    float y = 0.f;
#pragma unroll 4
    for (int s = 0; s < count; ++s) {
      float f = __shfl_sync(FULL_MASK, e, s);
      if (c < size) y += f * load_fresh(parts + (part + s) * size + c);
    }
    if (c < size) out[(i64)row * stride + head * size + c] = to_bf16(y * scale);
  }
}
