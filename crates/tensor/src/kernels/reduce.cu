// Sums of all elements, of distances to a target and of distances to a constant, in two passes with a fixed order
// of addition. `kind`: 0 x, 1 |x - y|, 2 (x - y)^2; without `y` the other operand is `constant`.
__device__ __forceinline__ float term(int kind, float x, float y) {
  float d = x - y;
  return kind == 0 ? x : kind == 1 ? fabsf(d) : d * d;
}
__device__ __forceinline__ float slope(int kind, float x, float y) {
  float d = x - y;
  return kind == 0 ? 1.f : kind == 1 ? (d > 0.f ? 1.f : d < 0.f ? -1.f : 0.f) : 2.f * d;
}

template <typename T>
__device__ __forceinline__ void parts(float* out, const T* x, const T* y, i64 n, int kind, float constant) {
  __shared__ float shared[33];
  float sum = 0.f;
  i64 step = 8 * (i64)gridDim.x * blockDim.x;
#pragma unroll 2
  for (i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x); i < n; i += step) {
    if (i + 8 <= n) {
      float v[8], w[8];
      load8(x + i, v);
      if (y) {
        load8(y + i, w);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) w[j] = constant;
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += term(kind, v[j], w[j]);
    } else {
      for (i64 j = i; j < n; ++j) sum += term(kind, to_f32(x[j]), y ? to_f32(y[j]) : constant);
    }
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
extern "C" __global__ void reduce_together(float* out, const float* parts, int count, float scale) {
  enter();
  __shared__ float shared[33];
  float sum = 0.f;
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) *out = scale * sum;
}

// dx = base + scale * d * slope(x, y), where d is a scalar.
template <typename T>
__device__ __forceinline__ void backward(
    T* dx, const T* base, const T* x, const T* y, const float* d, i64 n, int kind, float constant, float scale) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  float by = scale * *d;
  if (i + 8 <= n) {
    float v[8], w[8];
    if (kind != 0) load8(x + i, v);
    if (y) {
      load8(y + i, w);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) w[j] = constant;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = by * slope(kind, v[j], w[j]);
    if (base) {
      load8(base + i, w);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += w[j];
    }
    store8(dx + i, v);
    return;
  }
#pragma unroll 1
  for (; i < n; ++i)
    store(dx + i, by * slope(kind, kind ? to_f32(x[i]) : 0.f, y ? to_f32(y[i]) : constant) +
        (base ? to_f32(base[i]) : 0.f));
}

#define KERNELS(T) \
  extern "C" __global__ void reduce_parts_##T( \
      float* out, const T* x, const T* y, i64 n, int kind, float constant) { \
    enter(); \
    parts(out, x, y, n, kind, constant); \
  } \
  extern "C" __global__ void reduce_backward_##T( \
      T* dx, const T* base, const T* x, const T* y, const float* d, i64 n, int kind, float constant, float scale) { \
    enter(); \
    backward(dx, base, x, y, d, n, kind, constant, scale); \
  }
KERNELS(f32)
KERNELS(bf16)
