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

// Between rows in shared memory: two neighbours are in different halves of the banks.
#define PADDING 32

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

// Where rows come from.
#define GIVEN 0   // bf16 in memory, read by the warps that need it
#define NORMED 1  // the residual stream after a norm
#define HEADED 2  // after two norms, which is what is handed out too
#define STAGED 3  // bf16 in memory, by way of shared memory
#define MERGED 4  // parts of the attention

struct Parts {
  const float *parts, *weights;
  int heads, size, room, stretches;
};

__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

// `before` is what the residual stream has there; `slot` and `position` are where keys and values go.
__device__ __forceinline__ void put(
    const Target& to, int row, int feature, int width, float y, float before, int slot, int position) {
  if (to.kind == TO_GELU) {
    to.rounded[(i64)row * to.stride + feature] = to_bf16(gelu(y));
  } else if (to.kind == TO_RESIDUAL) {
    to.floats[(i64)row * width + feature] = before + y;
  } else if (to.kind == TO_LOGITS) {
    to.floats[(i64)row * width + feature] = y;
  } else {
    int inner = to.heads * to.size, part = feature / inner, channel = feature - part * inner;
    if (part == 0) {
      to.floats[(i64)row * inner + channel] = y * to.scale;
    } else if (slot >= 0) {
      int head = channel / to.size;
      i64 at = (((i64)slot * to.heads + head) * to.room + position) * to.size + channel - head * to.size;
      (part == 1 ? to.keys : to.values)[at] = to_bf16(y);
    }
  }
}

