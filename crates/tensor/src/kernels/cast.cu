// out = base + x in the type of out; four elements per thread, the last few one by one.
template <typename From, typename To>
__device__ __forceinline__ void cast(To* out, const To* base, const From* x, i64 n) {
  i64 i = 4 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 4 <= n) {
    float v[4];
    load4(x + i, v);
    if (base) {
      float b[4];
      load4(base + i, b);
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] += b[j];
    }
    store4(out + i, v);
    return;
  }
  for (; i < n; ++i) store(out + i, to_f32(x[i]) + (base ? to_f32(base[i]) : 0.f));
}
#define CAST(F, T) \
  extern "C" __global__ void cast_##F##_##T(T* out, const T* base, const F* x, i64 n) { enter(); cast(out, base, x, n); }
CAST(f32, f32)
CAST(f32, bf16)
CAST(bf16, f32)
CAST(bf16, bf16)
