// Products of few rows with a whole weight matrix, which is read once: y[row][feature] = sum of a[row][k]
// w[feature][k].
//
// A block computes 8 NT features for all rows and all of k: each of its warps has a split of k, and the partial
// sums are added in warp order. Weights are stored [feature][k], k padded with zeros to a multiple of 32. 32 of k
// are two tensor core steps, where lane 4 n + q has the 8 neighbours 8 q .. 8 q + 7 of feature n (and of row n):
// which k goes to which slot of an instruction is arbitrary as long as both sides agree. The first weights are
// loaded before the kernel waits for the previous one.
//
// PADDING between rows in shared memory puts neighbouring rows into different halves of the banks.
#define PADDING 32

// Destination of the sums.
#define TO_QKV 0
#define TO_GELU 1
#define TO_RESIDUAL 2
#define TO_LOGITS 3

struct Target {
  float* floats;  // queries, residual stream or logits
  bf16* rounded;  // input of the next product
  bf16 *keys, *values;
  int heads, size, room, stride;
  float scale;
  int unused;
};

// Source of the input rows.
#define GIVEN 0   // bf16 in memory, read by the warps that need it
#define NORMED 1  // the residual stream after a norm
#define HEADED 2  // after two norms; this is also the latent that is returned
#define STAGED 3  // bf16 in memory, copied through shared memory
#define MERGED 4  // parts of the attention

struct Parts {
  const float *parts, *weights;
  int heads, size, room, chunks;
};

// GELU in its tanh form, with one exponential.
__device__ __forceinline__ float gelu(float x) {
  float t = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return x - __fdividef(x, 1.f + __expf(2.f * t));
}

// Destination of one feature's sums, computed before the kernel waits, because divisions are slow.
struct Place {
  float* floats;
  bf16* rounded;
  i64 by_row, by_slot;
  int size;      // channels of a head
  bool turned;   // a value of a wide head
};
template <int KIND>
__device__ __forceinline__ Place place_of(const Target& to, int feature, int width, int features) {
  Place place = {to.floats + feature, 0, width, 0, 0, false};
  if (KIND == TO_LOGITS) place.by_row = features;
  if (KIND == TO_GELU) place = {0, to.rounded + feature, to.stride, 0, 0, false};
  if (KIND == TO_QKV) {
    int inner = to.heads * to.size, part = feature / inner, channel = feature - part * inner;
    int head = channel / to.size, within = channel - head * to.size;
    if (part == 0) {
      place = {to.floats + channel, 0, inner, 0, 0, false};
    } else {
      i64 slot = (i64)inner * to.room;
      bool turned = part == 2 && to.size >= TURNED;
      bf16* base = (part == 1 ? to.keys : to.values) + (i64)head * to.room * to.size;
      place = {0, base + (turned ? within * TILE : within), 0, slot, to.size, turned};
    }
  }
  return place;
}

// `before` is the residual stream's value there; `slot` and `position` are the destination of keys and values.
template <int KIND>
__device__ __forceinline__ void put(
    const Target& to, const Place& place, int row, float y, float before, int slot, int position) {
  if (KIND == TO_GELU) {
    place.rounded[row * place.by_row] = to_bf16(gelu(y));
  } else if (KIND == TO_RESIDUAL) {
    place.floats[row * place.by_row] = before + y;
  } else if (place.floats) {
    place.floats[row * place.by_row] = KIND == TO_QKV ? y * to.scale : y;
  } else if (slot >= 0) {
    int at = position * place.size;
    if (place.turned) at = position / TILE * TILE * place.size + position % TILE;
    place.rounded[slot * place.by_slot + at] = to_bf16(y);
  }
}

#if __CUDA_ARCH__ >= 800
// Channels `from` .. `end` (at most 128, whole heads) of a row of the attention's result, merged by one warp from
// `count` chunks. Four channels per lane.
template <int SIZE>
__device__ __forceinline__ void merge(bf16* out, const Parts& p, int row, int count, int from, int end) {
  constexpr int HEADS = 128 / SIZE;
  int lane = threadIdx.x & 31, c = from + lane * 4, first = from / SIZE, own = lane * 4 / SIZE;
  bool mine = c < end;
  float most[HEADS], sum[HEADS], e[HEADS], scale[HEADS], y[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    i64 part = ((i64)row * p.heads + min(first + h, p.heads - 1)) * p.chunks + lane;
    most[h] = lane < count ? load_fresh(p.weights + part * 2) : -INF;
    sum[h] = lane < count ? load_fresh(p.weights + part * 2 + 1) : 0.f;
  }
  const float* at = p.parts + ((i64)row * p.heads + first + own) * p.chunks * SIZE + lane * 4 % SIZE;
  for (int base = 0; base < count; base += 4) {
    float v[4][4];
#pragma unroll
    for (int s = 0; s < 4; ++s)
      if (mine && base + s < count) load4_fresh(at + (base + s) * SIZE, v[s]);
    if (base == 0)
#pragma unroll
      for (int h = 0; h < HEADS; ++h) e[h] = part_weight(most[h], sum[h], scale[h]);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      float f = 0.f;
#pragma unroll
      for (int h = 0; h < HEADS; ++h) {
        float g = __shfl_sync(FULL_MASK, e[h], (base + s) & 31);
        if (own == h) f = g;
      }
      if (mine && base + s < count)
#pragma unroll
        for (int j = 0; j < 4; ++j) y[j] = __fmaf_rn(f, v[s][j], y[j]);
    }
  }
  float own_scale = 0.f;