#if __CUDA_ARCH__ >= 800
// The channels `from` .. `end` of a row of the attention's result, by one warp; zeros where there are no channels.
__device__ __forceinline__ void merge(bf16* out, const Row* rows, const Parts& p, int row, int from, int end) {
  int lane = threadIdx.x & 31, width = p.heads * p.size;
  Row state = load_row_state(rows + row);
  int count = is_active(state) && state.position < p.room ? state.position / STRETCH + 1 : 0;
  i64 first = (i64)row * p.heads * p.stretches;
  for (int start = from; start < end; start += 128) {
    int c = start + lane * 4, own = c / p.size, stop = min(min(start + 128, end), width);
    bool mine = c < stop;
    float y[4] = {0.f, 0.f, 0.f, 0.f}, own_scale = 0.f;
    for (int base = 0; base < count; base += 8) {
      uint4 v[8];
#pragma unroll
      for (int s = 0; s < 8; ++s) {
        v[s] = make_uint4(0, 0, 0, 0);
        if (mine && base + s < count)
          v[s] = load_fresh(
              (const void*)(p.parts + (first + (i64)own * p.stretches + base + s) * p.size + c - own * p.size));
      }
      for (int head = start / p.size; head * p.size < stop; ++head) {
        float scale, e = part_weight(p.weights, first + (i64)head * p.stretches, count, scale);
#pragma unroll
        for (int s = 0; s < 8; ++s) {
          float f = __shfl_sync(FULL_MASK, e, (base + s) & 31);
          if (mine && own == head && base + s < count) {
            y[0] += f * __uint_as_float(v[s].x); y[1] += f * __uint_as_float(v[s].y);
            y[2] += f * __uint_as_float(v[s].z); y[3] += f * __uint_as_float(v[s].w);
          }
        }
        if (own == head) own_scale = scale;
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) y[j] *= own_scale;
    if (c < end) store4(out + c, y);
  }
}
#endif

// HIGH: whether there are more than 8 rows.
template <int MT, int NT, int P, int SOURCE, bool HIGH>
__device__ __forceinline__ void linear(
    const Row* rows, int batch, const bf16* weights, const float* bias, const bf16* given, const float* x,
    const float* norm, float* latents, int features, int width, int stride, const Target& to, const Parts& from) {
#if __CUDA_ARCH__ >= 800
  constexpr bool SHARED = SOURCE != GIVEN;
  constexpr int NORMS = SOURCE == NORMED ? 1 : SOURCE == HEADED ? 2 : 0, COLUMNS = 8 * NT, ROWS = 16 * MT;
  extern __shared__ __align__(16) char shared[];
  __shared__ int slots[ROWS], positions[ROWS];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  int n = lane >> 2, q = lane & 3;
  int chunks = stride >> 5, each = (chunks + warps - 1) / warps;
  int first = min(chunks, warp * each), last = min(chunks, first + each);
  int feature = blockIdx.x * COLUMNS;
  int pitch = stride + PADDING, held_rows = SHARED ? min(batch, ROWS) : 0;
  bf16* made = reinterpret_cast<bf16*>(shared);
  float* norms = reinterpret_cast<float*>(made + held_rows * pitch);
  float* parts = norms + NORMS * 2 * width;
  const bf16* w = weights + (i64)(feature + n) * stride + q * 8;
  uint4 held[P][NT];
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int t = 0; t < NT; ++t)
      if (first + p < last) held[p][t] = load_weights(w + (i64)t * 8 * stride + (first + p) * 32);
  // The column of a thread's sums is always the same: blocks are whole numbers of columns.
  int column = threadIdx.x % COLUMNS;
  float shift = feature + column < features ? bias[feature + column] : 0.f;
  if (NORMS > 0)
    for (int i = threadIdx.x * 4; i < NORMS * 2 * width; i += blockDim.x * 4) copy16(norms + i, norm + i);
  enter();

  int own_row = threadIdx.x / COLUMNS;
  float before = 0.f;
  if (to.kind == TO_RESIDUAL && own_row < batch && feature + column < features)
    before = load_fresh(x + (i64)own_row * width + feature + column);
  if (to.kind == TO_QKV && threadIdx.x < batch) {
    Row state = load_row_state(rows + threadIdx.x);
    slots[threadIdx.x] = is_active(state) && state.position < to.room ? state.slot : -1;
    positions[threadIdx.x] = state.position;
  }
  if (NORMS > 0) {
    await_copies();
    __syncthreads();
    for (int row = warp; row < batch; row += warps) {
      float v[SPREAD][4];
      load_spread(x + (i64)row * width, width, v);
      normalise(v, norms, width);
      if (NORMS > 1) normalise(v, norms + 2 * width, width);
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
  if (SOURCE == STAGED) {
    int whole = stride / 8;
    for (int i = threadIdx.x; i < batch * whole; i += blockDim.x) {
      int row = i / whole, c = (i - row * whole) * 8;
      copy16(made + row * pitch + c, given + (i64)row * stride + c);
    }
    await_copies();
    __syncthreads();
  }
  if (SOURCE == MERGED) {
    // Every warp makes what it takes.
    for (int row = 0; row < batch; ++row) merge(made + row * pitch, rows, from, row, first * 32, last * 32);
    __syncwarp();
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
    // From memory everything is asked for at once, from shared memory when it is wanted.
    uint4 low[SHARED ? 1 : P][MT], high[SHARED ? 1 : P][MT];
    if (!SHARED) {
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int m = 0; m < MT; ++m)
          if (base + p < last) {
            const bf16* a = given + (i64)(m * 16 + n) * stride + (base + p) * 32 + q * 8;
            low[SHARED ? 0 : p][m] = load_fresh((const void*)a);
            if (HIGH) high[SHARED ? 0 : p][m] = load_fresh((const void*)(a + 8 * stride));
          }
    }
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (base + p < last)
#pragma unroll
        for (int m = 0; m < MT; ++m) {
          uint4 &l = low[SHARED ? 0 : p][m], &h = high[SHARED ? 0 : p][m];
          if (SHARED) {
            // Rows past the batch are computed too, and never looked at.
            const bf16* a = made + (base + p) * 32 + q * 8;
            l = *reinterpret_cast<const uint4*>(a + min(m * 16 + n, batch - 1) * pitch);
            if (HIGH) h = *reinterpret_cast<const uint4*>(a + min(m * 16 + n + 8, batch - 1) * pitch);
          }
          if (!HIGH) h = make_uint4(0, 0, 0, 0);
#pragma unroll
          for (int t = 0; t < NT; ++t) {
            const uint4& b = held[p][t];
            mma(acc[m][t], l.x, h.x, l.y, h.y, b.x, b.y);
            mma(acc[m][t], l.z, h.z, l.w, h.w, b.z, b.w);
          }
        }
  }

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
  if (feature + column >= features) return;
  for (int row = own_row; row < batch; row += blockDim.x / COLUMNS) {
    int i = row * COLUMNS + column;
    float y = parts[i];
    for (int k = 1; k < warps; ++k) y += parts[k * ROWS * COLUMNS + i];
    if (to.kind == TO_RESIDUAL && row != own_row) before = load_fresh(x + (i64)row * width + feature + column);
    int slot = -1, position = 0;
    if (to.kind == TO_QKV) slot = slots[row], position = positions[row];
    put(to, row, feature + column, to.kind == TO_LOGITS ? features : width, y + shift, before, slot, position);
  }
#else
  enter();
#endif
}

#define KERNEL(NAME, THREADS, BLOCKS, MT, NT, P, SOURCE, HIGH) \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) decode_linear_##NAME( \
      const Row* rows, int batch, const bf16* weights, const float* bias, const bf16* given, const float* x, \
      const float* norm, float* latents, int features, int width, int stride, Target to, Parts from) { \
    enter_later(); \
    linear<MT, NT, P, SOURCE, HIGH>( \
        rows, batch, weights, bias, given, x, norm, latents, features, width, stride, to, from); \
  }
