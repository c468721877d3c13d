// Sequences in which every time step is a weighted sum of a few time steps of another: reflection at the ends,
// resampling. Both directions gather, so no two threads add to the same element. A map calls `take(time, weight)`
// for each source of a time step.
template <typename T, typename M>
__device__ __forceinline__ void gather(T* out, const T* base, const T* x, i64 n, int to, int from, int c, M map) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  if (c % 8 == 0) {
    i64 row = quotient(i, c), item = quotient(row, to);
    const T* source = x + item * from * c + (i - row * c);
    float sum[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
    map.each((int)(row - item * to), [&](int t, float weight) {
      float v[8];
      load8(source + (i64)t * c, v);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] += weight * v[j];
    });
    if (base) {
      float b[8];
      load8(base + i, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] += b[j];
    }
    store8(out + i, sum);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, n); i < end; ++i) {
    i64 row = quotient(i, c), item = quotient(row, to);
    const T* source = x + item * from * c + (i - row * c);
    float sum = 0.f;
    map.each((int)(row - item * to), [&](int t, float weight) { sum += weight * to_f32(source[(i64)t * c]); });
    store(out + i, sum + (base ? to_f32(base[i]) : 0.f));
  }
}

// `time` is the length of the sequence without its padding.
struct Reflect {
  int left, time;
  template <typename F>
  __device__ __forceinline__ void each(int t, F take) {
    int s = t - left;
    if (s < 0) s = -s;
    if (s >= time) s = 2 * (time - 1) - s;
    take(s, 1.f);
  }
};
struct ReflectBack {
  int left, right, time;
  template <typename F>
  __device__ __forceinline__ void each(int t, F take) {
    take(t + left, 1.f);
    if (t >= 1 && t <= left) take(left - t, 1.f);
    if (t <= time - 2 && t >= time - 1 - right) take(left + 2 * (time - 1) - t, 1.f);
  }
};

struct Nearest {
  int factor;
  template <typename F>
  __device__ __forceinline__ void each(int t, F take) { take(t / factor, 1.f); }
};
struct NearestBack {
  int factor;
  template <typename F>
  __device__ __forceinline__ void each(int t, F take) {
    for (int j = 0; j < factor; ++j) take(t * factor + j, 1.f);
  }
};

// Source position of output time i: `a` and the time step after it, with `weight`. Rounded after each operation as
// on the CPU, so that both agree on every weight.
__device__ __forceinline__ void place(int i, float step, int time, int& a, int& b, float& weight) {
  float at = fmaxf(__fadd_rn(__fmul_rn(step, (float)i + 0.5f), -0.5f), 0.f);
  a = min((int)at, time - 1);
  b = min(a + 1, time - 1);
  weight = at - (float)a;
}
struct Linear {
  float step;
  int time;
  template <typename F>
  __device__ __forceinline__ void each(int i, F take) {
    int a, b;
    float weight;
    place(i, step, time, a, b, weight);
    take(a, 1.f - weight);
    take(b, weight);
  }
};
// Tries every output that may have used time t by the same rule; `scale` is 1 / step.
struct LinearBack {
  float step, scale;
  int time, longer;
  template <typename F>
  __device__ __forceinline__ void each(int t, F take) {
    int from = max(0, (int)floorf(((float)t - 0.5f) * scale - 0.5f) - 1);
    int to = t == time - 1 ? longer - 1 : min(longer - 1, (int)ceilf(((float)t + 1.5f) * scale - 0.5f) + 1);
    if (t == 0) from = 0;
    for (int i = from; i <= to; ++i) {
      int a, b;
      float weight;
      place(i, step, time, a, b, weight);
      float mine = (a == t ? 1.f - weight : 0.f) + (b == t ? weight : 0.f);
      if (mine != 0.f) take(i, mine);
    }
  }
};

// n elements of the output, which is `to` long; the source is `from` long.
#define KERNELS(T) \
  extern "C" __global__ void pad_reflect_forward_##T(T* y, const T* x, i64 n, int to, int from, int c, int left) { \
    enter(); \
    gather(y, (const T*)0, x, n, to, from, c, Reflect{left, from}); \
  } \
  extern "C" __global__ void pad_reflect_backward_##T( \
      T* dx, const T* base, const T* dy, i64 n, int to, int from, int c, int left) { \
    enter(); \
    gather(dx, base, dy, n, to, from, c, ReflectBack{left, from - to - left, to}); \
  } \
  extern "C" __global__ void interpolate_nearest_forward_##T(T* y, const T* x, i64 n, int to, int from, int c) { \
    enter(); \
    gather(y, (const T*)0, x, n, to, from, c, Nearest{to / from}); \
  } \
  extern "C" __global__ void interpolate_nearest_backward_##T( \
      T* dx, const T* base, const T* dy, i64 n, int to, int from, int c) { \
    enter(); \
    gather(dx, base, dy, n, to, from, c, NearestBack{from / to}); \
  } \
  extern "C" __global__ void interpolate_linear_forward_##T(T* y, const T* x, i64 n, int to, int from, int c, float step) { \
    enter(); \
    gather(y, (const T*)0, x, n, to, from, c, Linear{step, from}); \
  } \
  extern "C" __global__ void interpolate_linear_backward_##T( \
      T* dx, const T* base, const T* dy, i64 n, int to, int from, int c, float step, float scale) { \
    enter(); \
    gather(dx, base, dy, n, to, from, c, LinearBack{step, scale, to, from}); \
  }
KERNELS(f32)
KERNELS(bf16)
