// Norms whose statistics cover rows: group norm, instance norm, batch norm. x is [item][row][channel].
//
// All passes over x use the same layout: a block of 128 threads takes `per` rows of one item (blockIdx.y,
// blockIdx.z) and `across` neighbouring vectors of V channels; the remaining threads process further rows, so that
// few channels fill a block too. Values per channel are loaded once and stay in registers over the rows. The order
// of addition is fixed: rows in a thread, threads of a column in a block, then the blocks' parts
// [item][part][2][c].
#define THREADS 128

struct Place {
  int column, first, step, from, to, part;
  i64 item;
  bool here;
};
template <int V>
__device__ __forceinline__ Place place(int rows, int c, int across, int per) {
  Place p;
  int down = THREADS / across;
  p.column = V * (blockIdx.x * across + threadIdx.x % across);
  p.step = down;
  p.from = blockIdx.y * per;
  p.to = min(rows, p.from + per);
  p.part = blockIdx.y;
  p.item = blockIdx.z;
  p.first = p.from + threadIdx.x / across;
  p.here = p.column < c;
  return p;
}

template <int V, typename T>
__device__ __forceinline__ void load(const T* p, float v[V]) {
  if constexpr (V == 8) load8(p, v);
  else v[0] = to_f32(*p);
}
template <int V, typename T>
__device__ __forceinline__ void put(T* p, const float v[V]) {
  if constexpr (V == 8) store8(p, v);
  else store(p, v[0]);
}
// A group's statistics, for each of a thread's channels.
template <int V>
__device__ __forceinline__ void of_groups(const float* values, int column, int size, float v[V]) {
#pragma unroll
  for (int j = 0; j < V; ++j) v[j] = values[(column + j) / size];
}

// Adds up the threads of one column; the first of them has the sums.
template <int V>
__device__ __forceinline__ void join(float a[V], float b[V], int across) {
  __shared__ float shared[2 * V * THREADS];
  int down = THREADS / across;
  if (down == 1) return;
  float* mine = shared + threadIdx.x;
#pragma unroll
  for (int j = 0; j < V; ++j) { mine[j * THREADS] = a[j]; mine[(V + j) * THREADS] = b[j]; }
  for (int o = down / 2; o > 0; o >>= 1) {
    __syncthreads();
    if ((int)threadIdx.x < o * across)
#pragma unroll
      for (int j = 0; j < 2 * V; ++j) mine[j * THREADS] += mine[j * THREADS + o * across];
  }
#pragma unroll
  for (int j = 0; j < V; ++j) { a[j] = mine[j * THREADS]; b[j] = mine[(V + j) * THREADS]; }
}

// Mean and sum of squared deviations of each channel in each stretch of rows. Deviations are relative to the
// stretch's first row, so that a large mean does not cancel the variance's digits.
template <int V, typename T>
__device__ __forceinline__ void moments(float* parts, const T* x, int rows, int c, int across, int per) {
  Place p = place<V>(rows, c, across, per);
  x += p.item * rows * c + p.column;
  float from[V], sum[V] = {}, square[V] = {};
  if (p.here) {
    load<V>(x + (i64)p.from * c, from);
    for (int r = p.first; r < p.to; r += p.step) {
      float v[V];
      load<V>(x + (i64)r * c, v);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        float d = v[j] - from[j];
        sum[j] += d;
        square[j] += d * d;
      }
    }
  }
  join<V>(sum, square, across);
  if (!p.here || (int)threadIdx.x >= across) return;
  float* out = parts + (p.item * gridDim.y + p.part) * 2 * c + p.column;
  float n = p.to - p.from;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    out[j] = from[j] + sum[j] / n;
    out[c + j] = fmaxf(square[j] - sum[j] * sum[j] / n, 0.f);
  }
}

