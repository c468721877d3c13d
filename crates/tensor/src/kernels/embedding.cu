// Embedding lookup, and adding a position table to a sequence.
#define NAN __int_as_float(0x7fffffff)

// Eight elements per thread. An id outside the table gives NaN, which the finiteness check of the step detects; a
// clamped id would go unnoticed.
template <typename W, typename T>
__device__ __forceinline__ void forward(T* y, const W* table, const int* ids, i64 n, int c, int rows) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (c % 8 == 0) {
    if (i >= n) return;
    i64 at = quotient(i, c);
    int id = ids[at];
    float v[8];
    if ((u32)id < (u32)rows) {
      load8(table + (i64)id * c + (i - at * c), v);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = NAN;
    }
    store8(y + i, v);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, n); i < end; ++i) {
    i64 at = quotient(i, c);
    int id = ids[at];
    store(y + i, (u32)id < (u32)rows ? to_f32(table[(i64)id * c + (i - at * c)]) : NAN);
  }
}

// Finds the positions of each row's id, in order, without atomics: a warp takes ROWS neighbouring rows and reads
// the whole list of ids twice, first to count, then to write the positions after those of all lower ids. The list
// is short and stays in the L1 cache.
#define ROWS 4
extern "C" __global__ void embedding_places(int* places, int* starts, const int* ids, int n, int rows) {
  enter();
  int lane = threadIdx.x & 31;
  int first = ROWS * (blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5));
  if (first >= rows) return;
  int lower = 0, count[ROWS] = {};
#pragma unroll 8
  for (int i = lane; i < n; i += 32) {
    int id = ids[i];
    lower += id < first;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) count[r] += id == first + r;
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    lower += __shfl_xor_sync(FULL_MASK, lower, o);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) count[r] += __shfl_xor_sync(FULL_MASK, count[r], o);
  }
  int next[ROWS], all = 0;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    next[r] = lower + all;
    all += count[r];
    if (lane == 0 && first + r < rows) {
      starts[2 * (first + r)] = next[r];
      starts[2 * (first + r) + 1] = next[r] + count[r];
    }
  }
  if (all == 0) return;
#pragma unroll 4
  for (int from = 0; from < n; from += 32) {
    int i = from + lane;
    int id = i < n ? ids[i] : -1;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      // A row past the end of the table may match an invalid id; its positions come after all others and are not
      // read.
      u32 votes = __ballot_sync(FULL_MASK, id == first + r);
      if (id == first + r) places[next[r] + __popc(votes & ((1u << lane) - 1))] = i;
      next[r] += __popc(votes);
    }
  }
}

// A lane's eight of the 256 channels from `from`: adjacent if rows are aligned, else 32 apart.
template <typename T>
__device__ __forceinline__ void take(float v[8], const T* row, int from, int lane, int c) {
  if (c % 8 == 0) {
    int k = from + 8 * lane;
    if (k < c) {
      load8(row + k, v);
      return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = 0.f;
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    int k = from + 32 * j + lane;
    v[j] = k < c ? to_f32(row[k]) : 0.f;
  }
}
__device__ __forceinline__ void put(float* row, const float* base, float v[8], int from, int lane, int c) {
  if (base) {
    float b[8];
    take(b, base, from, lane, c);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] += b[j];
  }
  if (c % 8 == 0) {
    if (from + 8 * lane < c) store8(row + from + 8 * lane, v);
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (from + 32 * j + lane < c) row[from + 32 * j + lane] = v[j];
}

// Adds the rows at places[at], places[at + step], .. in that order, with four loads in flight.
template <typename T>
__device__ __forceinline__ void gather(
    float sum[8], const T* dy, const int* places, int at, int end, int step, int from, int lane, int c) {
#pragma unroll
  for (int j = 0; j < 8; ++j) sum[j] = 0.f;
  for (; at + 3 * step < end; at += 4 * step) {
    float v[4][8];
#pragma unroll
    for (int u = 0; u < 4; ++u) take(v[u], dy + (i64)places[at + u * step] * c, from, lane, c);
#pragma unroll
    for (int u = 0; u < 4; ++u)
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] += v[u][j];
  }
  for (; at < end; at += step) {
    float v[8];
    take(v, dy + (i64)places[at] * c, from, lane, c);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] += v[j];
  }
}

