// A sum of products in two passes with a fixed order of addition.
template <typename T>
__device__ __forceinline__ void dot(float* parts, const T* x, const float* w, i64 n) {
  __shared__ float shared[33];
  float sum = 0.f;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x)
    sum += to_f32(x[i]) * w[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
extern "C" __global__ void dot_f32(float* parts, const f32* x, const float* w, i64 n) { enter(); dot(parts, x, w, n); }
extern "C" __global__ void dot_bf16(float* parts, const bf16* x, const float* w, i64 n) { enter(); dot(parts, x, w, n); }
extern "C" __global__ void dot_parts(float* out, const float* plus, const float* parts, int count) {
  enter();
  __shared__ float shared[33];
  float sum = (int)threadIdx.x < count ? parts[threadIdx.x] : 0.f;
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) *out = sum + (plus ? *plus : 0.f);
}
template <typename T>
__device__ __forceinline__ void dot_backward(T* dx, const T* base, const float* w, const float* d, i64 n) {
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) store(dx + i, (base ? to_f32(base[i]) : 0.f) + w[i] * *d);
}
extern "C" __global__ void dot_backward_f32(f32* dx, const f32* base, const float* w, const float* d, i64 n) {
  enter();
  dot_backward(dx, base, w, d, n);
}
extern "C" __global__ void dot_backward_bf16(bf16* dx, const bf16* base, const float* w, const float* d, i64 n) {
  enter();
  dot_backward(dx, base, w, d, n);
}
