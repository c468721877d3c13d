// Copies ranges of columns out of rows, and into rows; eight elements per thread if everything is aligned. A row is
// the channels of one time step, or all time steps of an item.

// out[r][to + k] = base + x[r][from + k] for k < n; `width` and `pitch` are the row lengths of x and of out.
template <typename T>
__device__ __forceinline__ void copy(
    T* out, const T* base, const T* x, i64 count, i64 n, i64 pitch, i64 to, i64 width, i64 from) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  if (((n | pitch | to | width | from) & 7) == 0) {
    i64 row = quotient(i, n), k = i - row * n, at = row * pitch + to + k;
    float v[8], b[8];
    load8(x + row * width + from + k, v);
    if (base) {
      load8(base + at, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += b[j];
    }
    store8(out + at, v);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, count); i < end; ++i) {
    i64 row = quotient(i, n), k = i - row * n, at = row * pitch + to + k;
    store(out + at, to_f32(x[row * width + from + k]) + (base ? to_f32(base[at]) : 0.f));
  }
}

// out[r] = base + the row x[r] of n elements at `to`, zeros around it; `pitch` is the row length of out, `count`
// its size.
template <typename T>
__device__ __forceinline__ void place(T* out, const T* base, const T* x, i64 count, i64 pitch, i64 to, i64 n) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  if (((n | pitch | to) & 7) == 0) {
    i64 row = quotient(i, pitch), k = i - row * pitch - to;
    float v[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f}, b[8];
    if (k >= 0 && k < n) load8(x + row * n + k, v);
    if (base) {
      load8(base + i, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += b[j];
    }
    store8(out + i, v);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, count); i < end; ++i) {
    i64 row = quotient(i, pitch), k = i - row * pitch - to;
    store(out + i, (k >= 0 && k < n ? to_f32(x[row * n + k]) : 0.f) + (base ? to_f32(base[i]) : 0.f));
  }
}

#define KERNELS(T) \
  extern "C" __global__ void slice_copy_##T( \
      T* out, const T* base, const T* x, i64 count, i64 n, i64 pitch, i64 to, i64 width, i64 from) { \
    enter(); \
    copy(out, base, x, count, n, pitch, to, width, from); \
  } \
  extern "C" __global__ void slice_place_##T( \
      T* out, const T* base, const T* x, i64 count, i64 pitch, i64 to, i64 n) { \
    enter(); \
    place(out, base, x, count, pitch, to, n); \
  }
KERNELS(f32)
KERNELS(bf16)