#pragma unroll
  for (int h = 0; h < HEADS; ++h)
    if (own == h && count > 0) own_scale = scale[h];
#pragma unroll
  for (int j = 0; j < 4; ++j) y[j] *= own_scale;
  if (mine) store4(out + c, y);
}
#endif

// HIGH: more than 8 rows. FEW: at most 2 rows of a network of XTTS-v2's width; all warps normalise them together,
// and everything that depends on the sizes is a compile-time constant: with so little work, every instruction
// counts.
template <int MT, int NT, int P, int SOURCE, int KIND, bool HIGH, bool FEW>
__device__ __forceinline__ void linear(
    const Row* rows, int batch, const bf16* weights, const float* bias, const bf16* given, const float* x,
    const float* norm, float* latents, int features, int width, int stride, const Target& to, const Parts& from) {
#if __CUDA_ARCH__ >= 800
  constexpr bool SHARED = SOURCE != GIVEN;
  constexpr int NORMS = SOURCE == NORMED ? 1 : SOURCE == HEADED ? 2 : 0, COLUMNS = 8 * NT, ROWS = 16 * MT;
  // Sums of neighbouring rows are in different banks.
  constexpr int ACROSS = NT > 1 ? COLUMNS + 8 : COLUMNS;
  constexpr int INPUTS = SOURCE == STAGED ? 4096 : 1024;
  if (FEW) width = 1024, stride = INPUTS;
  // The attention follows the query product and reads rows and keys of earlier steps: it must not start too early.
  if (KIND != TO_QKV) let_next_in();
  extern __shared__ __align__(16) char shared[];
  __shared__ int slots[ROWS], positions[ROWS];
  __shared__ float reduced[2 * NORMS + 1][16];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = FEW ? INPUTS / 32 / P : blockDim.x >> 5;
  int n = lane >> 2, q = lane & 3;
  int chunks = stride >> 5, each = (chunks + warps - 1) / warps;
  int first = min(chunks, warp * each), last = min(chunks, first + each);
  if (FEW) first = warp * P, last = first + P;
  int feature = blockIdx.x * COLUMNS;
  int pitch = stride + PADDING, held_rows = SHARED ? min(batch, ROWS) : 0;
  bf16* made = reinterpret_cast<bf16*>(shared);
  float* norms = reinterpret_cast<float*>(made + held_rows * pitch);
  float* parts = norms + (FEW ? 0 : NORMS * 2 * width);
  const bf16* w = weights + (i64)(feature + n) * stride + q * 8;
  uint4 held[P][NT];
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int t = 0; t < NT; ++t)
      if (first + p < last) held[p][t] = load_weights(w + (i64)t * 8 * stride + (first + p) * 32);
  // The column of a thread's sums is always the same: blocks are whole numbers of columns.
  int column = threadIdx.x % COLUMNS, own_row = threadIdx.x / COLUMNS, own = threadIdx.x * 4;
  bool there = feature + column < features;
  float shift = there ? bias[feature + column] : 0.f;
  Place place = place_of<KIND>(to, feature + column, width, features);
  float factors[NORMS + 1][4], shifts[NORMS + 1][4];
  if (FEW && own < width) {
#pragma unroll
    for (int i = 0; i < NORMS; ++i) {
      load4(norm + 2 * i * width + own, factors[i]);
      load4(norm + (2 * i + 1) * width + own, shifts[i]);
    }
  } else if (NORMS > 0) {
    for (int i = own; i < NORMS * 2 * width; i += blockDim.x * 4) copy16(norms + i, norm + i);
  }
  // Rows change only at the end of a step, so merging partial results need not wait to know how many there are.
  int counts[2] = {0, 0};
  if (SOURCE == MERGED)
