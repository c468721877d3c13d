// Addends of a convolution's output: a value per channel, a vector per item, whole tensors; and the sums over time
// that are the gradients of the first two.

// y[item, row, c] = bias[c] + per_item[item, c] + residual + plus, each if present. Eight elements per thread.
template <typename T>
__device__ __forceinline__ void addends(
    T* y, const float* bias, const T* per_item, const T* residual, const T* plus, i64 n, int channels, i64 item) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  int c = (int)(i % channels);
  i64 which = i / item, next = (which + 1) * item;
  for (int q = 0; q < 8 && i < n; ++q, ++i, ++c) {
    if (c == channels) c = 0;
    if (i == next) ++which, next += item;
    float v = bias ? bias[c] : 0.f;
    if (per_item) v += to_f32(per_item[which * channels + c]);
    if (residual) v += to_f32(residual[i]);
    if (plus) v += to_f32(plus[i]);
    store(y + i, v);
  }
}

// parts[share][item][c] = the sum of a share of the item's rows. Grid (ceil(channels / 256), shares, items), block
// 256: eight channels per thread, and as many rows at once as fit into the block.
template <typename T>
__device__ __forceinline__ void channel_sum(float* parts, const T* x, int rows, int channels) {
  __shared__ float part[256 * 8];
  int pieces = (channels + 7) / 8, across = min(32, pieces - (int)blockIdx.x * 32), down = 256 / across;
  int c = (blockIdx.x * 32 + threadIdx.x % across) * 8, line = threadIdx.x / across;
  int begin = (int)((i64)rows * blockIdx.y / gridDim.y), end = (int)((i64)rows * (blockIdx.y + 1) / gridDim.y);
  const T* from = x + (i64)blockIdx.z * rows * channels + c;
  float sum[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
  if (line < down) {
    if (channels % 8 == 0) {
#pragma unroll 4
      for (int row = begin + line; row < end; row += down) {
        float v[8];
        load8(from + (i64)row * channels, v);
#pragma unroll
        for (int q = 0; q < 8; q++) sum[q] += v[q];
      }
    } else {
      for (int row = begin + line; row < end; row += down)
#pragma unroll
        for (int q = 0; q < 8; q++)
          if (c + q < channels) sum[q] += to_f32(from[(i64)row * channels + q]);
    }
  }
#pragma unroll
  for (int q = 0; q < 8; q++) part[threadIdx.x * 8 + q] = sum[q];
  __syncthreads();
  for (int i = threadIdx.x; i < across * 8; i += 256) {
    float total = 0.f;
    for (int l = 0; l < down; l++) total += part[l * across * 8 + i];
    int channel = blockIdx.x * 256 + i;
    if (channel < channels) parts[((i64)blockIdx.y * gridDim.z + blockIdx.z) * channels + channel] = total;
  }
}

// out[i] = base[i] + the sum of parts[j][i] over j < count. Block (32, 8), grid ceil(n / 32).
template <typename T>
__device__ __forceinline__ void channel_sum_parts(T* out, const T* base, const float* parts, int n, int count) {
  __shared__ float part[8][32];
  int lane = threadIdx.x % 32, group = threadIdx.x / 32, i = blockIdx.x * 32 + lane;
  float sum = 0.f;
  if (i < n) {
#pragma unroll 8
    for (int j = group; j < count; j += 8) sum += parts[(i64)j * n + i];
  }
  part[group][lane] = sum;
  __syncthreads();
  if (group == 0 && i < n) {
#pragma unroll
    for (int g = 1; g < 8; g++) sum += part[g][lane];
    store(out + i, sum + (base ? to_f32(base[i]) : 0.f));
  }
}

#define ADDENDS(T) \
  extern "C" __global__ void addends_##T(T* y, const float* bias, const T* per_item, const T* residual, \
                                         const T* plus, i64 n, int channels, i64 item) { \
    enter(); \
    addends(y, bias, per_item, residual, plus, n, channels, item); \
  } \
  extern "C" __global__ void __launch_bounds__(256) \
      channel_sum_##T(float* parts, const T* x, int rows, int channels) { \
    enter(); \
    channel_sum(parts, x, rows, channels); \
  } \
  extern "C" __global__ void __launch_bounds__(256) \
      channel_sum_parts_##T(T* out, const T* base, const float* parts, int n, int count) { \
    enter(); \
    channel_sum_parts(out, base, parts, n, count); \
  }
ADDENDS(f32)
ADDENDS(bf16)