// A block takes WARPS rows of the table and 256 channels: one warp per row, but a row with many positions (padding,
// stop tokens) is shared by all warps. Unused rows get their base or zero.
#define WARPS 8
#define MANY 32
template <typename T>
__device__ __forceinline__ void table(
    float* dtable, const float* base, const T* dy, const int* places, const int* starts, int c, int rows) {
  __shared__ float parts[WARPS][8][32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int from = 256 * blockIdx.x, first = WARPS * blockIdx.y;
  float sum[8];
  int row = first + warp;
  if (row < rows) {
    int at = starts[2 * row], end = starts[2 * row + 1];
    if (end - at <= MANY) {
      gather(sum, dy, places, at, end, 1, from, lane, c);
      put(dtable + (i64)row * c, base ? base + (i64)row * c : 0, sum, from, lane, c);
    }
  }
  for (row = first; row < min(first + WARPS, rows); ++row) {
    int at = starts[2 * row], end = starts[2 * row + 1];
    if (end - at <= MANY) continue;
    gather(sum, dy, places, at + warp, end, WARPS, from, lane, c);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; ++j) parts[warp][j][lane] = sum[j];
    __syncthreads();
    if (warp == 0) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sum[j] = parts[0][j][lane];
        for (int w = 1; w < WARPS; ++w) sum[j] += parts[w][j][lane];
      }
      put(dtable + (i64)row * c, base ? base + (i64)row * c : 0, sum, from, lane, c);
    }
  }
}

// y[b, t] = x[b, t] + table[t]; `period` is time * c.
template <typename W, typename T>
__device__ __forceinline__ void positions(T* y, const T* x, const W* table, i64 n, int period) {
  i64 i = 8 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (period % 8 == 0) {
    if (i >= n) return;
    float v[8], p[8];
    load8(x + i, v);
    load8(table + (i - quotient(i, period) * period), p);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] += p[j];
    store8(y + i, v);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 8, n); i < end; ++i) store(y + i, to_f32(x[i]) + to_f32(table[i % period]));
}
// dtable[t] = base + sum over the batch; rows past the last time get their base or zero. `size` is the table's.
template <typename T>
__device__ __forceinline__ void positions_table(
    float* dtable, const float* base, const T* dy, int batch, int period, i64 size) {
  i64 i = 4 * ((i64)blockIdx.x * blockDim.x + threadIdx.x);
  if (period % 4 == 0 && i + 4 <= size) {
    float sum[4] = {0.f, 0.f, 0.f, 0.f}, v[4];
    if (i < period)
      for (int b = 0; b < batch; ++b) {
        load4(dy + (i64)b * period + i, v);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] += v[j];
      }
    if (base) {
      load4(base + i, v);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[j] += v[j];
    }
    store4(dtable + i, sum);
    return;
  }
#pragma unroll 1
  for (i64 end = min(i + 4, size); i < end; ++i) {
    float sum = 0.f;
    if (i < period)
      for (int b = 0; b < batch; ++b) sum += to_f32(dy[(i64)b * period + i]);
    dtable[i] = sum + (base ? base[i] : 0.f);
  }
}

#define FORWARD(W, T) \
  extern "C" __global__ void embedding_forward_##W##_##T( \
      T* y, const W* table, const int* ids, i64 n, int c, int rows) { \
    enter(); \
    forward(y, table, ids, n, c, rows); \
  } \
  extern "C" __global__ void add_positions_forward_##W##_##T( \
      T* y, const T* x, const W* table, i64 n, int period) { \
    enter(); \
    positions(y, x, table, n, period); \
  }
FORWARD(f32, f32)
FORWARD(f32, bf16)
FORWARD(bf16, bf16)
#define TABLE(T) \
  extern "C" __global__ void embedding_table_##T( \
      float* dtable, const float* base, const T* dy, const int* places, const int* starts, int c, int rows) { \
    enter(); \
    table(dtable, base, dy, places, starts, c, rows); \
  } \
  extern "C" __global__ void add_positions_table_##T( \
      float* dtable, const float* base, const T* dy, int batch, int period, i64 size) { \
    enter(); \
    positions_table(dtable, base, dy, batch, period, size); \
  }
TABLE(f32)
TABLE(bf16)
