// Rows of unit length: y = x / |x| * scale * w. One row per block. `w` may be null.
template <int V, typename T>
__device__ __forceinline__ void load(const T* p, float v[V]) {
  if constexpr (V == 8) load8(p, v);
  else v[0] = to_f32(*p);
}
template <int V, typename T>
__device__ __forceinline__ void put(T* p, const float v[V]) {
  if constexpr (V == 8) store8(p, v);
  else store(p, v[0]);
}
// The weight of V columns, multiplied by the scale.
template <int V>
__device__ __forceinline__ void weigh(const float* w, float scale, float v[V]) {
#pragma unroll
  for (int j = 0; j < V; ++j) v[j] = scale;
  if (!w) return;
  float p[V];
  load<V>(w, p);
#pragma unroll
  for (int j = 0; j < V; ++j) v[j] *= p[j];
}

template <int V, typename T>
__device__ __forceinline__ void forward(
    T* y, float* inverse, const T* x, const float* w, int c, float scale, float least) {
  __shared__ float shared[33];
  i64 row = blockIdx.x;
  x += row * c;
  y += row * c;
  float square = 0.f, v[V], p[V];
  for (int i = V * threadIdx.x; i < c; i += V * blockDim.x) {
    load<V>(x + i, v);
#pragma unroll
    for (int j = 0; j < V; ++j) square += v[j] * v[j];
  }
  float s = 1.f / fmaxf(sqrtf(block_sum(square, shared)), least);
  for (int i = V * threadIdx.x; i < c; i += V * blockDim.x) {
    load<V>(x + i, v);
    weigh<V>(w ? w + i : w, scale, p);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] *= s * p[j];
    put<V>(y + i, v);
  }
  if (threadIdx.x == 0) inverse[row] = s;
}

template <int V, typename T>
__device__ __forceinline__ void again(T* y, const T* x, const float* w, const float* inverse, int c, float scale) {
  i64 row = blockIdx.x;
  float s = inverse[row], v[V], p[V];
  for (int i = V * threadIdx.x; i < c; i += V * blockDim.x) {
    load<V>(x + row * c + i, v);
    weigh<V>(w ? w + i : w, scale, p);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] *= s * p[j];
    put<V>(y + row * c + i, v);
  }
}

// With u = x / |x| and g = dy * scale * w: dx = (g - u (u g)) / |x|. If the norm was raised to its lower bound, it
// does not depend on x and the second term vanishes.
template <int V, typename T>
__device__ __forceinline__ void input(
    T* dx, const T* base, const T* x, const float* w, const float* inverse, const T* dy, int c, float scale,
    float least) {
  __shared__ float shared[33];
  i64 row = blockIdx.x;
  x += row * c;
  dy += row * c;
  dx += row * c;
  if (base) base += row * c;
  float s = inverse[row], along = 0.f, v[V], g[V], p[V];
  for (int i = V * threadIdx.x; i < c; i += V * blockDim.x) {
    load<V>(x + i, v);
    load<V>(dy + i, g);
    weigh<V>(w ? w + i : w, scale, p);
#pragma unroll
    for (int j = 0; j < V; ++j) along += g[j] * p[j] * v[j] * s;
  }
  along = block_sum(along, shared);
  if (s >= 1.f / least) along = 0.f;
  for (int i = V * threadIdx.x; i < c; i += V * blockDim.x) {
    float b[V] = {};
    load<V>(x + i, v);
    load<V>(dy + i, g);
    weigh<V>(w ? w + i : w, scale, p);
    if (base) load<V>(base + i, b);
#pragma unroll
    for (int j = 0; j < V; ++j) g[j] = b[j] + s * (g[j] * p[j] - v[j] * s * along);
    put<V>(dx + i, g);
  }
}

// One column per thread, a chunk of rows per block; `parts` is [count][c].
template <typename T>
__device__ __forceinline__ void weight(
    float* parts, const T* x, const float* inverse, const T* dy, int rows, int c, int count, float scale) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= c) return;
  int per = (rows + count - 1) / count;
  int from = blockIdx.y * per, to = min(rows, from + per);
  float sum = 0.f;
  for (int r = from; r < to; ++r) {
    i64 at = (i64)r * c + column;
    sum += to_f32(dy[at]) * to_f32(x[at]) * inverse[r];
  }
  parts[(i64)blockIdx.y * c + column] = scale * sum;
}

#define KERNELS(T, V, NAME) \
  extern "C" __global__ void rms_norm_forward_##NAME( \
      T* y, float* inverse, const T* x, const float* w, int c, float scale, float least) { \
    enter(); \
    forward<V>(y, inverse, x, w, c, scale, least); \
  } \
  extern "C" __global__ void rms_norm_again_##NAME( \
      T* y, const T* x, const float* w, const float* inverse, int c, float scale) { \
    enter(); \
    again<V>(y, x, w, inverse, c, scale); \
  } \
  extern "C" __global__ void rms_norm_input_##NAME( \
      T* dx, const T* base, const T* x, const float* w, const float* inverse, const T* dy, int c, float scale, \
      float least) { \
    enter(); \
    input<V>(dx, base, x, w, inverse, dy, c, scale, least); \
  }
KERNELS(f32, 8, f32)
KERNELS(bf16, 8, bf16)
KERNELS(f32, 1, odd_f32)
KERNELS(bf16, 1, odd_bf16)
#define WEIGHT(T) \
  extern "C" __global__ void rms_norm_weight_##T( \
      float* parts, const T* x, const float* inverse, const T* dy, int rows, int c, int count, float scale) { \
    enter(); \
    weight(parts, x, inverse, dy, rows, c, count, scale); \
  }
WEIGHT(f32)
WEIGHT(bf16)
