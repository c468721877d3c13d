// Layer norm over rows of c channels.
//
// If c is a multiple of 8 and at most 2048, a warp takes a row, with N times 256 channels in registers, and no
// thread waits for another warp. The backward pass then computes dx and its part of the gradients of weight and
// bias in one pass: a lane sees the same channels in every row of its warp. Other widths use one block per row.

template <typename T, int N>
__device__ __forceinline__ void load_row(const T* p, float v[N][8], int lane, int c) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    int i = 256 * k + 8 * lane;
    if (i < c) {
      load8(p + i, v[k]);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[k][j] = 0.f;
    }
  }
}

// A row as stored in memory: loaded early, converted when needed, so that it occupies few registers meanwhile.
template <typename T, int N> struct Raw;
template <int N> struct Raw<bf16, N> {
  uint4 v[N];
  __device__ __forceinline__ void load(const bf16* p, int lane, int c) {
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (256 * k + 8 * lane < c) v[k] = *reinterpret_cast<const uint4*>(p + 256 * k + 8 * lane);
  }
  __device__ __forceinline__ void widen(int k, float o[8]) const {
    o[0] = low_bf16(v[k].x); o[1] = high_bf16(v[k].x); o[2] = low_bf16(v[k].y); o[3] = high_bf16(v[k].y);
    o[4] = low_bf16(v[k].z); o[5] = high_bf16(v[k].z); o[6] = low_bf16(v[k].w); o[7] = high_bf16(v[k].w);
  }
};
template <int N> struct Raw<float, N> {
  float v[N][8];
  __device__ __forceinline__ void load(const float* p, int lane, int c) {
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (256 * k + 8 * lane < c) load8(p + 256 * k + 8 * lane, v[k]);
  }
  __device__ __forceinline__ void widen(int k, float o[8]) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) o[j] = v[k][j];
  }
};

template <typename T, int N>
__device__ __forceinline__ void warp_forward(
    T* y, float* mean, float* inverse, const T* x, const float* w, const float* b, int rows, int c, float epsilon) {
  int lane = threadIdx.x & 31;
  i64 row = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  if (row >= rows) return;
  float v[N][8], sum = 0.f, square = 0.f;
  load_row<T, N>(x + row * c, v, lane, c);
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += v[k][j];
  float m = warp_sum(sum) / c;
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (256 * k + 8 * lane < c)
#pragma unroll
      for (int j = 0; j < 8; ++j) square += (v[k][j] - m) * (v[k][j] - m);
  float s = rsqrtf(warp_sum(square) / c + epsilon);
  y += row * c;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    int i = 256 * k + 8 * lane;
    if (i < c) {
      float p[8], q[8];
      load8(w + i, p);
      load8(b + i, q);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[k][j] = (v[k][j] - m) * s * p[j] + q[j];
      store8(y + i, v[k]);
    }
  }
  if (lane == 0) { mean[row] = m; inverse[row] = s; }
}

// parts is [gridDim.x][2][c]: partial sums of dweight, then of dbias.
template <typename T, int N>
__device__ __forceinline__ void warp_backward(
    T* dx, const T* base, float* parts, const T* x, const float* w, const float* mean, const float* inverse,
    const T* dy, int rows, int c) {
  extern __shared__ float shared[];  // [warps][c]
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  float dw[N][8], db[N][8];
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int j = 0; j < 8; ++j) dw[k][j] = db[k][j] = 0.f;
  for (i64 row = (i64)blockIdx.x * warps + warp; row < rows; row += (i64)gridDim.x * warps) {
    float h[N][8], g[N][8], a = 0.f, b = 0.f;
    float m = mean[row], s = inverse[row];
    Raw<T, N> added;
    load_row<T, N>(x + row * c, h, lane, c);
    load_row<T, N>(dy + row * c, g, lane, c);
    if (base) added.load(base + row * c, lane, c);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      int i = 256 * k + 8 * lane;
      if (i < c) {
        float p[8];
        load8(w + i, p);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          h[k][j] = (h[k][j] - m) * s;
          dw[k][j] += g[k][j] * h[k][j];
          db[k][j] += g[k][j];
          g[k][j] *= p[j];
          a += g[k][j];
          b += g[k][j] * h[k][j];
        }
      }
    }
    a = warp_sum(a) / c;
    b = warp_sum(b) / c;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      int i = 256 * k + 8 * lane;
      if (i < c) {
        float p[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
        if (base) added.widen(k, p);
#pragma unroll
        for (int j = 0; j < 8; ++j) g[k][j] = p[j] + s * (g[k][j] - a - h[k][j] * b);
        store8(dx + row * c + i, g[k]);
      }
    }
  }
  // The warps of a block are added in order, weight first, then bias.
  float* out = parts + (i64)blockIdx.x * 2 * c;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (256 * k + 8 * lane < c)
        store8(shared + warp * c + 256 * k + 8 * lane, which ? db[k] : dw[k]);
    __syncthreads();
    for (int i = threadIdx.x; i < c; i += blockDim.x) {
      float sum = 0.f;
      for (int q = 0; q < warps; ++q) sum += shared[q * c + i];
      out[which * c + i] = sum;
    }
  }
}

