// Vector quantisation. The codebook is [d][codes], as in checkpoints.

// Squared norm of every code: 32 codes per block, eight threads per code.
extern "C" __global__ void code_norms(float* norms, const float* codebook, int d, int codes) {
  enter();
  __shared__ float shared[8][32];
  int lane = threadIdx.x & 31, slice = threadIdx.x >> 5, code = blockIdx.x * 32 + lane;
  float sum = 0.f;
  if (code < codes)
    for (int i = slice; i < d; i += 8) { float e = codebook[(i64)i * codes + code]; sum += e * e; }
  shared[slice][lane] = sum;
  __syncthreads();
  if (slice || code >= codes) return;
  sum = 0.f;
#pragma unroll
  for (int s = 0; s < 8; ++s) sum += shared[s][lane];
  norms[code] = sum;
}

// The nearer code; ties go to the lower index.
__device__ __forceinline__ void nearer(float& best, int& at, float other, int other_at) {
  if (other < best || (other == best && other_at < at)) { best = other; at = other_at; }
}
// One row per block: |code|^2 - 2 x code, the distance without |x|^2, which is common to all codes.
extern "C" __global__ void code_nearest(int* ids, const float* products, const float* norms, int codes) {
  enter();
  __shared__ float bests[32];
  __shared__ int places[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  products += (i64)blockIdx.x * codes;
  float best = INF;
  int at = codes;
  for (int i = threadIdx.x; i < codes; i += blockDim.x) nearer(best, at, norms[i] - 2.f * products[i], i);
#pragma unroll
  for (int o = 16; o > 0; o >>= 1)
    nearer(best, at, __shfl_xor_sync(FULL_MASK, best, o), __shfl_xor_sync(FULL_MASK, at, o));
  if (lane == 0) { bests[warp] = best; places[warp] = at; }
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 1; w < warps; ++w) nearer(best, at, bests[w], places[w]);
  // If x is NaN, no distance is less than infinity; the id must be valid all the same.
  ids[blockIdx.x] = at < codes ? at : 0;
}

template <typename T>
__device__ __forceinline__ void rows(T* q, const int* ids, const float* codebook, i64 n, int d, int codes) {
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  i64 row = i / d;
  store(q + i, codebook[(i - row * d) * codes + ids[row]]);
}
extern "C" __global__ void code_rows_f32(f32* q, const int* ids, const float* codebook, i64 n, int d, int codes) {
  enter();
  rows(q, ids, codebook, n, d, codes);
}
extern "C" __global__ void code_rows_bf16(bf16* q, const int* ids, const float* codebook, i64 n, int d, int codes) {
  enter();
  rows(q, ids, codebook, n, d, codes);
}

// One code per block, 256 columns at a time: scans the ids in order and adds its own rows, so every sum is in row
// order.
extern "C" __global__ void code_sums(
    float* counts, float* sums, const float* x, const int* ids, int rows, int d, int codes) {
  enter();
  __shared__ u32 masks[8];
  int code = blockIdx.x, column = blockIdx.y * 256 + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float sum = 0.f;
  int count = 0;
  for (int from = 0; from < rows; from += 256) {
    int row = from + threadIdx.x;
    u32 mask = __ballot_sync(FULL_MASK, row < rows && ids[row] == code);
    if (lane == 0) masks[warp] = mask;
    __syncthreads();
    for (int w = 0; w < 8; ++w)
      for (u32 m = masks[w]; m; m &= m - 1) {
        ++count;
        if (column < d) sum += x[(i64)(from + 32 * w + __ffs(m) - 1) * d + column];
      }
    __syncthreads();
  }
  if (column < d) sums[(i64)code * d + column] = sum;
  if (column == 0) counts[code] = count;
}

// One block: the moving counts, and their sum.
extern "C" __global__ void code_counts(
    float* next, float* total, const float* old, const float* counts, int codes, float decay) {
  enter();
  __shared__ float shared[33];
  float sum = 0.f;
  for (int i = threadIdx.x; i < codes; i += blockDim.x) {
    float c = decay * old[i] + (1.f - decay) * counts[i];
    next[i] = c;
    sum += c;
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) *total = sum;
}
// The moving sums of rows, and the codes as their averages; `counts` are the moving counts.
extern "C" __global__ void code_averages(
    float* next, float* codebook, const float* old, const float* sums, const float* counts, const float* total,
    i64 n, int d, int codes, float decay, float epsilon) {
  enter();
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  i64 k = i / codes;
  int code = (int)(i - k * codes);
  float average = decay * old[i] + (1.f - decay) * sums[(i64)code * d + k];
  float all = *total, size = (counts[code] + epsilon) / (all + codes * epsilon) * all;
  next[i] = average;
  codebook[i] = average / size;
}
