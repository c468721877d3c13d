// Inverted dropout with the counter-based generator of random.rs: the mask is a function of the step's seed, the
// stream and the element index, so that the backward pass recomputes it instead of reading it. The first `first`
// Philox blocks of four belong to the rows of other replicas.
struct Words {
  u32 w[4];
};
__device__ __forceinline__ Words philox(u32 a, u32 b, u32 c, u32 d, u32 k0, u32 k1) {
#pragma unroll
  for (int r = 0; r < 10; ++r) {
    u32 h0 = __umulhi(0xD2511F53u, a), l0 = 0xD2511F53u * a;
    u32 h1 = __umulhi(0xCD9E8D57u, c), l1 = 0xCD9E8D57u * c;
    a = h1 ^ b ^ k0;
    b = l1;
    c = h0 ^ d ^ k1;
    d = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {a, b, c, d};
}

template <typename T>
__device__ __forceinline__ void dropout(
    T* y, const T* base, const T* x, const float* seed, i64 n, i64 first, u32 stream, u32 threshold,
    float scale) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  u32 k0 = __float_as_uint(seed[0]), k1 = __float_as_uint(seed[1]);
  float v[8], factor[8];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    u64 block = (u64)(first + i / 4 + h);
    Words words = philox((u32)block, (u32)(block >> 32), stream, 0, k0, k1);
#pragma unroll
    for (int j = 0; j < 4; ++j) factor[4 * h + j] = words.w[j] >= threshold ? scale : 0.f;
  }
  if (i + 8 <= n) {
    load8(x + i, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] *= factor[j];
    if (base) {
      float b[8];
      load8(base + i, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += b[j];
    }
    store8(y + i, v);
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (i + j < n) store(y + i + j, to_f32(x[i + j]) * factor[j] + (base ? to_f32(base[i + j]) : 0.f));
}

#define KERNELS(T) \
  extern "C" __global__ void dropout_##T( \
      T* y, const T* base, const T* x, const float* seed, i64 n, i64 first, u32 stream, u32 threshold, \
      float scale) { \
    enter(); \
    dropout(y, base, x, seed, n, first, stream, threshold, scale); \
  }
KERNELS(f32)
KERNELS(bf16)
