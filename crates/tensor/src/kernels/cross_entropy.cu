// Softmax cross-entropy over rows. A row with an odd number of classes may start unaligned, so each block processes
// the elements before the first 16-byte boundary one by one, then eight at a time, then the remaining ones.
#define LOG2E 1.4426950408889634f

__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Number of elements before the boundary; n if there are fewer.
template <typename T>
__device__ __forceinline__ int head(const T* p, int n) {
  int off = (int)((u64)p & 15) / (int)sizeof(T);
  return min(n, off == 0 ? 0 : 16 / (int)sizeof(T) - off);
}

// What a thread has seen: the largest logit and its index (the first of its eight), the sum of exponentials
// relative to it, the plain sum.
struct Seen {
  float top, exponentials, sum;
  int at;
};
template <int N>
__device__ __forceinline__ void see(Seen& seen, const float* v, int at) {
  float top = v[0];
#pragma unroll
  for (int j = 1; j < N; ++j) top = fmaxf(top, v[j]);
  if (top > seen.top) {
    seen.exponentials *= power_of_2((seen.top - top) * LOG2E);
    seen.top = top;
    seen.at = at;
  }
  // Classes masked out by -inf contribute nothing; alone they would give inf - inf.
  float from = seen.top == -INF ? 0.f : seen.top;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    seen.exponentials += power_of_2((v[j] - from) * LOG2E);
    seen.sum += v[j];
  }
}

template <typename T>
__device__ __forceinline__ void forward(
    float* losses, float* logs, float* hits, const T* x, const int* targets, int n, float smoothing) {
  __shared__ float shared[33];
  int row = blockIdx.x, target = targets[row];
  if (target < 0) {
    if (threadIdx.x == 0) losses[row] = logs[row] = hits[row] = 0.f;
    return;
  }
  x += (i64)row * n;
  Seen seen = {-INF, 0.f, 0.f, 0};
  int body = head(x, n), tail = body + (n - body) / 8 * 8;
  for (int i = threadIdx.x; i < body; i += blockDim.x) {
    float v = to_f32(x[i]);
    see<1>(seen, &v, i);
  }
#pragma unroll 2
  for (int i = body + 8 * threadIdx.x; i < tail; i += 8 * blockDim.x) {
    float v[8];
    load8(x + i, v);
    see<8>(seen, v, i);
  }
  for (int i = tail + threadIdx.x; i < n; i += blockDim.x) {
    float v = to_f32(x[i]);
    see<1>(seen, &v, i);
  }
  float top = block_max(seen.top, shared);
  float scaled = seen.top == -INF ? 0.f : seen.exponentials * power_of_2((seen.top - top) * LOG2E);
  // A thread that saw only NaN has no maximum; its sum must not be lost.
  if (seen.exponentials != seen.exponentials) scaled = seen.exponentials;
  float log = top + logf(block_sum(scaled, shared));
  float sum = smoothing > 0.f ? block_sum(seen.sum, shared) : 0.f;
  // Of equal logits the first is the prediction.
  float first = -INF;
  if (seen.top == top) {
    int at = seen.at;
    for (int end = min(at + 8, n); at + 1 < end && to_f32(x[at]) != top; ++at) {}
    first = -(float)at;
  }
  first = block_max(first, shared);
  if (threadIdx.x == 0) {
    logs[row] = log;
    hits[row] = -first == (float)target ? 1.f : 0.f;
    // A target outside the classes gives NaN, which the finiteness check of the step detects.
    float own = target < n ? to_f32(x[target]) : __int_as_float(0x7fffffff);
    losses[row] = log - (1.f - smoothing) * own - (smoothing > 0.f ? smoothing * (sum / n) : 0.f);
  }
}

// One block adds everything, each thread its rows in order.
extern "C" __global__ void cross_entropy_sum(
    float* loss, float* correct, float* count, const float* losses, const float* hits, const int* targets, int rows) {
  enter();
  __shared__ float shared[33];
  float a = 0.f, b = 0.f;
  int c = 0;
  for (int i = threadIdx.x; i < rows; i += blockDim.x) {
    a += losses[i];
    b += hits[i];
    c += targets[i] >= 0;
  }
  a = block_sum(a, shared);
  b = block_sum(b, shared);
  float all = block_sum((float)c, shared);
  if (threadIdx.x == 0) {
    *loss = all > 0.f ? a / all : 0.f;
    *correct = b;
    *count = all;
  }
}

template <typename T>
__device__ __forceinline__ void backward(
    T* dx, const T* base, const T* x, const int* targets, const float* logs, const float* count, const float* d, int n,
    float smoothing) {
  int row = blockIdx.x, target = targets[row];
  i64 start = (i64)row * n;
  x += start;
  dx += start;
  if (base) base += start;
  bool counts = target >= 0;
  float scale = counts ? *d / *count : 0.f, log = logs[row];
  float even = smoothing / n, own = (1.f - smoothing) * scale;
  // One boundary for all three: they have the same shape, and values start aligned.
  int body = head(x, n), tail = body + (n - body) / 8 * 8;
  int odd = body + (n - tail);
  for (int k = threadIdx.x; k < odd; k += blockDim.x) {
    int i = k < body ? k : tail + (k - body);
    float g = counts ? scale * (power_of_2((to_f32(x[i]) - log) * LOG2E) - even) : 0.f;
    if (i == target) g -= own;
    store(dx + i, g + (base ? to_f32(base[i]) : 0.f));
  }
#pragma unroll 2
  for (int i = body + 8 * threadIdx.x; i < tail; i += 8 * blockDim.x) {
    float v[8];
    if (counts) {
      load8(x + i, v);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = scale * (power_of_2((v[j] - log) * LOG2E) - even);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] -= i + j == target ? own : 0.f;
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = 0.f;
    }
    if (base) {
      float b[8];
      load8(base + i, b);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += b[j];
    }
    store8(dx + i, v);
  }
}

#define KERNELS(T) \
  extern "C" __global__ void cross_entropy_forward_##T( \
      float* losses, float* logs, float* hits, const T* x, const int* targets, int n, float smoothing) { \
    enter(); \
    forward(losses, logs, hits, x, targets, n, smoothing); \
  } \
  extern "C" __global__ void cross_entropy_backward_##T( \
      T* dx, const T* base, const T* x, const int* targets, const float* logs, const float* count, const float* d, \
      int n, float smoothing) { \
    enter(); \
    backward(dx, base, x, targets, logs, count, d, n, smoothing); \
  }
KERNELS(f32)
KERNELS(bf16)
