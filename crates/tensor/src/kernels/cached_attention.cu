// Attention to rows cached from earlier runs. One query of one head per block: warps compute its scores, one key
// each, and threads compute its output, one channel each, over slices of the keys that are added in a fixed order.

// Writes keys and values of the new rows to the cache. Rows that do not fit are not written.
template <typename T>
__device__ __forceinline__ void cache_rows(
    float* cache, const T* qkv, const int* position, int batch, int rows, int room, int width) {
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, pair = 2 * width;
  if (i >= (i64)batch * rows * pair) return;
  i64 row = quotient(i, pair), channel = i - row * pair, item = quotient(row, rows);
  i64 at = position[0] + row - item * rows;
  if (at < 0 || at >= room) return;
  cache[(item * room + at) * pair + channel] = to_f32(qkv[row * 3 * width + width + channel]);
}

template <typename T>
__device__ __forceinline__ void cached_attention(
    T* out, const T* qkv, const float* cache, const int* position, int rows, int room, int heads, int size, float scale) {
  extern __shared__ float space[];
  __shared__ float reduced[33];
  float *query = space, *scores = space + size, *parts = scores + room;
  int width = heads * size, head = blockIdx.x % heads;
  i64 row = blockIdx.x / heads, item = row / rows, pair = 2 * width;
  int keys = max(1, min(room, position[0] + (int)(row - item * rows) + 1));
  const T* q = qkv + row * 3 * width + head * size;
  const float *k = cache + item * room * pair + head * size, *v = k + width;
  for (int c = threadIdx.x; c < size; c += blockDim.x) query[c] = to_f32(q[c]) * scale;
  __syncthreads();

  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  float most = -INF;
  for (int j = warp; j < keys; j += warps) {
    float score = 0.f;
    for (int c = lane; c < size; c += 32) score += query[c] * k[j * pair + c];
    score = warp_sum(score);
    if (lane == 0) scores[j] = score;
    most = fmaxf(most, score);
  }
  most = block_max(most, reduced);
  float sum = 0.f;
  for (int j = threadIdx.x; j < keys; j += blockDim.x) {
    float e = __expf(scores[j] - most);
    scores[j] = e;
    sum += e;
  }
  sum = block_sum(sum, reduced);

  int slices = blockDim.x / size, slice = threadIdx.x / size, channel = threadIdx.x - slice * size;
  float part = 0.f;
  if (slice < slices)
    for (int j = slice; j < keys; j += slices) part += scores[j] * v[j * pair + channel];
  parts[threadIdx.x] = part;
  __syncthreads();
  if (slice != 0) return;
  for (int s = 1; s < slices; ++s) part += parts[s * size + channel];
  store(out + row * width + head * size + channel, part / sum);
}

#define KERNELS(T) \
  extern "C" __global__ void cache_rows_##T( \
      float* cache, const T* qkv, const int* position, int batch, int rows, int room, int width) { \
    enter(); \
    cache_rows(cache, qkv, position, batch, rows, room, width); \
  } \
  extern "C" __global__ void cached_attention_##T( \
      T* out, const T* qkv, const float* cache, const int* position, int rows, int room, int heads, int size, \
      float scale) { \
    enter(); \
    cached_attention(out, qkv, cache, position, rows, room, heads, size, scale); \
  }
KERNELS(f32)
KERNELS(bf16)