template <typename T>
__device__ __forceinline__ void forward(
    T* y, float* mean, float* inverse, const T* x, const float* w, const float* b, int c, float epsilon) {
  __shared__ float shared[33];
  i64 row = blockIdx.x;
  x += row * c;
  y += row * c;
  float sum = 0.f;
  for (int i = threadIdx.x; i < c; i += blockDim.x) sum += to_f32(x[i]);
  float m = block_sum(sum, shared) / c;
  float square = 0.f;
  for (int i = threadIdx.x; i < c; i += blockDim.x) { float d = to_f32(x[i]) - m; square += d * d; }
  float s = rsqrtf(block_sum(square, shared) / c + epsilon);
  for (int i = threadIdx.x; i < c; i += blockDim.x) store(y + i, (to_f32(x[i]) - m) * s * w[i] + b[i]);
  if (threadIdx.x == 0) { mean[row] = m; inverse[row] = s; }
}

template <typename T>
__device__ __forceinline__ void again(
    T* y, const T* x, const float* w, const float* b, const float* mean, const float* inverse, i64 n, int c) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (c % 8 == 0) {
    if (i >= n) return;
    i64 row = i / c;
    int k = (int)(i - row * c);
    float m = mean[row], s = inverse[row], v[8], p[8], q[8];
    load8(x + i, v);
    load8(w + k, p);
    load8(b + k, q);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = (v[j] - m) * s * p[j] + q[j];
    store8(y + i, v);
    return;
  }
  for (i64 e = min(i + 8, n); i < e; ++i) {
    i64 row = i / c;
    int k = (int)(i - row * c);
    store(y + i, (to_f32(x[i]) - mean[row]) * inverse[row] * w[k] + b[k]);
  }
}

template <typename T>
__device__ __forceinline__ void input(
    T* dx, const T* base, const T* x, const float* w, const float* mean, const float* inverse, const T* dy, int c) {
  __shared__ float shared[33];
  i64 row = blockIdx.x;
  x += row * c;
  dy += row * c;
  dx += row * c;
  if (base) base += row * c;
  float m = mean[row], s = inverse[row], a = 0.f, b = 0.f;
  for (int i = threadIdx.x; i < c; i += blockDim.x) {
    float g = to_f32(dy[i]) * w[i];
    a += g;
    b += g * (to_f32(x[i]) - m) * s;
  }
  a = block_sum(a, shared) / c;
  b = block_sum(b, shared) / c;
  for (int i = threadIdx.x; i < c; i += blockDim.x) {
    float h = (to_f32(x[i]) - m) * s;
    store(dx + i, (base ? to_f32(base[i]) : 0.f) + s * (to_f32(dy[i]) * w[i] - a - h * b));
  }
}

// One column per thread, a chunk of rows per block; parts as above.
template <typename T>
__device__ __forceinline__ void weights(
    float* parts, const T* x, const float* mean, const float* inverse, const T* dy, int rows, int c, int count) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= c) return;
  int per = (rows + count - 1) / count;
  int from = blockIdx.y * per, to = min(rows, from + per);
  float dw = 0.f, db = 0.f;
  for (int r = from; r < to; ++r) {
    i64 at = (i64)r * c + column;
    float g = to_f32(dy[at]);
    dw += g * (to_f32(x[at]) - mean[r]) * inverse[r];
    db += g;
  }
  parts[(i64)blockIdx.y * 2 * c + column] = dw;
  parts[(i64)blockIdx.y * 2 * c + c + column] = db;
}

#define WARP_KERNELS(T, N) \
  extern "C" __global__ void __launch_bounds__(128) layer_norm_forward_##T##_##N( \
      T* y, float* mean, float* inverse, const T* x, const float* w, const float* b, int rows, int c, float epsilon) { \
    enter(); \
    warp_forward<T, N>(y, mean, inverse, x, w, b, rows, c, epsilon); \
  }
#define WARP_BACKWARD(T, N) \
  extern "C" __global__ void __launch_bounds__(128) layer_norm_backward_##T##_##N( \
      T* dx, const T* base, float* parts, const T* x, const float* w, const float* mean, const float* inverse, \
      const T* dy, int rows, int c) { \
    enter(); \
    warp_backward<T, N>(dx, base, parts, x, w, mean, inverse, dy, rows, c); \
  }
#define KERNELS(T) \
  WARP_KERNELS(T, 1) WARP_KERNELS(T, 2) WARP_KERNELS(T, 4) WARP_KERNELS(T, 8) \
  WARP_BACKWARD(T, 1) WARP_BACKWARD(T, 2) WARP_BACKWARD(T, 4) \
  extern "C" __global__ void layer_norm_forward_##T( \
      T* y, float* mean, float* inverse, const T* x, const float* w, const float* b, int c, float epsilon) { \
    enter(); \
    forward(y, mean, inverse, x, w, b, c, epsilon); \
  } \
  extern "C" __global__ void layer_norm_again_##T( \
      T* y, const T* x, const float* w, const float* b, const float* mean, const float* inverse, i64 n, int c) { \
    enter(); \
    again(y, x, w, b, mean, inverse, n, c); \
  } \
  extern "C" __global__ void layer_norm_input_##T( \
      T* dx, const T* base, const T* x, const float* w, const float* mean, const float* inverse, const T* dy, int c) { \
    enter(); \
    input(dx, base, x, w, mean, inverse, dy, c); \
  } \
  extern "C" __global__ void layer_norm_weights_##T( \
      float* parts, const T* x, const float* mean, const float* inverse, const T* dy, int rows, int c, int count) { \
    enter(); \
    weights(parts, x, mean, inverse, dy, rows, c, count); \
  }
KERNELS(f32)
KERNELS(bf16)
