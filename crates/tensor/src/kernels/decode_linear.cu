// Products of few rows with a whole weight matrix, which is read once: y[row][feature] = sum of a[row][k] w[feature][k].
//
// A block has 8 NT features, all rows, and all of k: each of its warps has a stretch of k, its sums are added up in the
// order of the warps. Weights lie [feature][k], k padded with zeros to a multiple of 32; 32 of k are two steps of the
// tensor cores, where lane 4 n + q has the 8 neighbours 8 q .. 8 q + 7 of feature n (and of row n): which k meets which
// slot of an instruction is free as long as both sides agree. The first weights are on their way before the kernel waits
// for the one ahead of it.
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

// What becomes of the sums.
#define TO_QKV 0
#define TO_GELU 1
#define TO_RESIDUAL 2
#define TO_LOGITS 3

struct Target {
  float* floats;  // queries, residual stream or logits
  bf16* rounded;  // what the next product takes
  bf16 *keys, *values;
  int kind, heads, size, room, stride;
  float scale;
};

__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

__device__ __forceinline__ void put(const Target& to, const Row* rows, int row, int feature, int width, float y) {
  if (to.kind == TO_GELU) {
    to.rounded[(i64)row * to.stride + feature] = to_bf16(gelu(y));
  } else if (to.kind == TO_RESIDUAL) {
    float* x = to.floats + (i64)row * width + feature;
    *x = load_fresh(x) + y;
  } else if (to.kind == TO_LOGITS) {
    to.floats[(i64)row * width + feature] = y;
  } else {
    int inner = to.heads * to.size, part = feature / inner, channel = feature - part * inner;
    if (part == 0) {
      to.floats[(i64)row * inner + channel] = y * to.scale;
      return;
    }
    Row state = load_row_state(rows + row);
    if (!is_active(state) || state.position >= to.room) return;
    int head = channel / to.size;
    i64 at = (((i64)state.slot * to.heads + head) * to.room + state.position) * to.size + channel - head * to.size;
    (part == 1 ? to.keys : to.values)[at] = to_bf16(y);
  }
}

// HIGH: whether there are more than 8 rows. NORMS: how many layer norms of `x` make the rows; without, they are `given`.
template <int MT, int NT, int P, int NORMS, bool HIGH>
__device__ __forceinline__ void linear(
    const Row* rows, int batch, const bf16* weights, const float* bias, const bf16* given, const float* x,
    const float* norm, float* latents, int features, int width, int stride, const Target& to) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) char shared[];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  int n = lane >> 2, q = lane & 3;
  int chunks = stride >> 5, each = (chunks + warps - 1) / warps;
  int first = warp * each, last = min(chunks, first + each);
  int feature = blockIdx.x * 8 * NT;
  const bf16* w = weights + (i64)(feature + n) * stride + q * 8;
  uint4 held[P][NT];
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int t = 0; t < NT; ++t)
      if (first + p < last) held[p][t] = load_weights(w + (i64)t * 8 * stride + (first + p) * 32);
  enter();

  bf16* made = reinterpret_cast<bf16*>(shared);
  int pitch = stride + 8;
  if (NORMS > 0) {
    for (int row = warp; row < batch; row += warps) {
      float v[SPREAD][4];
      load_spread(x + (i64)row * width, width, v);
      normalise(v, norm, width);
      if (NORMS > 1) normalise(v, norm + 2 * width, width);
      bool kept = false;
      float* latent = latents;
      if (NORMS > 1 && blockIdx.x == 0) {
        Row state = load_row_state(rows + row);
        kept = is_active(state);
        latent += ((i64)state.emitted * batch + row) * width;
      }
#pragma unroll
      for (int i = 0; i < SPREAD; ++i) {
        int at = i * 128 + lane * 4;
        if (at < width) {
          store4(made + row * pitch + at, v[i]);
          if (kept) store4(latent + at, v[i]);
        } else if (at < stride) {
          float none[4] = {0.f, 0.f, 0.f, 0.f};
          store4(made + row * pitch + at, none);
        }
      }
    }
    __syncthreads();
  }

  float acc[MT][NT][4];
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int t = 0; t < NT; ++t)
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[m][t][j] = 0.f;
  for (int base = first; base < last; base += P) {
    if (base != first) {
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int t = 0; t < NT; ++t)
          if (base + p < last) held[p][t] = load_weights(w + (i64)t * 8 * stride + (base + p) * 32);
    }
    uint4 low[P][MT], high[P][MT];
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        int at = (base + p) * 32 + q * 8, row = m * 16 + n;
        high[p][m] = make_uint4(0, 0, 0, 0);
        if (base + p < last) {
          if (NORMS > 0) {
            low[p][m] = *reinterpret_cast<const uint4*>(made + row * pitch + at);
            if (HIGH) high[p][m] = *reinterpret_cast<const uint4*>(made + (row + 8) * pitch + at);
          } else {
            low[p][m] = load_fresh((const void*)(given + (i64)row * stride + at));
            if (HIGH) high[p][m] = load_fresh((const void*)(given + (i64)(row + 8) * stride + at));
          }
        }
      }
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (base + p < last)
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int t = 0; t < NT; ++t) {
            const uint4 &l = low[p][m], &h = high[p][m], &b = held[p][t];
            mma(acc[m][t], l.x, h.x, l.y, h.y, b.x, b.y);
            mma(acc[m][t], l.z, h.z, l.w, h.w, b.z, b.w);
          }
  }

  constexpr int COLUMNS = 8 * NT, ROWS = 16 * MT;
  float* parts = reinterpret_cast<float*>(shared + (NORMS > 0 ? 16 * pitch * 2 : 0));
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int t = 0; t < NT; ++t) {
      float* part = parts + (warp * ROWS + m * 16 + n) * COLUMNS + t * 8 + q * 2;
      part[0] = acc[m][t][0];
      part[1] = acc[m][t][1];
      if (HIGH) {
        part[8 * COLUMNS] = acc[m][t][2];
        part[8 * COLUMNS + 1] = acc[m][t][3];
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < batch * COLUMNS; i += blockDim.x) {
    int row = i / COLUMNS, column = i - row * COLUMNS;
    if (feature + column >= features) continue;
    float y = parts[i];
    for (int k = 1; k < warps; ++k) y += parts[k * ROWS * COLUMNS + i];
    put(to, rows, row, feature + column, to.kind == TO_LOGITS ? features : width, y + bias[feature + column]);
  }
#else
  enter();
#endif
}

