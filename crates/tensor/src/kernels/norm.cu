// Layer norm. A block takes a row, eight channels to a thread at a time; the row stays in registers between the passes
// where it is at most 8 * 256 * ROW long, and is read again beyond that.
#define ROW 2

template <typename T>
__device__ __forceinline__ void forward(
    T* y, float* mean, float* inverse, const T* x, const float* w, const float* b, int c, float epsilon) {
  __shared__ float shared[33];
  i64 row = blockIdx.x;
  x += row * c;
  y += row * c;
  bool whole = c % 8 == 0 && c <= 8 * ROW * blockDim.x;
  if (whole) {
    float v[ROW][8];
    float sum = 0.f;
#pragma unroll
    for (int r = 0; r < ROW; ++r) {
      int i = 8 * (threadIdx.x + r * blockDim.x);
      if (i < c) {
        load8(x + i, v[r]);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum += v[r][j];
      }
    }
    float m = block_sum(sum, shared) / c;
    float square = 0.f;
#pragma unroll
    for (int r = 0; r < ROW; ++r)
      if (8 * (threadIdx.x + r * blockDim.x) < c)
#pragma unroll
        for (int j = 0; j < 8; ++j) square += (v[r][j] - m) * (v[r][j] - m);
    float s = rsqrtf(block_sum(square, shared) / c + epsilon);
#pragma unroll
    for (int r = 0; r < ROW; ++r) {
      int i = 8 * (threadIdx.x + r * blockDim.x);
      if (i < c) {
        float p[8], q[8];
        load8(w + i, p);
        load8(b + i, q);
#pragma unroll
        for (int j = 0; j < 8; ++j) v[r][j] = (v[r][j] - m) * s * p[j] + q[j];
        store8(y + i, v[r]);
      }
    }
    if (threadIdx.x == 0) { mean[row] = m; inverse[row] = s; }
    return;
  }
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
  float m = mean[row], s = inverse[row];
  bool whole = c % 8 == 0 && c <= 8 * ROW * blockDim.x;
  if (whole) {
    float h[ROW][8], g[ROW][8], a = 0.f, b = 0.f;
#pragma unroll
    for (int r = 0; r < ROW; ++r) {
      int i = 8 * (threadIdx.x + r * blockDim.x);
      if (i < c) {
        float p[8];
        load8(x + i, h[r]);
        load8(dy + i, g[r]);
        load8(w + i, p);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          h[r][j] = (h[r][j] - m) * s;
          g[r][j] *= p[j];
          a += g[r][j];
          b += g[r][j] * h[r][j];
        }
      }
    }
    a = block_sum(a, shared) / c;
    b = block_sum(b, shared) / c;
#pragma unroll
    for (int r = 0; r < ROW; ++r) {
      int i = 8 * (threadIdx.x + r * blockDim.x);
      if (i < c) {
        float p[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
        if (base) load8(base + i, p);
#pragma unroll
        for (int j = 0; j < 8; ++j) g[r][j] = p[j] + s * (g[r][j] - a - h[r][j] * b);
        store8(dx + i, g[r]);
      }
    }
    return;
  }
  float a = 0.f, b = 0.f;
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

// Two neighbouring columns to a thread, a stretch of rows to a block; `parts` is [count][2][c].
template <typename T>
__device__ __forceinline__ void weights(
    float* parts, const T* x, const float* mean, const float* inverse, const T* dy, int rows, int c, int count) {
  int column = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= c) return;
  int per = (rows + count - 1) / count;
  int from = blockIdx.y * per, to = min(rows, from + per);
  bool pair = column + 1 < c;
  float w0 = 0.f, w1 = 0.f, b0 = 0.f, b1 = 0.f;
  for (int r = from; r < to; ++r) {
    float m = mean[r], s = inverse[r];
    i64 at = (i64)r * c + column;
    float g = to_f32(dy[at]);
    w0 += g * (to_f32(x[at]) - m) * s;
    b0 += g;
    if (pair) {
      g = to_f32(dy[at + 1]);
      w1 += g * (to_f32(x[at + 1]) - m) * s;
      b1 += g;
    }
  }
  float* out = parts + (i64)blockIdx.y * 2 * c + column;
  out[0] = w0;
  out[c] = b0;
  if (pair) { out[1] = w1; out[c + 1] = b1; }
}
extern "C" __global__ void layer_norm_weights_parts(
    float* dw, const float* base_w, float* db, const float* base_b, const float* parts, int c, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * c) return;
  bool bias = i >= c;
  int k = bias ? i - c : i;
  const float* base = bias ? base_b : base_w;
  float sum = base ? base[k] : 0.f;
  for (int p = 0; p < count; ++p) sum += parts[(i64)p * 2 * c + i];
  (bias ? db : dw)[k] = sum;
}

#define KERNELS(T) \
  extern "C" __global__ void layer_norm_forward_##T( \
      T* y, float* mean, float* inverse, const T* x, const float* w, const float* b, int c, float epsilon) { \
    forward(y, mean, inverse, x, w, b, c, epsilon); \
  } \
  extern "C" __global__ void layer_norm_again_##T( \
      T* y, const T* x, const float* w, const float* b, const float* mean, const float* inverse, i64 n, int c) { \
    again(y, x, w, b, mean, inverse, n, c); \
  } \
  extern "C" __global__ void layer_norm_input_##T( \
      T* dx, const T* base, const T* x, const float* w, const float* mean, const float* inverse, const T* dy, int c) { \
    input(dx, base, x, w, mean, inverse, dy, c); \
  } \
  extern "C" __global__ void layer_norm_weights_##T( \
      float* parts, const T* x, const float* mean, const float* inverse, const T* dy, int rows, int c, int count) { \
    weights(parts, x, mean, inverse, dy, rows, c, count); \
  }
KERNELS(f32)
KERNELS(bf16)