// Blocks of consecutive kernels share a multiprocessor, or the weights of the next would not be on their way: hence few
// registers each. Up to 8 rows, up to 16:
KERNEL(norm_8, 256, 3, 1, 2, 4, NORMED, false)
KERNEL(norm_16, 256, 2, 1, 2, 4, NORMED, true)
KERNEL(head_8, 256, 3, 1, 1, 4, HEADED, false)
KERNEL(head_16, 256, 2, 1, 1, 4, HEADED, true)
KERNEL(merged_8, 256, 2, 1, 1, 4, MERGED, false)
KERNEL(narrow_8, 512, 2, 1, 1, 8, STAGED, false)
KERNEL(narrow_16, 512, 1, 1, 1, 4, GIVEN, true)
// More rows: what they are made of was normalised before.
KERNEL(broad_32, 256, 1, 2, 4, 2, GIVEN, true)
KERNEL(broad_64, 256, 1, 4, 4, 2, GIVEN, true)

// The same products for many rows: a block has 64 features and one stretch of k alone, so that rows are read a few times
// and not by every block. Stretches are those of the warps above; their sums [stretch][row][feature] are added up, in the
// same order, by decode_reduce.
template <int MT>
__device__ __forceinline__ void split(
    const bf16* weights, const bf16* given, float* sums, int batch, int features, int stride) {
#if __CUDA_ARCH__ >= 800
  constexpr int P = 8;
  extern __shared__ __align__(16) char shared[];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = lane >> 2, q = lane & 3;
  int chunks = stride >> 5, each = (chunks + gridDim.y - 1) / gridDim.y;
  int first = min(chunks, (int)blockIdx.y * each), last = min(chunks, first + each), count = last - first;
  int feature = (blockIdx.x * 8 + warp) * 8, pitch = each * 32 + PADDING;
  bool there = feature < features;
  const bf16* w = weights + (i64)(feature + n) * stride + first * 32 + q * 8;
  bf16* made = reinterpret_cast<bf16*>(shared);
  uint4 held[P];
#pragma unroll
  for (int p = 0; p < P; ++p)
    if (there && p < count) held[p] = load_weights(w + p * 32);
  enter();
  for (int i = threadIdx.x; i < 16 * MT * count * 4; i += blockDim.x) {
    int row = i / (count * 4), c = (i - row * count * 4) * 8;
    copy16(made + row * pitch + c, given + (i64)row * stride + first * 32 + c);
  }
  await_copies();
  __syncthreads();
  if (!there) return;
  float acc[MT][4];
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int j = 0; j < 4; ++j) acc[m][j] = 0.f;
  for (int base = 0; base < count; base += P) {
    if (base != 0) {
#pragma unroll
      for (int p = 0; p < P; ++p)
        if (base + p < count) held[p] = load_weights(w + (base + p) * 32);
    }
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (base + p < count)
#pragma unroll
        for (int m = 0; m < MT; ++m) {
          const bf16* a = made + (m * 16 + n) * pitch + (base + p) * 32 + q * 8;
          uint4 l = *reinterpret_cast<const uint4*>(a), h = *reinterpret_cast<const uint4*>(a + 8 * pitch);
          mma(acc[m], l.x, h.x, l.y, h.y, held[p].x, held[p].y);
          mma(acc[m], l.z, h.z, l.w, h.w, held[p].z, held[p].w);
        }
  }
  // There are whole eights of features.
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float* to = sums + ((i64)blockIdx.y * batch + m * 16 + h * 8 + n) * features + feature + q * 2;
      *reinterpret_cast<float2*>(to) = make_float2(acc[m][2 * h], acc[m][2 * h + 1]);
    }
