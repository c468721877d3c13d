// Attention in f32 without tensor cores, any head size up to 128 that is a multiple of 4. A block of 128 threads
// owns 32 rows, four threads per row, and streams tiles of 16. Pointers must be aligned to 16 bytes, strides
// multiples of 4. `dim` is rounded up to 16 in shared memory, padded with zeros; 4 more floats per row keep 8 rows
// in different banks. Launch as described in attention_bf16.cu with ROWS = 32; with pitch = ceil(dim / 16) * 16 +
// 4, bytes of dynamic shared memory are (64 * pitch + 544) * 4 forward, (96 * pitch + 544) * 4 backward_q, (96 *
// pitch + 1088) * 4 backward_kv.
#define OWNED 32
#define STREAMED 16
#define PIECES 8  // of 16 channels, at most

struct Slab {  // rows of f32 in shared memory
  float* base;
  int pitch;
  __device__ __forceinline__ const float4* at(int row, int channel) const {
    return reinterpret_cast<const float4*>(base + row * pitch + channel);
  }
  __device__ __forceinline__ void load(const float* from, int stride, int rows, int first, int end, int dim) const {
    int quads = (pitch - 4) / 4;
#pragma unroll 2
    for (int i = threadIdx.x; i < rows * quads; i += 128) {
      int row = i / quads, c = i % quads * 4;
      float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
      if (first + row < end && c < dim) x = *reinterpret_cast<const float4*>(from + (i64)(first + row) * stride + c);
      *reinterpret_cast<float4*>(base + row * pitch + c) = x;
    }
  }
  __device__ __forceinline__ Slab after(int rows) const { return {base + rows * pitch, pitch}; }
};
__device__ __forceinline__ Slab first_slab(int dim) {
  return {reinterpret_cast<float*>(shared_memory), (dim + 15) / 16 * 16 + 4};
}
// This thread's 4 scores of its row, with streamed rows c, c + 4, c + 8, c + 12.
__device__ __forceinline__ void dot_rows(float (&s)[4], Slab own, Slab streamed, int row, int c) {
  s[0] = s[1] = s[2] = s[3] = 0.f;
#pragma unroll 2
  for (int d = 0; d < own.pitch - 4; d += 4) {
    float4 a = *own.at(row, d);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float4 b = *streamed.at(c + 4 * j, d);
      s[j] = fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, s[j]))));
    }
  }
}
// acc += the row's 16 weights times the streamed rows; a thread has channels 16 i + 4 c .. + 3.
__device__ __forceinline__ void add_rows(float (&acc)[PIECES][4], const float* weights, Slab streamed, int c) {
#pragma unroll 2
  for (int n = 0; n < STREAMED; ++n) {
    float w = weights[n];
#pragma unroll
    for (int i = 0; i < PIECES; ++i)
      if (16 * i < streamed.pitch - 4) {
        float4 x = *streamed.at(n, 16 * i + 4 * c);
        acc[i][0] = fmaf(w, x.x, acc[i][0]);
        acc[i][1] = fmaf(w, x.y, acc[i][1]);
        acc[i][2] = fmaf(w, x.z, acc[i][2]);
        acc[i][3] = fmaf(w, x.w, acc[i][3]);
      }
  }
}
__device__ __forceinline__ void store_row(float* to, const float (&acc)[PIECES][4], float factor, int c, int dim) {
#pragma unroll
  for (int i = 0; i < PIECES; ++i)
    if (16 * i + 4 * c < dim) {
      float x[4] = {acc[i][0] * factor, acc[i][1] * factor, acc[i][2] * factor, acc[i][3] * factor};
      store4(to + 16 * i + 4 * c, x);
    }
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(FULL_MASK, x, 1);
  return x + __shfl_xor_sync(FULL_MASK, x, 2);
}

