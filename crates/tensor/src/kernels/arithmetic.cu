// Sums and products, elementwise and broadcast; eight elements per thread. `base` may be the memory of `out`: a
// thread reads its own elements before it writes them.
template <typename T, typename F>
__device__ __forceinline__ void each(T* out, const T* base, i64 n, bool whole, F f) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (whole && i + 8 <= n) {
    float v[8], b[8];
    f.eight(i, v);
    if (base) {
      load8(base + i, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += b[j];
    }
    store8(out + i, v);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, n); i < end; ++i) store(out + i, f.one(i) + (base ? to_f32(base[i]) : 0.f));
}

__device__ __forceinline__ float combined(int kind, float x, float y) {
  return kind == 0 ? x + y : kind == 1 ? x - y : x * y;
}

template <typename T>
struct Binary {
  const T* x;
  const T* y;
  int kind;
  __device__ __forceinline__ void eight(i64 i, float v[8]) {
    float w[8];
    load8(x + i, v);
    load8(y + i, w);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = combined(kind, v[j], w[j]);
  }
  __device__ __forceinline__ float one(i64 i) { return combined(kind, to_f32(x[i]), to_f32(y[i])); }
};

template <typename T>
struct Affine {
  const T* x;
  float scale, shift;
  __device__ __forceinline__ void eight(i64 i, float v[8]) {
    load8(x + i, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = scale * v[j] + shift;
  }
  __device__ __forceinline__ float one(i64 i) { return scale * to_f32(x[i]) + shift; }
};

// Broadcasts y over x: element i is combined with y[i / period * c + i % c]. A row shared by all has period 0: y[i
// % c].
template <typename T>
struct Broadcast {
  const T* x;
  const T* y;
  i64 period;
  int c, kind;
  __device__ __forceinline__ const T* at(i64 i) { return y + (period ? quotient(i, period) * c : 0) + (i - quotient(i, c) * c); }
  __device__ __forceinline__ void eight(i64 i, float v[8]) {
    float w[8];
    load8(x + i, v);
    load8(at(i), w);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = combined(kind, v[j], w[j]);
  }
  __device__ __forceinline__ float one(i64 i) { return combined(kind, to_f32(x[i]), to_f32(*at(i))); }
};

#define KERNELS(T) \
  extern "C" __global__ void binary_##T(T* out, const T* base, const T* x, const T* y, i64 n, int kind) { \
    enter(); \
    each(out, base, n, true, Binary<T>{x, y, kind}); \
  } \
  extern "C" __global__ void affine_##T(T* out, const T* base, const T* x, i64 n, float scale, float shift) { \
    enter(); \
    each(out, base, n, true, Affine<T>{x, scale, shift}); \
  } \
  extern "C" __global__ void broadcast_##T( \
      T* out, const T* base, const T* x, const T* y, i64 n, i64 period, int c, int kind) { \
    enter(); \
    each(out, base, n, c % 8 == 0, Broadcast<T>{x, y, period, c, kind}); \
  }
KERNELS(f32)
KERNELS(bf16)

// The weighted sum of several scalars: losses.
extern "C" __global__ void weighted_sum(
    float* out, int count, const float* a, const float* b, const float* c, const float* d, float wa, float wb, float wc,
    float wd) {
  enter();
  float sum = wa * *a;
  if (count > 1) sum += wb * *b;
  if (count > 2) sum += wc * *c;
  if (count > 3) sum += wd * *d;
  *out = sum;
}