#else
  enter();
#endif
}
extern "C" __global__ void __launch_bounds__(256, 3) decode_split_32(
    const bf16* weights, const bf16* given, float* sums, int batch, int features, int stride) {
  enter_later();
  split<2>(weights, given, sums, batch, features, stride);
}
extern "C" __global__ void __launch_bounds__(256, 3) decode_split_64(
    const bf16* weights, const bf16* given, float* sums, int batch, int features, int stride) {
  enter_later();
  split<4>(weights, given, sums, batch, features, stride);
}

// A normalised row to where the next product reads it, and after two norms to whoever decodes sound from it.
__device__ __forceinline__ void normed_row(
    float (&v)[SPREAD][4], const Row* rows, int batch, const float* norm, int norms, bf16* out, float* latents,
    int width, int stride) {
  int row = blockIdx.x, lane = threadIdx.x;
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

// Layer norms of every row on their own, for batches of more than 16: a warp to a row.
extern "C" __global__ void decode_norm(
    const Row* rows, int batch, const float* x, const float* norm, int norms, bf16* out, float* latents, int width,
    int stride) {
  enter();
  float v[SPREAD][4];
  load_spread(x + (i64)blockIdx.x * width, width, v);
  normed_row(v, rows, batch, norm, norms, out, latents, width, stride);
}

// The sums of decode_split, added to the residual stream, and the norms behind it. A block to a row, a thread to four
// channels; there are at most 1024.
extern "C" __global__ void __launch_bounds__(256) decode_reduce(
    const Row* rows, int batch, float* x, const float* sums, int stretches, const float* bias, const float* norm,
    int norms, bf16* out, float* latents, int width, int stride) {
  enter();
  __shared__ __align__(16) float made[SPREAD * 128];
  int row = blockIdx.x, c = threadIdx.x * 4;
  if (c < width) {
    float y[4], b[4], z[4];
    const float* own = sums + (i64)row * width + c;
    i64 step = (i64)batch * width;
    load4_fresh(own, y);
#pragma unroll 8
    for (int s = 1; s < stretches; ++s) {
      load4_fresh(own + s * step, z);
#pragma unroll
      for (int j = 0; j < 4; ++j) y[j] += z[j];
    }
    load4(bias + c, b);
    load4_fresh(x + (i64)row * width + c, z);
#pragma unroll
    for (int j = 0; j < 4; ++j) z[j] = z[j] + (y[j] + b[j]);
    store4(x + (i64)row * width + c, z);
    store4(made + c, z);
  }
  if (norms == 0) return;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  float v[SPREAD][4];
#pragma unroll
  for (int i = 0; i < SPREAD; ++i) {
    int at = i * 128 + (int)threadIdx.x * 4;
    v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0.f;
    if (at < width) load4(made + at, v[i]);
  }
  normed_row(v, rows, batch, norm, norms, out, latents, width, stride);
}
