// Softmax over time: one channel per eight threads of a block.

// Of 256 threads, 32 are side by side on channels and eight share a channel, each with every eighth time step.
#define DOWN 8

// Beyond an item's length y is zero, and x is not read.
template <typename T>
__device__ __forceinline__ void time_forward(T* y, const T* x, const int* lengths, int time, int c) {
  __shared__ float shared[2][DOWN][32];
  int lane = threadIdx.x & 31, slice = threadIdx.x >> 5, column = blockIdx.x * 32 + lane, item = blockIdx.y;
  int length = lengths ? max(0, min(lengths[item], time)) : time;
  i64 start = (i64)item * time * c + column;
  bool here = column < c;
  float most = -INF, sum = 0.f;
  if (here) {
    for (int t = slice; t < length; t += DOWN) most = fmaxf(most, to_f32(x[start + (i64)t * c]));
    for (int t = slice; t < length; t += DOWN) sum += __expf(to_f32(x[start + (i64)t * c]) - most);
  }
  shared[0][slice][lane] = most;
  shared[1][slice][lane] = sum;
  __syncthreads();
  if (!here) return;
#pragma unroll
  for (int s = 0; s < DOWN; ++s) most = fmaxf(most, shared[0][s][lane]);
  sum = 0.f;
#pragma unroll
  for (int s = 0; s < DOWN; ++s)
    if (shared[1][s][lane] > 0.f) sum += shared[1][s][lane] * __expf(shared[0][s][lane] - most);
  sum = 1.f / sum;
  for (int t = slice; t < time; t += DOWN) {
    i64 at = start + (i64)t * c;
    store(y + at, t < length ? __expf(to_f32(x[at]) - most) * sum : 0.f);
  }
}
template <typename T>
__device__ __forceinline__ void time_backward(T* dx, const T* base, const T* y, const T* dy, int time, int c) {
  __shared__ float shared[DOWN][32];
  int lane = threadIdx.x & 31, slice = threadIdx.x >> 5, column = blockIdx.x * 32 + lane;
  i64 start = (i64)blockIdx.y * time * c + column;
  bool here = column < c;
  float along = 0.f;
  if (here)
    for (int t = slice; t < time; t += DOWN) along += to_f32(dy[start + (i64)t * c]) * to_f32(y[start + (i64)t * c]);
  shared[slice][lane] = along;
  __syncthreads();
  if (!here) return;
  along = 0.f;
#pragma unroll
  for (int s = 0; s < DOWN; ++s) along += shared[s][lane];
  for (int t = slice; t < time; t += DOWN) {
    i64 at = start + (i64)t * c;
    store(dx + at, (base ? to_f32(base[at]) : 0.f) + to_f32(y[at]) * (to_f32(dy[at]) - along));
  }
}

#define KERNELS(T) \
  extern "C" __global__ void softmax_time_forward_##T(T* y, const T* x, const int* lengths, int time, int c) { \
    enter(); \
    time_forward(y, x, lengths, time, c); \
  } \
  extern "C" __global__ void softmax_time_backward_##T( \
      T* dx, const T* base, const T* y, const T* dy, int time, int c) { \
    enter(); \
    time_backward(dx, base, y, dy, time, c); \
  }
KERNELS(f32)
KERNELS(bf16)
