// Column sums in two passes with a fixed order of addition: chunks of rows first, then the chunks.
// `sum_columns` has eight columns per lane, 256 per block; its eight warps iterate over the rows of the chunk
// together.
template <typename T>
__device__ __forceinline__ void sum_columns(float* parts, const T* x, int rows, int n, int count) {
  __shared__ float shared[8][256];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int column = blockIdx.x * 256 + 8 * lane;
  int per = (rows + count - 1) / count;
  int from = blockIdx.y * per, to = min(rows, from + per);
  float sum[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
  if (n % 8 == 0) {
    if (column < n) {
      const T* p = x + column;
      int r = from + warp;
      // Four rows in flight hide the latency of memory.
      for (; r + 24 < to; r += 32) {
        float v[4][8];
#pragma unroll
        for (int k = 0; k < 4; ++k) load8(p + (i64)(r + 8 * k) * n, v[k]);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int j = 0; j < 8; ++j) sum[j] += v[k][j];
      }
      for (; r < to; r += 8) {
        float v[8];
        load8(p + (i64)r * n, v);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[j] += v[j];
      }
    }
  } else {
    for (int r = from + warp; r < to; r += 8)
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (column + j < n) sum[j] += to_f32(x[(i64)r * n + column + j]);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) shared[warp][8 * lane + j] = sum[j];
  __syncthreads();
  column = blockIdx.x * 256 + threadIdx.x;
  if (column >= n) return;
  float all = 0.f;
#pragma unroll
  for (int w = 0; w < 8; ++w) all += shared[w][threadIdx.x];
  parts[(i64)blockIdx.y * n + column] = all;
}
extern "C" __global__ void __launch_bounds__(256) sum_columns_f32(
    float* parts, const f32* x, int rows, int n, int count) {
  enter();
  sum_columns(parts, x, rows, n, count);
}
extern "C" __global__ void __launch_bounds__(256) sum_columns_bf16(
    float* parts, const bf16* x, int rows, int n, int count) {
  enter();
  sum_columns(parts, x, rows, n, count);
}

// out = base + the sum over `count` parts of n floats, for many such sums at once. The first `n0` columns of a sum
// are one output, the rest another. 32 columns per block, whose warps share the parts, because the kernel is bound
// by latency.
struct Sum {
  float* out0;
  const float* base0;
  float* out1;
  const float* base1;
  const float* parts;
  int n0, n, count, block;
};
struct Sums { Sum of[64]; };
extern "C" __global__ void __launch_bounds__(1024) sum_parts(int many, const __grid_constant__ Sums sums) {
  enter();
  __shared__ float shared[32][33];
  int i = 0;
  while (i + 1 < many && sums.of[i + 1].block <= (int)blockIdx.x) ++i;
  const Sum& sum_of = sums.of[i];
  int n = sum_of.n, first_column = 32 * ((int)blockIdx.x - sum_of.block);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, column = first_column + lane;
  float sum = 0.f;
  if (column < n) {
    const float* parts = sum_of.parts;
    int count = sum_of.count;
#pragma unroll 4
    for (int p = warp; p < count; p += 32) sum += parts[(i64)p * n + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  // Transposed, so that a warp adds up one column.
  column = first_column + warp;
  sum = warp_sum(shared[lane][warp]);
  if (lane != 0 || column >= n) return;
  bool first = column < sum_of.n0;
  int at = first ? column : column - sum_of.n0;
  const float* base = first ? sum_of.base0 : sum_of.base1;
  (first ? sum_of.out0 : sum_of.out1)[at] = sum + (base ? base[at] : 0.f);
}
