// f32 <-> bf16, eight elements a thread. Both pointers are aligned to 16 bytes, as every tensor's is; the last
// elements of a count that is no multiple of eight go one by one.

extern "C" __global__ void cast_f32_bf16(const float* __restrict__ x, bf16* __restrict__ y, i64 n) {
  i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (i + 8 <= n) {
    float v[8];
    load8(x + i, v);
    store8(y + i, v);
  } else {
    for (; i < n; i++) y[i] = to_bf16(x[i]);
  }
}

extern "C" __global__ void cast_bf16_f32(const bf16* __restrict__ x, float* __restrict__ y, i64 n) {
  i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (i + 8 <= n) {
    float v[8];
    load8(x + i, v);
    store8(y + i, v);
  } else {
    for (; i < n; i++) y[i] = to_f32(x[i]);
  }
}
