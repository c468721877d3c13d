// [batch, rows, columns] to [batch, columns, rows] through tiles of 64 x 64: both sides are read and written along
// their rows. The tile's rows are padded by one word, so that its columns are in different banks.
#define TILE 64
#define WARPS 8

template <typename T>
__device__ __forceinline__ void transpose(T* y, const T* base, const T* x, int rows, int columns) {
  __shared__ float tile[TILE][TILE + 1];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int column = TILE * blockIdx.x, row = TILE * blockIdx.y;
  i64 item = (i64)blockIdx.z * rows * columns;
  x += item;
#pragma unroll
  for (int r = warp; r < TILE; r += WARPS)
#pragma unroll
    for (int k = lane; k < TILE; k += 32)
      if (row + r < rows && column + k < columns) tile[r][k] = to_f32(x[(i64)(row + r) * columns + column + k]);
  __syncthreads();
#pragma unroll
  for (int r = warp; r < TILE; r += WARPS)
#pragma unroll
    for (int k = lane; k < TILE; k += 32)
      if (column + r < columns && row + k < rows) {
        i64 at = item + (i64)(column + r) * rows + row + k;
        store(y + at, tile[k][r] + (base ? to_f32(base[at]) : 0.f));
      }
}

#define KERNELS(T) \
  extern "C" __global__ void transpose_##T(T* y, const T* base, const T* x, int rows, int columns) { \
    enter(); \
    transpose(y, base, x, rows, columns); \
  }
KERNELS(f32)
KERNELS(bf16)