// One warp per group of an item: combines `count` stretches of each of its channels. The running statistics, if
// there are any, move towards this step's; their variance is the unbiased one (over n - 1).
extern "C" __global__ void channel_norm_statistics(
    float* mean, float* inverse, const float* parts, int all, int groups, int rows, int c, int per, int count,
    float epsilon, float* next_mean, float* next_variance, const float* old_mean, const float* old_variance,
    float momentum) {
  enter();
  int g = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
  if (g >= all) return;
  int size = c / groups, item = g / groups, n = count * size;
  parts += (i64)item * count * 2 * c + (g - item * groups) * size;
  float total = (float)rows * size, sum = 0.f, square = 0.f;
  for (int e = lane; e < n; e += 32) {
    int p = e / size;
    float weight = min(per, rows - p * per);
    sum += weight * parts[(i64)p * 2 * c + (e - p * size)];
  }
  float m = warp_sum(sum) / total;
  for (int e = lane; e < n; e += 32) {
    int p = e / size;
    float weight = min(per, rows - p * per);
    const float* part = parts + (i64)p * 2 * c + (e - p * size);
    float d = part[0] - m;
    square += part[c] + weight * d * d;
  }
  square = warp_sum(square);
  if (lane) return;
  mean[g] = m;
  inverse[g] = rsqrtf(square / total + epsilon);
  if (!next_mean) return;
  next_mean[g] = (1.f - momentum) * old_mean[g] + momentum * m;
  next_variance[g] = (1.f - momentum) * old_variance[g] + momentum * square / fmaxf(total - 1.f, 1.f);
}

// In inference the statistics are the running ones.
extern "C" __global__ void channel_norm_running(
    float* mean, float* inverse, const float* running_mean, const float* running_variance, int c, float epsilon) {
  enter();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c) return;
  mean[i] = running_mean[i];
  inverse[i] = rsqrtf(running_variance[i] + epsilon);
}

template <int V, typename T>
__device__ __forceinline__ void apply(
    T* y, const T* x, const float* w, const float* b, const float* mean, const float* inverse, int rows, int c,
    int groups, int across, int per) {
  Place p = place<V>(rows, c, across, per);
  if (!p.here) return;
  float m[V], s[V], scale[V], shift[V];
  of_groups<V>(mean + p.item * groups, p.column, c / groups, m);
  of_groups<V>(inverse + p.item * groups, p.column, c / groups, s);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    scale[j] = w ? s[j] * w[p.column + j] : s[j];
    shift[j] = b ? b[p.column + j] : 0.f;
  }
  i64 at = p.item * rows * c + p.column;
  for (int r = p.first; r < p.to; r += p.step) {
    float v[V];
    load<V>(x + at + (i64)r * c, v);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = (v[j] - m[j]) * scale[j] + shift[j];
    put<V>(y + at + (i64)r * c, v);
  }
}

// For each channel in each stretch of rows: the sum of dy, and of dy times the normalised x.
template <int V, typename T>
__device__ __forceinline__ void products(
    float* parts, const T* x, const T* dy, const float* mean, const float* inverse, int rows, int c, int groups,
    int across, int per) {
  Place p = place<V>(rows, c, across, per);
  float sum[V] = {}, product[V] = {};
  if (p.here) {
    float m[V], s[V];
    of_groups<V>(mean + p.item * groups, p.column, c / groups, m);
    of_groups<V>(inverse + p.item * groups, p.column, c / groups, s);
    i64 at = p.item * rows * c + p.column;
    for (int r = p.first; r < p.to; r += p.step) {
      float v[V], g[V];
      load<V>(x + at + (i64)r * c, v);
      load<V>(dy + at + (i64)r * c, g);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        sum[j] += g[j];
        product[j] += g[j] * (v[j] - m[j]) * s[j];
      }
    }
  }
  join<V>(sum, product, across);
  if (!p.here || (int)threadIdx.x >= across) return;
  float* out = parts + (p.item * gridDim.y + p.part) * 2 * c + p.column;
#pragma unroll
  for (int j = 0; j < V; ++j) { out[j] = sum[j]; out[c + j] = product[j]; }
}

// One warp per group of an item: the means of dy w and of dy w h, which are subtracted in the gradient of x.
extern "C" __global__ void channel_norm_means(
    float* sums, float* products, const float* parts, const float* w, int all, int groups, int rows, int c, int count) {
  enter();
  int g = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
  if (g >= all) return;
  int size = c / groups, item = g / groups, n = count * size, start = (g - item * groups) * size;
  parts += (i64)item * count * 2 * c + start;
  float a = 0.f, b = 0.f;
  for (int e = lane; e < n; e += 32) {
    int p = e / size, k = e - p * size;
    float weight = w ? w[start + k] : 1.f;
    const float* part = parts + (i64)p * 2 * c + k;
    a += weight * part[0];
    b += weight * part[c];
  }
  float total = (float)rows * size;
  a = warp_sum(a);
  b = warp_sum(b);
  if (lane == 0) { sums[g] = a / total; products[g] = b / total; }
}