#pragma unroll
    for (int row = 0; row < 2; ++row)
      if (row < batch) {
        Row state = load_row_state(rows + row);
        if (is_active(state) && state.position < from.room) counts[row] = state.position / CHUNK + 1;
      }
  if (KIND == TO_QKV) enter();
  else wait_for_last();

  float before = 0.f;
  if (KIND == TO_RESIDUAL && own_row < batch && there)
    before = load_fresh(x + (i64)own_row * width + feature + column);
  if (KIND == TO_QKV && threadIdx.x < batch) {
    Row state = load_row_state(rows + threadIdx.x);
    slots[threadIdx.x] = is_active(state) && state.position < to.room ? state.slot : -1;
    positions[threadIdx.x] = state.position;
  }
  if (NORMS > 0 && FEW) {
    for (int row = 0; row < batch; ++row) {
      float v[4] = {0.f, 0.f, 0.f, 0.f};
      if (own < width) load4_fresh(x + (i64)row * width + own, v);
      if (row > 0) __syncthreads();
      normalise_together(v, factors[0], shifts[0], own < width, width, reduced[0]);
      if (NORMS > 1) {
        if (own >= width) v[0] = v[1] = v[2] = v[3] = 0.f;
        normalise_together(v, factors[NORMS - 1], shifts[NORMS - 1], own < width, width, reduced[1]);
      }
      if (own < width) {
        store4(made + row * pitch + own, v);
        if (NORMS > 1 && blockIdx.x == 0) {
          Row state = load_row_state(rows + row);
          if (is_active(state)) store4(latents + ((i64)state.emitted * batch + row) * width + own, v);
        }
      } else if (own < stride) {
        float none[4] = {0.f, 0.f, 0.f, 0.f};
        store4(made + row * pitch + own, none);
      }
    }
    __syncthreads();
  } else if (NORMS > 0) {
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
    for (int row = 0; row < batch; ++row)
      for (int c = threadIdx.x; c < whole; c += blockDim.x)
        copy16(made + row * pitch + c * 8, given + (i64)row * stride + c * 8);
    await_copies();
    __syncthreads();
  }
  if (SOURCE == MERGED) {
    // Every warp computes its own input.
#pragma unroll
    for (int row = 0; row < 2; ++row)
      if (row < batch) {
        bf16* out = made + row * pitch;
        merge<64>(out, from, row, counts[row], first * 32, last * 32);
      }
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
    // Loads from global memory are all issued at once, loads from shared memory when needed.
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
            // Rows past the batch are computed too, and ignored.
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
      float* part = parts + (warp * ROWS + m * 16 + n) * ACROSS + t * 8 + q * 2;
      part[0] = acc[m][t][0];
      part[1] = acc[m][t][1];
      if (HIGH) {
        part[8 * ACROSS] = acc[m][t][2];
        part[8 * ACROSS + 1] = acc[m][t][3];
      }
    }
  __syncthreads();
  if (!there) return;
  for (int row = own_row; row < batch; row += blockDim.x / COLUMNS) {
    int i = row * ACROSS + column;
    float y = parts[i];
#pragma unroll 8
    for (int k = 1; k < warps; ++k) y += parts[k * ROWS * ACROSS + i];
    if (KIND == TO_RESIDUAL && row != own_row) before = load_fresh(x + (i64)row * width + feature + column);
    int slot = -1, position = 0;
    if (KIND == TO_QKV) slot = slots[row], position = positions[row];
    put<KIND>(to, place, row, y + shift, before, slot, position);
  }
#else
  enter();
#endif
}

#define KERNEL(NAME, THREADS, BLOCKS, MT, NT, P, SOURCE, KIND, HIGH, FEW) \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) decode_##NAME( \
      const Row* rows, int batch, const bf16* weights, const float* bias, const bf16* given, const float* x, \
      const float* norm, float* latents, int features, int width, int stride, Target to, Parts from) { \
    enter_later(); \
    linear<MT, NT, P, SOURCE, KIND, HIGH, FEW>( \
        rows, batch, weights, bias, given, x, norm, latents, features, width, stride, to, from); \
  }
