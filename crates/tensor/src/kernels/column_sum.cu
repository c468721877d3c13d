// Sums of columns in two passes with one order: stretches of rows first, then the stretches.
// A thread holds two neighbouring columns, so a warp reads 64 neighbours at once.
template <typename T>
__device__ __forceinline__ void column_sum(float* parts, const T* x, int rows, int n, int count) {
  int column = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= n) return;
  int per = (rows + count - 1) / count;
  int from = blockIdx.y * per, to = min(rows, from + per);
  float a = 0.f, b = 0.f;
  bool pair = column + 1 < n;
  for (int r = from; r < to; ++r) {
    const T* p = x + (i64)r * n + column;
    a += to_f32(p[0]);
    if (pair) b += to_f32(p[1]);
  }
  parts[(i64)blockIdx.y * n + column] = a;
  if (pair) parts[(i64)blockIdx.y * n + column + 1] = b;
}
extern "C" __global__ void column_sum_f32(float* parts, const f32* x, int rows, int n, int count) {
  column_sum(parts, x, rows, n, count);
}
extern "C" __global__ void column_sum_bf16(float* parts, const bf16* x, int rows, int n, int count) {
  column_sum(parts, x, rows, n, count);
}
extern "C" __global__ void column_sum_parts(float* out, const float* base, const float* parts, int n, int count) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= n) return;
  float sum = base ? base[column] : 0.f;
  for (int i = 0; i < count; ++i) sum += parts[(i64)i * n + column];
  out[column] = sum;
}