// Without `sums` the statistics are constants.
template <int V, typename T>
__device__ __forceinline__ void input(
    T* dx, const T* base, const T* x, const T* dy, const float* w, const float* mean, const float* inverse,
    const float* sums, const float* products, int rows, int c, int groups, int across, int per) {
  Place p = place<V>(rows, c, across, per);
  if (!p.here) return;
  float m[V], s[V], scale[V], a[V] = {}, b[V] = {};
  of_groups<V>(mean + p.item * groups, p.column, c / groups, m);
  of_groups<V>(inverse + p.item * groups, p.column, c / groups, s);
  if (sums) {
    of_groups<V>(sums + p.item * groups, p.column, c / groups, a);
    of_groups<V>(products + p.item * groups, p.column, c / groups, b);
  }
#pragma unroll
  for (int j = 0; j < V; ++j) scale[j] = w ? w[p.column + j] : 1.f;
  i64 at = p.item * rows * c + p.column;
  for (int r = p.first; r < p.to; r += p.step) {
    float v[V], g[V], base_v[V] = {};
    load<V>(x + at + (i64)r * c, v);
    load<V>(dy + at + (i64)r * c, g);
    if (base) load<V>(base + at + (i64)r * c, base_v);
#pragma unroll
    for (int j = 0; j < V; ++j)
      g[j] = base_v[j] + s[j] * (g[j] * scale[j] - a[j] - (v[j] - m[j]) * s[j] * b[j]);
    put<V>(dx + at + (i64)r * c, g);
  }
}

// Sums the columns of `parts` (rows of 2 c): 32 columns per block, eight threads per column.
extern "C" __global__ void channel_norm_weights(
    float* dw, const float* base_w, float* db, const float* base_b, const float* parts, int c, int count) {
  enter();
  __shared__ float shared[8][32];
  int lane = threadIdx.x & 31, slice = threadIdx.x >> 5, i = blockIdx.x * 32 + lane;
  float sum = 0.f;
  if (i < 2 * c)
    for (int p = slice; p < count; p += 8) sum += parts[(i64)p * 2 * c + i];
  shared[slice][lane] = sum;
  __syncthreads();
  if (slice || i >= 2 * c) return;
  bool weight = i >= c;
  int k = weight ? i - c : i;
  const float* base = weight ? base_w : base_b;
  sum = base ? base[k] : 0.f;
#pragma unroll
  for (int j = 0; j < 8; ++j) sum += shared[j][lane];
  (weight ? dw : db)[k] = sum;
}

#define KERNELS(T, V, NAME) \
  extern "C" __global__ void __launch_bounds__(THREADS) channel_norm_moments_##NAME( \
      float* parts, const T* x, int rows, int c, int across, int per) { \
    enter(); \
    moments<V>(parts, x, rows, c, across, per); \
  } \
  extern "C" __global__ void __launch_bounds__(THREADS) channel_norm_apply_##NAME( \
      T* y, const T* x, const float* w, const float* b, const float* mean, const float* inverse, int rows, int c, \
      int groups, int across, int per) { \
    enter(); \
    apply<V>(y, x, w, b, mean, inverse, rows, c, groups, across, per); \
  } \
  extern "C" __global__ void __launch_bounds__(THREADS) channel_norm_products_##NAME( \
      float* parts, const T* x, const T* dy, const float* mean, const float* inverse, int rows, int c, int groups, \
      int across, int per) { \
    enter(); \
    products<V>(parts, x, dy, mean, inverse, rows, c, groups, across, per); \
  } \
  extern "C" __global__ void __launch_bounds__(THREADS) channel_norm_input_##NAME( \
      T* dx, const T* base, const T* x, const T* dy, const float* w, const float* mean, const float* inverse, \
      const float* sums, const float* products, int rows, int c, int groups, int across, int per) { \
    enter(); \
    input<V>(dx, base, x, dy, w, mean, inverse, sums, products, rows, c, groups, across, per); \
  }
KERNELS(f32, 8, f32)
KERNELS(bf16, 8, bf16)
KERNELS(f32, 1, odd_f32)
KERNELS(bf16, 1, odd_bf16)
