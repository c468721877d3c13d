// Sums over time of [batch, time, channel]. A block takes 64 channels of a chunk of one item's time: 32 lanes
// with two channels each, eight warps with every eighth time step. The chunks are added in a second pass, so the
// order is fixed.
#define WARPS 8

__device__ __forceinline__ void load2(const float* p, float v[2]) {
  float2 q = *reinterpret_cast<const float2*>(p);
  v[0] = q.x; v[1] = q.y;
}
__device__ __forceinline__ void load2(const bf16* p, float v[2]) {
  u32 q = *reinterpret_cast<const u32*>(p);
  v[0] = low_bf16(q); v[1] = high_bf16(q);
}
// Two neighbours, or one at an end or if rows are not aligned to pairs.
template <typename T>
__device__ __forceinline__ void pair(const T* p, float v[2], bool aligned, bool both) {
  if (aligned) return load2(p, v);
  v[0] = to_f32(p[0]);
  v[1] = both ? to_f32(p[1]) : 0.f;
}

// parts[b][s] = the sum of x (times y if given) over chunk s of the item's time, up to its length.
template <typename T>
__device__ __forceinline__ void chunks(
    float* parts, const T* x, const T* y, const int* lengths, int time, int c, int chunk) {
  __shared__ float shared[WARPS][64];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int k = 64 * blockIdx.x + 2 * lane, b = blockIdx.z;
  int from = blockIdx.y * chunk;
  int to = min(from + chunk, lengths ? min(time, lengths[b]) : time);
  bool aligned = c % 2 == 0, both = k + 1 < c;
  float sum[2] = {0.f, 0.f};
  if (k < c) {
    i64 at = ((i64)b * time + from + warp) * c + k;
#pragma unroll 4
    for (int t = from + warp; t < to; t += WARPS, at += (i64)WARPS * c) {
      float v[2], w[2];
      pair(x + at, v, aligned, both);
      if (y) {
        pair(y + at, w, aligned, both);
        v[0] *= w[0];
        v[1] *= w[1];
      }
      sum[0] += v[0];
      sum[1] += v[1];
    }
  }
  shared[warp][2 * lane] = sum[0];
  shared[warp][2 * lane + 1] = sum[1];
  __syncthreads();
  if (threadIdx.x < 64 && 64 * blockIdx.x + threadIdx.x < c) {
    float all = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) all += shared[w][threadIdx.x];
    parts[((i64)b * gridDim.y + blockIdx.y) * c + 64 * blockIdx.x + threadIdx.x] = all;
  }
}

// out[b, c] = base + the sum of the chunks, divided by the item's length for a mean.
template <typename T>
__device__ __forceinline__ void together(
    T* out, const T* base, const float* parts, const int* lengths, int time, int c, int count, int n, int mean) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int b = i / c, k = i - b * c;
  float sum = 0.f;
  for (int s = 0; s < count; ++s) sum += parts[((i64)b * count + s) * c + k];
  if (mean) sum /= max(1, lengths ? min(time, lengths[b]) : time);
  store(out + i, sum + (base ? to_f32(base[i]) : 0.f));
}

// The gradient of a mean over time: every time step within the item's length gets its share.
template <typename T>
__device__ __forceinline__ void spread(
    T* dx, const T* base, const T* dy, const int* lengths, int time, int c, i64 n) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  if (c % 8 == 0) {
    i64 row = quotient(i, c);
    int b = (int)quotient(row, time), t = (int)(row - (i64)b * time), length = lengths ? min(time, lengths[b]) : time;
    float v[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
    if (t < length) {
      load8(dy + (i64)b * c + (i - row * c), v);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] /= length;
    }
    if (base) {
      float w[8];
      load8(base + i, w);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += w[j];
    }
    store8(dx + i, v);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, n); i < end; ++i) {
    i64 row = quotient(i, c);
    int b = (int)quotient(row, time), t = (int)(row - (i64)b * time), length = lengths ? min(time, lengths[b]) : time;
    float v = t < length ? to_f32(dy[(i64)b * c + (i - row * c)]) / length : 0.f;
    store(dx + i, v + (base ? to_f32(base[i]) : 0.f));
  }
}

#define KERNELS(T) \
  extern "C" __global__ void time_sum_chunks_##T( \
      float* parts, const T* x, const T* y, const int* lengths, int time, int c, int chunk) { \
    enter(); \
    chunks(parts, x, y, lengths, time, c, chunk); \
  } \
  extern "C" __global__ void time_sum_together_##T( \
      T* out, const T* base, const float* parts, const int* lengths, int time, int c, int count, int n, int mean) { \
    enter(); \
    together(out, base, parts, lengths, time, c, count, n, mean); \
  } \
  extern "C" __global__ void time_mean_backward_##T( \
      T* dx, const T* base, const T* dy, const int* lengths, int time, int c, i64 n) { \
    enter(); \
    spread(dx, base, dy, lengths, time, c, n); \
  }
KERNELS(f32)
KERNELS(bf16)