// Blocks of consecutive kernels share a multiprocessor, otherwise the weights of the next kernel could not be
// prefetched: hence few registers each. Up to 2 rows, up to 8, up to 16; more rows are normalised beforehand.
KERNEL(qkv_2, 256, 3, 1, 2, 4, NORMED, TO_QKV, false, true)
KERNEL(qkv_8, 256, 3, 1, 2, 4, NORMED, TO_QKV, false, false)
KERNEL(qkv_16, 256, 2, 1, 2, 4, NORMED, TO_QKV, true, false)
KERNEL(qkv_32, 256, 1, 2, 4, 2, GIVEN, TO_QKV, true, false)
KERNEL(qkv_64, 256, 1, 4, 4, 2, GIVEN, TO_QKV, true, false)
KERNEL(up_2, 256, 3, 1, 2, 4, NORMED, TO_GELU, false, true)
KERNEL(up_8, 256, 3, 1, 2, 4, NORMED, TO_GELU, false, false)
KERNEL(up_16, 256, 2, 1, 2, 4, NORMED, TO_GELU, true, false)
KERNEL(up_32, 256, 1, 2, 4, 2, GIVEN, TO_GELU, true, false)
KERNEL(up_64, 256, 1, 4, 4, 2, GIVEN, TO_GELU, true, false)
KERNEL(head_2, 256, 3, 1, 1, 4, HEADED, TO_LOGITS, false, true)
KERNEL(head_8, 256, 3, 1, 1, 4, HEADED, TO_LOGITS, false, false)
KERNEL(head_16, 256, 2, 1, 1, 4, HEADED, TO_LOGITS, true, false)
KERNEL(head_32, 256, 1, 2, 1, 4, GIVEN, TO_LOGITS, true, false)
KERNEL(head_64, 256, 1, 4, 1, 4, GIVEN, TO_LOGITS, true, false)
KERNEL(out_2, 256, 3, 1, 1, 4, MERGED, TO_RESIDUAL, false, true)
KERNEL(down_2, 512, 2, 1, 1, 8, STAGED, TO_RESIDUAL, false, true)
KERNEL(down_8, 512, 2, 1, 1, 8, STAGED, TO_RESIDUAL, false, false)
KERNEL(down_16, 512, 1, 1, 1, 4, GIVEN, TO_RESIDUAL, true, false)

// The same products for many rows: a block has 64 features and a single split of k, so that rows are read a few
// times and not by every block. The splits are those of the warps above; their sums [split][row][feature] are
// added in the same order by decode_reduce.
template <int MT>
__device__ __forceinline__ void split(
    const bf16* weights, const bf16* given, float* sums, int batch, int features, int stride) {
#if __CUDA_ARCH__ >= 800
  let_next_in();
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
  wait_for_last();
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
  // The number of features is a multiple of eight.
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

// Norms of a row by a block of 256 threads, written for the next product and, after two norms, for the vocoder. `v`
// is the thread's four channels.
__device__ __forceinline__ void norm_row(
    float (&v)[4], const Row* rows, int batch, const float* norm, int norms, bf16* out, float* latents, int width,
    int stride) {
  __shared__ float reduced[2][16];
  int row = blockIdx.x, own = threadIdx.x * 4;
  bool there = own < width;
  float w[4] = {0.f, 0.f, 0.f, 0.f}, b[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (i >= norms) break;
    if (there) {
      load4(norm + 2 * i * width + own, w);
      load4(norm + (2 * i + 1) * width + own, b);
    }
    normalise_together(v, w, b, there, width, reduced[i]);
  }
  if (!there) return;
  store4(out + (i64)row * stride + own, v);
  if (norms < 2) return;
  Row state = load_row_state(rows + row);
  if (is_active(state)) store4(latents + ((i64)state.emitted * batch + row) * width + own, v);
}

// Layer norms of every row separately, for batches of more than 16.
extern "C" __global__ void __launch_bounds__(256) decode_norm(
    const Row* rows, int batch, const float* x, const float* norm, int norms, bf16* out, float* latents, int width,
    int stride) {
  enter();
  float v[4] = {0.f, 0.f, 0.f, 0.f};
  int own = threadIdx.x * 4;
  if (own < width) load4_fresh(x + (i64)blockIdx.x * width + own, v);
  norm_row(v, rows, batch, norm, norms, out, latents, width, stride);
}

// Adds the sums of decode_split to the residual stream, and applies the norms after it. One row per block, four
// channels per thread; at most 1024 channels.
extern "C" __global__ void __launch_bounds__(256) decode_reduce(
    const Row* rows, int batch, float* x, const float* sums, int splits, const float* bias, const float* norm,
    int norms, bf16* out, float* latents, int width, int stride) {
  enter();
  int row = blockIdx.x, c = threadIdx.x * 4;
  float z[4] = {0.f, 0.f, 0.f, 0.f};
  if (c < width) {
    float y[16][4], b[4];
    const float* own = sums + (i64)row * width + c;
    i64 step = (i64)batch * width;
#pragma unroll
    for (int s = 0; s < 16; ++s)
      if (s < splits) load4_fresh(own + s * step, y[s]);
    load4(bias + c, b);
    load4_fresh(x + (i64)row * width + c, z);
#pragma unroll
    for (int s = 1; s < 16; ++s)
      if (s < splits)
#pragma unroll
        for (int j = 0; j < 4; ++j) y[0][j] += y[s][j];
#pragma unroll
    for (int j = 0; j < 4; ++j) z[j] = z[j] + (y[0][j] + b[j]);
    store4(x + (i64)row * width + c, z);
  }
  if (norms > 0) norm_row(z, rows, batch, norm, norms, out, latents, width, stride);
}