extern "C" __global__ void __launch_bounds__(128)
    attention_forward_f32(View<const float> q, View<const float> k, View<const float> v, View<float> o, float* lse,
                          const int* key_lengths, const int* key_mask, int batches, int heads, int tq, int tk,
                          int causal, float scale, int dim) {
  enter();
  int r = threadIdx.x >> 2, c = threadIdx.x & 3, shift = tk - tq;
  Place place = find_place((tq + OWNED - 1) / OWNED, heads, batches, causal != 0);
  int first_row = place.tile * OWNED, row = first_row + r, keys = count_keys(key_lengths, place.batch, tk);
  if (causal) keys = min(keys, min(first_row + OWNED, tq) + shift);
  const int* mask = key_mask ? key_mask + (i64)place.batch * tk : nullptr;
  Slab query = first_slab(dim), key = query.after(OWNED), value = key.after(STREAMED);
  float* weights = value.after(STREAMED).base + r * (STREAMED + 1);
  query.load(q.at(place.batch, place.head), q.time, OWNED, first_row, tq, dim);

  float acc[PIECES][4] = {}, top = -INF, sum = 0.f;
  for (int first = 0; first < keys; first += STREAMED) {
    __syncthreads();
    key.load(k.at(place.batch, place.head), k.time, STREAMED, first, keys, dim);
    value.load(v.at(place.batch, place.head), v.time, STREAMED, first, keys, dim);
    __syncthreads();
    float s[4], high = top;
    dot_rows(s, query, key, r, c);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int n = first + c + 4 * j;
      bool seen = n < keys && (!causal || n <= row + shift) && (!mask || mask[n] != 0);
      s[j] = seen ? s[j] * scale : -INF;
      high = fmaxf(high, s[j]);
    }
    high = fmaxf(high, __shfl_xor_sync(FULL_MASK, high, 1));
    high = fmaxf(high, __shfl_xor_sync(FULL_MASK, high, 2));
    float ratio = high == -INF ? 1.f : expf(top - high), base = high == -INF ? 0.f : high;
    top = high;
    sum *= ratio;
#pragma unroll
    for (int i = 0; i < PIECES; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][e] *= ratio;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float p = expf(s[j] - base);
      sum += p;
      weights[c + 4 * j] = p;
    }
    __syncwarp();
    add_rows(acc, weights, value, c);
  }
  sum = quad_sum(sum);
  if (row >= tq) return;
  if (c == 0) lse[((i64)place.batch * heads + place.head) * tq + row] = sum == 0.f ? INF : top + logf(sum);
  store_row(o.at(place.batch, place.head) + (i64)row * o.time, acc, sum == 0.f ? 0.f : 1.f / sum, c, dim);
}

extern "C" __global__ void __launch_bounds__(128)
    attention_backward_q_f32(View<const float> q, View<const float> k, View<const float> v, View<const float> o,
                             View<const float> grad, View<float> dq, const float* lse, float* delta,
                             const int* key_lengths, const int* key_mask, int batches, int heads, int tq, int tk,
                             int causal, float scale, int dim) {
  enter();
  int r = threadIdx.x >> 2, c = threadIdx.x & 3, shift = tk - tq;
  Place place = find_place((tq + OWNED - 1) / OWNED, heads, batches, causal != 0);
  int first_row = place.tile * OWNED, row = first_row + r, keys = count_keys(key_lengths, place.batch, tk);
  if (causal) keys = min(keys, min(first_row + OWNED, tq) + shift);
  const int* mask = key_mask ? key_mask + (i64)place.batch * tk : nullptr;
  Slab query = first_slab(dim), gradient = query.after(OWNED), key = gradient.after(OWNED);
  Slab value = key.after(STREAMED);
  float* weights = value.after(STREAMED).base + r * (STREAMED + 1);
  query.load(q.at(place.batch, place.head), q.time, OWNED, first_row, tq, dim);
  gradient.load(grad.at(place.batch, place.head), grad.time, OWNED, first_row, tq, dim);
  __syncthreads();
  i64 at = ((i64)place.batch * heads + place.head) * tq + row;
  float row_lse = row < tq ? lse[at] : INF, row_delta = 0.f;
  if (!causal) {
    // The mean of dp under the weights themselves, not do . o: where one weight is 1 they differ by rounding alone, but
    // large keys multiply that difference, and layers without norms between them (the perceiver's) multiply it again.
    float mass = 0.f;
    for (int first = 0; first < keys; first += STREAMED) {
      __syncthreads();
      key.load(k.at(place.batch, place.head), k.time, STREAMED, first, keys, dim);
      value.load(v.at(place.batch, place.head), v.time, STREAMED, first, keys, dim);
      __syncthreads();
      float s[4], dp[4];
      dot_rows(s, query, key, r, c);
      dot_rows(dp, gradient, value, r, c);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        int n = first + c + 4 * j;
        if (n >= keys || (mask && mask[n] == 0)) continue;
        float p = expf(fminf(__fmul_rn(s[j], scale) - row_lse, 0.f));
        mass += p;
        row_delta = fmaf(p, dp[j], row_delta);
      }
    }
    mass = quad_sum(mass);
    row_delta = quad_sum(row_delta);  // by all lanes: rows past the last query have no mass
    row_delta = mass == 0.f ? 0.f : row_delta / mass;
  } else if (row < tq) {
#pragma unroll 1
    for (int d = 4 * c; d < dim; d += 16) {
      float x[4];
      load4(o.at(place.batch, place.head) + (i64)row * o.time + d, x);
      float4 y = *gradient.at(r, d);
      row_delta += x[0] * y.x + x[1] * y.y + x[2] * y.z + x[3] * y.w;
    }
  }
  if (causal) row_delta = quad_sum(row_delta);
  if (row < tq && c == 0) delta[at] = row_delta;

  float acc[PIECES][4] = {};
  for (int first = 0; first < keys; first += STREAMED) {
    __syncthreads();
    key.load(k.at(place.batch, place.head), k.time, STREAMED, first, keys, dim);
    value.load(v.at(place.batch, place.head), v.time, STREAMED, first, keys, dim);
    __syncthreads();
    float s[4], dp[4];
    dot_rows(s, query, key, r, c);
    dot_rows(dp, gradient, value, r, c);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int n = first + c + 4 * j;
      bool seen = n < keys && (!causal || n <= row + shift) && (!mask || mask[n] != 0);
      weights[c + 4 * j] = seen ? expf(fminf(__fmul_rn(s[j], scale) - row_lse, 0.f)) * (dp[j] - row_delta) : 0.f;
    }
    __syncwarp();
    add_rows(acc, weights, key, c);
  }
  if (row < tq) store_row(dq.at(place.batch, place.head) + (i64)row * dq.time, acc, scale, c, dim);
}

