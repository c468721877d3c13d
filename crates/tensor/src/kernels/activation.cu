// Elementwise functions, eight elements per thread. `kind` is uniform over the launch, so the branch is free next
// to the memory traffic.
__device__ __forceinline__ float fast_tanh(float x) {
  // 1 - 2 / (exp(2x) + 1): exact at both ends; an overflow to inf gives 1.
  return 1.f - 2.f / (__expf(2.f * x) + 1.f);
}
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

__device__ __forceinline__ float value(int kind, float slope, float x) {
  switch (kind) {
    case 0: return 0.5f * x * (1.f + fast_tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    case 1: return 0.5f * x * (1.f + erff(x * 0.7071067812f));
    case 2: return x < 0.f ? 0.f : x;  // not fmaxf: a NaN must stay NaN
    case 3: return x >= 0.f ? x : slope * x;
    case 4: return tanhf(x);
    case 5: return sigmoid(x);
    case 7: return logf(x);
    case 8: return expf(x);
    case 9: return sqrtf(x);
    case 10: return x < slope ? slope : x;
    case 11: return x * x;
    case 12: return fabsf(x);
    default: return x * sigmoid(x);
  }
}
__device__ __forceinline__ float derivative(int kind, float slope, float x) {
  switch (kind) {
    case 0: {
      float t = fast_tanh(0.7978845608f * (x + 0.044715f * x * x * x));
      return 0.5f * (1.f + t) + 0.5f * x * (1.f - t * t) * 0.7978845608f * (1.f + 0.134145f * x * x);
    }
    case 1: return 0.5f * (1.f + erff(x * 0.7071067812f)) + x * 0.3989422804f * __expf(-0.5f * x * x);
    case 2: return x > 0.f ? 1.f : 0.f;
    case 3: return x >= 0.f ? 1.f : slope;
    case 4: { float t = tanhf(x); return 1.f - t * t; }
    case 5: { float s = sigmoid(x); return s * (1.f - s); }
    case 7: return 1.f / x;
    case 8: return expf(x);
    case 9: return 0.5f / sqrtf(x);
    case 10: return x >= slope ? 1.f : 0.f;
    case 11: return 2.f * x;
    case 12: return x > 0.f ? 1.f : x < 0.f ? -1.f : 0.f;
    default: { float s = sigmoid(x); return s * (1.f + x * (1.f - s)); }
  }
}

template <typename T>
__device__ __forceinline__ void forward(T* y, const T* x, i64 n, int kind, float slope) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 8 <= n) {
    float v[8];
    load8(x + i, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = value(kind, slope, v[j]);
    store8(y + i, v);
    return;
  }
#pragma unroll 1
  for (; i < n; ++i) store(y + i, value(kind, slope, to_f32(x[i])));
}
template <typename T>
__device__ __forceinline__ void backward(
    T* dx, const T* base, const T* x, const T* dy, i64 n, int kind, float slope) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 8 <= n) {
    float v[8], g[8];
    load8(x + i, v);
    load8(dy + i, g);
#pragma unroll
    for (int j = 0; j < 8; ++j) g[j] *= derivative(kind, slope, v[j]);
    if (base) {
      load8(base + i, v);
#pragma unroll
      for (int j = 0; j < 8; ++j) g[j] += v[j];
    }
    store8(dx + i, g);
    return;
  }
#pragma unroll 1
  for (; i < n; ++i)
    store(dx + i, to_f32(dy[i]) * derivative(kind, slope, to_f32(x[i])) + (base ? to_f32(base[i]) : 0.f));
}
#define KERNELS(T) \
  extern "C" __global__ void activation_forward_##T(T* y, const T* x, i64 n, int kind, float slope) { \
    enter(); \
    forward(y, x, n, kind, slope); \
  } \
  extern "C" __global__ void activation_backward_##T( \
      T* dx, const T* base, const T* x, const T* dy, i64 n, int kind, float slope) { \
    enter(); \
    backward(dx, base, x, dy, n, kind, slope); \
  }
KERNELS(f32)
KERNELS(bf16)
