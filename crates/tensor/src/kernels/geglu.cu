// y = a * gelu(g) of rows [a, g], with GELU by the error function; eight elements per thread.
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.f + erff(x * 0.7071067812f)); }
__device__ __forceinline__ float gelu_slope(float x) {
  return 0.5f * (1.f + erff(x * 0.7071067812f)) + x * 0.3989422804f * __expf(-0.5f * x * x);
}

// `count` is the number of outputs, `n` their number per row.
template <typename T>
__device__ __forceinline__ void forward(T* y, const T* x, i64 count, int n) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (n % 8 == 0) {
    if (i >= count) return;
    const T* p = x + i + quotient(i, n) * n;
    float a[8], g[8];
    load8(p, a);
    load8(p + n, g);
#pragma unroll
    for (int j = 0; j < 8; ++j) a[j] *= gelu(g[j]);
    store8(y + i, a);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, count); i < end; ++i) {
    const T* p = x + i + quotient(i, n) * n;
    store(y + i, to_f32(p[0]) * gelu(to_f32(p[n])));
  }
}
template <typename T>
__device__ __forceinline__ void backward(T* dx, const T* base, const T* x, const T* dy, i64 count, int n) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (n % 8 == 0) {
    if (i >= count) return;
    i64 at = i + quotient(i, n) * n;
    float a[8], g[8], d[8], b[8];
    load8(x + at, a);
    load8(x + at + n, g);
    load8(dy + i, d);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float slope = d[j] * a[j] * gelu_slope(g[j]);
      a[j] = d[j] * gelu(g[j]);
      g[j] = slope;
    }
    if (base) {
      load8(base + at, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) a[j] += b[j];
      load8(base + at + n, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) g[j] += b[j];
    }
    store8(dx + at, a);
    store8(dx + at + n, g);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, count); i < end; ++i) {
    i64 at = i + quotient(i, n) * n;
    float a = to_f32(x[at]), g = to_f32(x[at + n]), d = to_f32(dy[i]);
    store(dx + at, d * gelu(g) + (base ? to_f32(base[at]) : 0.f));
    store(dx + at + n, d * a * gelu_slope(g) + (base ? to_f32(base[at + n]) : 0.f));
  }
}

#define KERNELS(T) \
  extern "C" __global__ void geglu_forward_##T(T* y, const T* x, i64 count, int n) { enter(); forward(y, x, count, n); } \
  extern "C" __global__ void geglu_backward_##T( \
      T* dx, const T* base, const T* x, const T* dy, i64 count, int n) { \
    enter(); \
    backward(dx, base, x, dy, count, n); \
  }
KERNELS(f32)
KERNELS(bf16)