#define KERNEL(NAME, THREADS, MT, NT, P, NORMS, HIGH) \
  extern "C" __global__ void __launch_bounds__(THREADS) decode_linear_##NAME( \
      const Row* rows, int batch, const bf16* weights, const float* bias, const bf16* given, const float* x, \
      const float* norm, float* latents, int features, int width, int stride, Target to) { \
    enter_later(); \
    linear<MT, NT, P, NORMS, HIGH>( \
        rows, batch, weights, bias, given, x, norm, latents, features, width, stride, to); \
  }
// Up to 8 rows, up to 16: norms in front of the product. `head` has two of them.
KERNEL(norm_8, 256, 1, 2, 4, 1, false)
KERNEL(norm_16, 256, 1, 2, 4, 1, true)
KERNEL(head_8, 256, 1, 1, 4, 2, false)
KERNEL(head_16, 256, 1, 1, 4, 2, true)
KERNEL(narrow_8, 512, 1, 1, 8, 0, false)
KERNEL(narrow_16, 512, 1, 1, 4, 0, true)
// More rows: what they are made of was normalised before.
KERNEL(narrow_32, 512, 2, 1, 4, 0, true)
KERNEL(narrow_64, 512, 4, 1, 2, 0, true)
KERNEL(broad_32, 256, 2, 4, 2, 0, true)
KERNEL(broad_64, 256, 4, 4, 1, 0, true)

// Layer norms of every row on their own, for batches of more than 16: a warp to a row.
extern "C" __global__ void decode_norm(
    const Row* rows, int batch, const float* x, const float* norm, int norms, bf16* out, float* latents, int width,
    int stride) {
  enter();
  int row = blockIdx.x, lane = threadIdx.x;
  float v[SPREAD][4];
  load_spread(x + (i64)row * width, width, v);
  normalise(v, norm, width);
  if (norms > 1) normalise(v, norm + 2 * width, width);
  bool kept = false;
  float* latent = latents;
  if (norms > 1) {
    Row state = load_row_state(rows + row);
    kept = is_active(state);
    latent += ((i64)state.emitted * batch + row) * width;
  }
#pragma unroll
  for (int i = 0; i < SPREAD; ++i) {
    int at = i * 128 + lane * 4;
    if (at < width) {
      store4(out + (i64)row * stride + at, v[i]);
      if (kept) store4(latent + at, v[i]);
    }
  }
}