extern "C" __global__ void __launch_bounds__(128)
    attention_backward_kv_f32(View<const float> q, View<const float> k, View<const float> v, View<const float> grad,
                              View<float> dk, View<float> dv, const float* lse, const float* delta,
                              const int* key_lengths, const int* key_mask, int batches, int heads, int tq, int tk,
                              int causal, float scale, int dim) {
  enter();
  int r = threadIdx.x >> 2, c = threadIdx.x & 3, shift = tk - tq;
  Place place = find_place((tk + OWNED - 1) / OWNED, heads, batches, false);
  int first_row = place.tile * OWNED, row = first_row + r, keys = count_keys(key_lengths, place.batch, tk);
  int begin = causal ? max(0, first_row - shift) / STREAMED * STREAMED : 0, end = first_row < keys ? tq : 0;
  bool seen = row < keys && (!key_mask || key_mask[(i64)place.batch * tk + row] != 0);
  Slab key = first_slab(dim), value = key.after(OWNED), query = value.after(OWNED);
  Slab gradient = query.after(STREAMED);
  float* weights = gradient.after(STREAMED).base + r * (STREAMED + 1);
  float* weights_k = weights + OWNED * (STREAMED + 1);
  key.load(k.at(place.batch, place.head), k.time, OWNED, first_row, keys, dim);
  value.load(v.at(place.batch, place.head), v.time, OWNED, first_row, keys, dim);

  float acc_k[PIECES][4] = {}, acc_v[PIECES][4] = {};
  i64 at = ((i64)place.batch * heads + place.head) * tq;
  for (int first = begin; first < end; first += STREAMED) {
    __syncthreads();
    query.load(q.at(place.batch, place.head), q.time, STREAMED, first, tq, dim);
    gradient.load(grad.at(place.batch, place.head), grad.time, STREAMED, first, tq, dim);
    __syncthreads();
    float s[4], dp[4];
    dot_rows(s, key, query, r, c);
    dot_rows(dp, value, gradient, r, c);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int n = first + c + 4 * j;
      bool sees = seen && n < tq && (!causal || row <= n + shift);
      float p = sees ? expf(fminf(__fmul_rn(s[j], scale) - lse[at + n], 0.f)) : 0.f;
      weights[c + 4 * j] = p;
      weights_k[c + 4 * j] = sees ? p * (dp[j] - delta[at + n]) : 0.f;
    }
    __syncwarp();
    add_rows(acc_v, weights, gradient, c);
    add_rows(acc_k, weights_k, query, c);
  }
  if (row >= tk) return;
  store_row(dk.at(place.batch, place.head) + (i64)row * dk.time, acc_k, scale, c, dim);
  store_row(dv.at(place.batch, place.head) + (i64)row * dv.time, acc_v, 1.f, c, dim);
}
