// Flash attention, forward and backward: no query x key matrix is ever in memory.
//
//   forward      o = softmax(scale q kT) v, and lse, the log of each row's sum of exponentials (natural log)
//   backward_q   delta = rowsum(do * o), written for backward_kv, and dq; a block owns queries and walks keys
//   backward_kv  dk and dv; a block owns keys and walks queries
//
// The scores are computed a second time in backward_kv rather than shared with backward_q: sharing them would need
// dq summed across blocks (atomics, or partial sums through memory), and here each result has one writer and one
// order of addition. The rows a warp owns stay its own from the first product to the last, so no warp waits for
// another except for the streamed tiles.
//
// A row that sees no key has output 0, gradients 0 and lse = +INF: its exponentials are then 0 in the backward
// passes without a test. `scale` must be positive. Queries are aligned to the last keys: query i sees
// keys <= i + tk - tq when causal. Keys at or past key_lengths[batch] and keys whose key_mask is 0 are hidden;
// hidden values must still be finite where only key_mask or causality hides them (0 x inf is NaN).

#ifndef HEAD_GROUP
#define HEAD_GROUP 128
#endif

// One operand: element (batch b, time t, head h, channel c) is base[b * batch + t * time + h * head + c].
template <class T> struct View {
  T* base;
  i64 batch;
  int time, head;
  __device__ __forceinline__ T* at(int b, int h) const { return base + b * batch + (i64)h * head; }
};

// What part of the work this block has. Heads go in groups small enough that their keys and values stay in the L2
// cache between blocks; inside a group the longest rows of a causal mask start first, so that the last blocks to
// run are short.
struct Place { int tile, head, batch; };
__device__ __forceinline__ Place find_place(int tiles, int heads, int batches, bool last_first) {
  int id = blockIdx.x, group = id / (HEAD_GROUP * tiles);
  id -= group * HEAD_GROUP * tiles;
  int members = min(HEAD_GROUP, heads * batches - group * HEAD_GROUP), tile = id / members;
  int pair = group * HEAD_GROUP + id - tile * members;
  return {last_first ? tiles - 1 - tile : tile, pair % heads, pair / heads};
}
__device__ __forceinline__ int count_keys(const int* key_lengths, int batch, int tk) {
  return key_lengths ? max(0, min(tk, key_lengths[batch])) : tk;
}

extern __shared__ __align__(128) unsigned char shared_memory[];

#if __CUDA_ARCH__ >= 800
// ---- bf16 on tensor cores: head size 64 or 32, 4 warps, each owning 16 * MT rows; streamed tiles of 64 rows.
// Every pointer is aligned to 16 bytes and every stride is a multiple of 8 elements.
#define THREADS 128
#define TILE 64
#define LOG2E 1.4426950408889634f

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(u32 to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(present ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy4(u32 to, const void* from, bool present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(present ? 4 : 0) : "memory");
}
__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ __forceinline__ void ldmatrix(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A tile in shared memory is rows of D, its 16-byte chunks exchanged by row so that the 8 rows of an ldmatrix lie
// in 8 different bank groups. A lane's address is found once: as the exchange is an XOR on the chunk number, step k
// along the row is `lane_address ^ (k << 5)`, and 16 rows down is `+ 32 * D`.
template <int D> __device__ __forceinline__ int exchanged(int row, int chunk) {
  return chunk ^ (D == 64 ? row & 7 : (row >> 1) & 3);
}
// Lanes in the order of an A operand, and of a transposed B operand: 16 rows, then the next chunk.
template <int D> __device__ __forceinline__ u32 lane_by_rows() {
  int lane = threadIdx.x & 31, row = lane & 15;
  return row * D * 2 + (exchanged<D>(row, lane >> 4) << 4);
}
// Lanes in the order of a B operand: 8 rows, their next chunk, then the next 8 rows.
template <int D> __device__ __forceinline__ u32 lane_by_chunks() {
  int lane = threadIdx.x & 31, row = (lane & 7) | (lane >> 4 << 3);
  return row * D * 2 + (exchanged<D>(row, (lane >> 3) & 1) << 4);
}

// Starts copying rows first .. first + ROWS - 1; rows at or past `end` (at least 1) become 0.
template <int D, int ROWS>
__device__ __forceinline__ void load_tile(u32 tile, const bf16* from, int stride, int first, int end) {
  constexpr int STEP = THREADS / (D / 8);
  int row = threadIdx.x / (D / 8), chunk = threadIdx.x % (D / 8);
  tile += row * D * 2 + (exchanged<D>(row, chunk) << 4);
  // A product of two 32-bit numbers is one instruction with the addition of the base, a 64-bit one is four.
  const char* base = reinterpret_cast<const char*>(from + chunk * 8);
#pragma unroll
  for (int i = 0; i < ROWS / STEP; ++i) {
    int at = first + row + i * STEP;
    copy16(tile + i * STEP * D * 2, base + (u64)(u32)min(at, end - 1) * (u32)(stride * 2), at < end);
  }
}
template <int D, int MT>
__device__ __forceinline__ void load_fragments(u32 (&f)[MT][D / 16][4], u32 tile, u32 by_rows) {
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int k = 0; k < D / 16; ++k) ldmatrix(f[m][k], tile + m * 32 * D + (by_rows ^ (k << 5)));
}

// acc += a (16 MT rows of D, in registers) times the transpose of 8 NT rows of the tile.
template <int D, int MT, int NT>
__device__ __forceinline__ void add_scores(float (&acc)[MT][NT][4], const u32 (&a)[MT][D / 16][4], u32 tile,
                                           u32 by_chunks) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int n = 0; n < NT / 2; ++n) {
      u32 b[4];
      ldmatrix(b, tile + n * 32 * D + (by_chunks ^ (k << 5)));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        mma(acc[m][2 * n], a[m][k], b[0], b[1]);
        mma(acc[m][2 * n + 1], a[m][k], b[2], b[3]);
      }
    }
}
// The same with a in shared memory: where its registers are wanted for accumulators.
template <int D, int MT, int NT>
__device__ __forceinline__ void add_scores(float (&acc)[MT][NT][4], u32 own, u32 by_rows, u32 tile, u32 by_chunks) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    u32 a[MT][4];
#pragma unroll
    for (int m = 0; m < MT; ++m) ldmatrix(a[m], own + m * 32 * D + (by_rows ^ (k << 5)));
#pragma unroll
    for (int n = 0; n < NT / 2; ++n) {
      u32 b[4];
      ldmatrix(b, tile + n * 32 * D + (by_chunks ^ (k << 5)));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        mma(acc[m][2 * n], a[m], b[0], b[1]);
        mma(acc[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}
// acc += weights (16 MT x 8 NT, in registers) times 8 NT rows of the tile.
template <int D, int MT, int NT>
__device__ __forceinline__ void add_weighted(float (&acc)[MT][D / 8][4], const u32 (&w)[MT][NT / 2][4], u32 tile,
                                             u32 by_rows) {
#pragma unroll
  for (int k = 0; k < NT / 2; ++k)
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      u32 b[4];
      ldmatrix_trans(b, tile + k * 32 * D + (by_rows ^ (n << 5)));
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        mma(acc[m][2 * n], w[m][k], b[0], b[1]);
        mma(acc[m][2 * n + 1], w[m][k], b[2], b[3]);
      }
    }
}
// An accumulator's layout is that of an A operand once pairs are packed: scores become weights in their registers.
template <int MT, int NT>
__device__ __forceinline__ void pack_weights(u32 (&w)[MT][NT / 2][4], const float (&s)[MT][NT][4]) {
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int k = 0; k < NT / 2; ++k) {
      w[m][k][0] = pack_bf16(s[m][2 * k][0], s[m][2 * k][1]);
      w[m][k][1] = pack_bf16(s[m][2 * k][2], s[m][2 * k][3]);
      w[m][k][2] = pack_bf16(s[m][2 * k + 1][0], s[m][2 * k + 1][1]);
      w[m][k][3] = pack_bf16(s[m][2 * k + 1][2], s[m][2 * k + 1][3]);
    }
}

// Bits 0 ..= n.
__device__ __forceinline__ u32 bits_through(int n) { return n < 0 ? 0u : n > 30 ? FULL_MASK : (2u << n) - 1u; }
// Which of the 32 keys from `first` on are not hidden by length or mask. The whole warp calls it.
__device__ __forceinline__ u32 seen_keys(const int* mask, int first, int end) {
  u32 bits = bits_through(end - 1 - first);
  if (mask) {
    int key = first + (threadIdx.x & 31);
    bits &= __ballot_sync(FULL_MASK, key < end && mask[key] != 0);
  }
  return bits;
}
// Scores become -INF where the bit of their column is 0; seen(row, word) gives 32 columns of a row of the warp.
template <int MT, int NT, class F> __device__ __forceinline__ void hide(float (&s)[MT][NT][4], F seen) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int word = 0; word < NT / 4; ++word) {
        u32 bits = seen(16 * m + 8 * half + (lane >> 2), word) >> (2 * (lane & 3));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          if (!(bits & (1u << 8 * n))) s[m][4 * word + n][2 * half] = -INF;
          if (!(bits & (2u << 8 * n))) s[m][4 * word + n][2 * half + 1] = -INF;
        }
      }
}
// Which 16 MT rows of the block's are this warp's. A causal mask gives the warps of a block unequal work, and a warp's
// number decides which quarter of the multiprocessor it runs on: the order turns from tile to tile to even that out.
// The shuffle tells the compiler that the number is the same in all lanes: it then lives in a uniform register.
__device__ __forceinline__ int find_slot(int tile) {
  int warp = __shfl_sync(FULL_MASK, threadIdx.x >> 5, 0);
  return tile & 1 ? THREADS / 32 - 1 - warp : warp;
}
__device__ __forceinline__ float sum_of_four_lanes(float x) {
  x += __shfl_xor_sync(FULL_MASK, x, 1);
  return x + __shfl_xor_sync(FULL_MASK, x, 2);
}

// Writes a warp's rows through its own rows of a tile that is no longer read, so that stores are 16 bytes wide.
template <int D, int MT>
__device__ __forceinline__ void write_rows(unsigned char* tile, const float (&acc)[MT][D / 8][4], float factor,
                                           bf16* to, int stride, int first, int end) {
  int lane = threadIdx.x & 31;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = 16 * m + 8 * half + (lane >> 2);
        *reinterpret_cast<u32*>(tile + row * D * 2 + (exchanged<D>(row, n) << 4) + (lane & 3) * 4) =
            pack_bf16(acc[m][n][2 * half] * factor, acc[m][n][2 * half + 1] * factor);
      }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < MT * D / 16; ++i) {
    int at = i * 32 + lane, row = at / (D / 8), chunk = at % (D / 8);
    if (first + row < end)
      *reinterpret_cast<uint4*>(to + (i64)(first + row) * stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(tile + row * D * 2 + (exchanged<D>(row, chunk) << 4));
  }
}

template <int D, int MT, int NT>
__device__ __forceinline__ void forward(View<const bf16> q, View<const bf16> k, View<const bf16> v, View<bf16> o,
                                        float* lse, const int* key_lengths, const int* key_mask, int batches,
                                        int heads, int tq, int tk, bool causal, float scale) {
  constexpr int ROWS = 64 * MT, WIDTH = 8 * NT, TILE_BYTES = TILE * D * 2;
  int lane = threadIdx.x & 31, shift = tk - tq;
  Place place = find_place((tq + ROWS - 1) / ROWS, heads, batches, causal);
  int slot = find_slot(place.tile), first_row = place.tile * ROWS, own = first_row + slot * 16 * MT;
  int keys = count_keys(key_lengths, place.batch, tk);
  if (causal) keys = min(keys, min(first_row + ROWS, tq) + shift);
  int own_keys = own >= tq ? 0 : causal ? min(keys, own + 16 * MT + shift) : keys;
  int tiles = max(0, keys + TILE - 1) / TILE;
  const int* mask = key_mask ? key_mask + (i64)place.batch * tk : nullptr;
  const bf16* from_k = k.at(place.batch, place.head);
  const bf16* from_v = v.at(place.batch, place.head);
  u32 queries = shared_address(shared_memory), stages = queries + ROWS * D * 2;
  u32 by_rows = lane_by_rows<D>(), by_chunks = lane_by_chunks<D>();

  load_tile<D, ROWS>(queries, q.at(place.batch, place.head), q.time, first_row, tq);
  if (tiles) {
    load_tile<D, TILE>(stages, from_k, k.time, 0, keys);
    load_tile<D, TILE>(stages + TILE_BYTES, from_v, v.time, 0, keys);
  }
  await_copies();
  __syncthreads();
  u32 query[MT][D / 16][4];
  load_fragments<D, MT>(query, queries + slot * MT * 32 * D, by_rows);

  float acc[MT][D / 8][4] = {}, top[MT][2], sum[MT][2] = {};
#pragma unroll
  for (int m = 0; m < MT; ++m) top[m][0] = top[m][1] = -INF;
  // Exponents are taken against a maximum that may lag behind the true one by 8 binary orders: sums stay far from
  // overflow, and the accumulators are rescaled a few times a row instead of once a tile.
  float factor = scale * LOG2E, slack = __fdividef(8.f, factor);

  for (int i = 0; i < tiles; ++i) {
    if (i) { await_copies(); __syncthreads(); }
    if (i + 1 < tiles) {
      u32 next = stages + ((i + 1) & 1) * 2 * TILE_BYTES;
      load_tile<D, TILE>(next, from_k, k.time, (i + 1) * TILE, keys);
      load_tile<D, TILE>(next + TILE_BYTES, from_v, v.time, (i + 1) * TILE, keys);
    }
#pragma unroll 1
    for (int part = 0; part < TILE; part += WIDTH) {
      int first = i * TILE + part;
      if (first >= own_keys) break;
      u32 tile = stages + (i & 1) * 2 * TILE_BYTES + part * D * 2, seen[NT / 4];
      bool whole = !causal || first + WIDTH - 1 <= own + shift;
#pragma unroll
      for (int word = 0; word < NT / 4; ++word) {
        seen[word] = seen_keys(mask, first + 32 * word, keys);
        whole = whole && seen[word] == FULL_MASK;
      }
      float s[MT][NT][4] = {};
      add_scores<D, MT, NT>(s, query, tile, by_chunks);
      if (!whole)
        hide<MT, NT>(s, [&](int row, int word) {
          return seen[word] & (causal ? bits_through(own + row + shift - first - 32 * word) : FULL_MASK);
        });

      float high[MT][2];
      bool grows = false;
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float x = fmaxf(s[m][0][2 * half], s[m][0][2 * half + 1]);
#pragma unroll
          for (int n = 1; n < NT; ++n) x = fmaxf(x, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
          high[m][half] = x;
          grows = grows || x > top[m][half] + slack;
        }
      if (__any_sync(FULL_MASK, grows)) {
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float x = fmaxf(high[m][half], __shfl_xor_sync(FULL_MASK, high[m][half], 1));
            x = fmaxf(fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 2)), top[m][half]);
            // Nothing seen yet on either side is -INF - -INF; there the accumulators are 0 whatever the ratio.
            float ratio = x == -INF ? 1.f : fast_exp2((top[m][half] - x) * factor);
            top[m][half] = x;
            sum[m][half] *= ratio;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) { acc[m][n][2 * half] *= ratio; acc[m][n][2 * half + 1] *= ratio; }
          }
      }
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float base = top[m][half] == -INF ? 0.f : top[m][half] * factor;
#pragma unroll
          for (int n = 0; n < NT; ++n) {
            float x = fast_exp2(s[m][n][2 * half] * factor - base);
            float y = fast_exp2(s[m][n][2 * half + 1] * factor - base);
            sum[m][half] += x + y;
            s[m][n][2 * half] = x;
            s[m][n][2 * half + 1] = y;
          }
        }
      u32 weights[MT][NT / 2][4];
      pack_weights<MT, NT>(weights, s);
      add_weighted<D, MT, NT>(acc, weights, tile + TILE_BYTES, by_rows);
    }
  }

#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum_of_four_lanes(sum[m][half]), inverse = total == 0.f ? 0.f : __fdividef(1.f, total);
      int row = own + 16 * m + 8 * half + (lane >> 2);
      if ((lane & 3) == 0 && row < tq)
        lse[((i64)place.batch * heads + place.head) * tq + row] =
            total == 0.f ? INF : top[m][half] * scale + __logf(total);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) { acc[m][n][2 * half] *= inverse; acc[m][n][2 * half + 1] *= inverse; }
    }
  write_rows<D, MT>(shared_memory + slot * MT * 32 * D, acc, 1.f, o.at(place.batch, place.head), o.time, own, tq);
}

template <int D, int MT, int NT>
__device__ __forceinline__ void backward_q(View<const bf16> q, View<const bf16> k, View<const bf16> v,
                                           View<const bf16> o, View<const bf16> grad, View<bf16> dq,
                                           const float* lse, float* delta, const int* key_lengths,
                                           const int* key_mask, int batches, int heads, int tq, int tk, bool causal,
                                           float scale) {
  constexpr int ROWS = 64 * MT, WIDTH = 8 * NT, TILE_BYTES = TILE * D * 2;
  int lane = threadIdx.x & 31, shift = tk - tq;
  Place place = find_place((tq + ROWS - 1) / ROWS, heads, batches, causal);
  int slot = find_slot(place.tile), first_row = place.tile * ROWS, own = first_row + slot * 16 * MT;
  int keys = count_keys(key_lengths, place.batch, tk);
  if (causal) keys = min(keys, min(first_row + ROWS, tq) + shift);
  int own_keys = own >= tq ? 0 : causal ? min(keys, own + 16 * MT + shift) : keys;
  int tiles = max(0, keys + TILE - 1) / TILE;
  const int* mask = key_mask ? key_mask + (i64)place.batch * tk : nullptr;
  const bf16* from_k = k.at(place.batch, place.head);
  const bf16* from_v = v.at(place.batch, place.head);
  u32 queries = shared_address(shared_memory), grads = queries + ROWS * D * 2, stages = grads + ROWS * D * 2;
  u32 outputs = stages + 2 * TILE_BYTES;  // in the second stage until the first tile is at work
  u32 by_rows = lane_by_rows<D>(), by_chunks = lane_by_chunks<D>(), warp_rows = slot * MT * 32 * D;

  load_tile<D, ROWS>(queries, q.at(place.batch, place.head), q.time, first_row, tq);
  load_tile<D, ROWS>(grads, grad.at(place.batch, place.head), grad.time, first_row, tq);
  load_tile<D, ROWS>(outputs, o.at(place.batch, place.head), o.time, first_row, tq);
  if (tiles) {
    load_tile<D, TILE>(stages, from_k, k.time, 0, keys);
    load_tile<D, TILE>(stages + TILE_BYTES, from_v, v.time, 0, keys);
  }
  await_copies();
  __syncthreads();
  u32 query[MT][D / 16][4], gradient[MT][D / 16][4];
  load_fragments<D, MT>(query, queries + warp_rows, by_rows);
  load_fragments<D, MT>(gradient, grads + warp_rows, by_rows);
  float row_lse[MT][2], row_delta[MT][2] = {};
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      u32 output[4];
      ldmatrix(output, outputs + warp_rows + m * 32 * D + (by_rows ^ (n << 5)));
#pragma unroll
      for (int r = 0; r < 4; ++r)
        row_delta[m][r & 1] += low_bf16(output[r]) * low_bf16(gradient[m][n][r]) +
                               high_bf16(output[r]) * high_bf16(gradient[m][n][r]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = own + 16 * m + 8 * half + (lane >> 2);
      i64 at = ((i64)place.batch * heads + place.head) * tq + row;
      row_delta[m][half] = sum_of_four_lanes(row_delta[m][half]);
      row_lse[m][half] = row < tq ? lse[at] * LOG2E : INF;
      if ((lane & 3) == 0 && row < tq) delta[at] = row_delta[m][half];
    }
  }
  __syncthreads();

  float acc[MT][D / 8][4] = {}, factor = scale * LOG2E;
  for (int i = 0; i < tiles; ++i) {
    if (i) { await_copies(); __syncthreads(); }
    if (i + 1 < tiles) {
      u32 next = stages + ((i + 1) & 1) * 2 * TILE_BYTES;
      load_tile<D, TILE>(next, from_k, k.time, (i + 1) * TILE, keys);
      load_tile<D, TILE>(next + TILE_BYTES, from_v, v.time, (i + 1) * TILE, keys);
    }
#pragma unroll 1
    for (int part = 0; part < TILE; part += WIDTH) {
      int first = i * TILE + part;
      if (first >= own_keys) break;
      u32 tile = stages + (i & 1) * 2 * TILE_BYTES + part * D * 2, seen[NT / 4];
      bool whole = !causal || first + WIDTH - 1 <= own + shift;
#pragma unroll
      for (int word = 0; word < NT / 4; ++word) {
        seen[word] = seen_keys(mask, first + 32 * word, keys);
        whole = whole && seen[word] == FULL_MASK;
      }
      float s[MT][NT][4] = {}, dp[MT][NT][4] = {};
      add_scores<D, MT, NT>(s, query, tile, by_chunks);
      if (!whole)
        hide<MT, NT>(s, [&](int row, int word) {
          return seen[word] & (causal ? bits_through(own + row + shift - first - 32 * word) : FULL_MASK);
        });
      // After the branch, so that exponentials can be taken in the shadow of this product.
      add_scores<D, MT, NT>(dp, gradient, tile + TILE_BYTES, by_chunks);
#pragma unroll
      for (int m = 0; m < MT; ++m)
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[m][n][e] = fast_exp2(s[m][n][e] * factor - row_lse[m][e >> 1]) * (dp[m][n][e] - row_delta[m][e >> 1]);
      u32 weights[MT][NT / 2][4];
      pack_weights<MT, NT>(weights, s);
      add_weighted<D, MT, NT>(acc, weights, tile, by_rows);
    }
  }
  write_rows<D, MT>(shared_memory + warp_rows, acc, scale, dq.at(place.batch, place.head), dq.time, own, tq);
}

// Scores are transposed here, keys down and queries across: weights then come out as the A operand of both sums.
// HOLD keeps the warp's keys and values in registers; with MT = 2 the accumulators leave no room for them.
template <int D, int MT, int NT, bool HOLD>
__device__ __forceinline__ void backward_kv(View<const bf16> q, View<const bf16> k, View<const bf16> v,
                                            View<const bf16> grad, View<bf16> dk, View<bf16> dv, const float* lse,
                                            const float* delta, const int* key_lengths, const int* key_mask,
                                            int batches, int heads, int tq, int tk, bool causal, float scale) {
  constexpr int ROWS = 64 * MT, WIDTH = 8 * NT, TILE_BYTES = TILE * D * 2, STAGE = 2 * TILE_BYTES + 2 * TILE * 4;
  constexpr u32 ALL = MT == 2 ? FULL_MASK : 0xffffu;
  int lane = threadIdx.x & 31, shift = tk - tq;
  Place place = find_place((tk + ROWS - 1) / ROWS, heads, batches, false);
  int slot = find_slot(place.tile), first_row = place.tile * ROWS, own = first_row + slot * 16 * MT;
  int keys = count_keys(key_lengths, place.batch, tk);
  u32 seen = seen_keys(key_mask ? key_mask + (i64)place.batch * tk : nullptr, own, keys) & ALL;
  int begin = causal ? max(0, first_row - shift) / TILE : 0, end = first_row < keys ? (tq + TILE - 1) / TILE : 0;
  const bf16* from_q = q.at(place.batch, place.head);
  const bf16* from_grad = grad.at(place.batch, place.head);
  u32 pair = place.batch * heads + place.head;
  u32 own_k = shared_address(shared_memory), own_v = own_k + ROWS * D * 2, stages = own_v + ROWS * D * 2;
  u32 by_rows = lane_by_rows<D>(), by_chunks = lane_by_chunks<D>(), warp_rows = slot * MT * 32 * D;

  // Rows past the last query are all 0, q, do, lse and delta: they add nothing, so no mask is kept for them.
  auto load_stage = [&](int i) {
    u32 stage = stages + (i & 1) * STAGE;
    load_tile<D, TILE>(stage, from_q, q.time, i * TILE, tq);
    load_tile<D, TILE>(stage + TILE_BYTES, from_grad, grad.time, i * TILE, tq);
    int row = i * TILE + (threadIdx.x & (TILE - 1));
    copy4(stage + 2 * TILE_BYTES + threadIdx.x * 4,
          (threadIdx.x < TILE ? lse : delta) + (u64)pair * (u32)tq + (u32)min(row, tq - 1), row < tq);
  };
  if (begin < end) {
    load_tile<D, ROWS>(own_k, k.at(place.batch, place.head), k.time, first_row, keys);
    load_tile<D, ROWS>(own_v, v.at(place.batch, place.head), v.time, first_row, keys);
    load_stage(begin);
  }
  await_copies();
  __syncthreads();
  u32 key[HOLD ? MT : 1][D / 16][4], value[HOLD ? MT : 1][D / 16][4];
  if constexpr (HOLD) {
    load_fragments<D, MT>(key, own_k + warp_rows, by_rows);
    load_fragments<D, MT>(value, own_v + warp_rows, by_rows);
  }

  float acc_k[MT][D / 8][4] = {}, acc_v[MT][D / 8][4] = {}, factor = scale * LOG2E;
  for (int i = begin; i < end; ++i) {
    if (i > begin) { await_copies(); __syncthreads(); }
    if (i + 1 < end) load_stage(i + 1);
#pragma unroll 1
    for (int part = 0; part < TILE; part += WIDTH) {
      int first = i * TILE + part;
      if (seen == 0 || first >= tq || (causal && first + WIDTH <= own - shift)) continue;
      u32 tile = stages + (i & 1) * STAGE + part * D * 2;
      const float* columns = reinterpret_cast<const float*>(shared_memory + 2 * ROWS * D * 2 + (i & 1) * STAGE +
                                                            2 * TILE_BYTES) + part + 2 * (lane & 3);
      float s[MT][NT][4] = {}, dp[MT][NT][4] = {};
      if constexpr (HOLD)
        add_scores<D, MT, NT>(s, key, tile, by_chunks);
      else
        add_scores<D, MT, NT>(s, own_k + warp_rows, by_rows, tile, by_chunks);
      if (seen != ALL || (causal && first < own + 16 * MT - 1 - shift))
        hide<MT, NT>(s, [&](int row, int word) {
          u32 bits = causal ? ~bits_through(own + row - shift - first - 32 * word - 1) : FULL_MASK;
          return seen >> row & 1 ? bits : 0u;
        });
      if constexpr (HOLD)
        add_scores<D, MT, NT>(dp, value, tile + TILE_BYTES, by_chunks);
      else
        add_scores<D, MT, NT>(dp, own_v + warp_rows, by_rows, tile + TILE_BYTES, by_chunks);
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        float2 column_lse = *reinterpret_cast<const float2*>(columns + 8 * n);
        float2 column_delta = *reinterpret_cast<const float2*>(columns + TILE + 8 * n);
        column_lse.x *= LOG2E;
        column_lse.y *= LOG2E;
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float p = fast_exp2(s[m][n][e] * factor - (e & 1 ? column_lse.y : column_lse.x));
            s[m][n][e] = p;
            dp[m][n][e] = p * (dp[m][n][e] - (e & 1 ? column_delta.y : column_delta.x));
          }
      }
      u32 weights[MT][NT / 2][4];
      pack_weights<MT, NT>(weights, s);
      add_weighted<D, MT, NT>(acc_v, weights, tile + TILE_BYTES, by_rows);
      pack_weights<MT, NT>(weights, dp);
      add_weighted<D, MT, NT>(acc_k, weights, tile, by_rows);
    }
  }
  write_rows<D, MT>(shared_memory + warp_rows, acc_k, scale, dk.at(place.batch, place.head), dk.time, own, tk);
  write_rows<D, MT>(shared_memory + ROWS * D * 2 + warp_rows, acc_v, 1.f, dv.at(place.batch, place.head), dv.time,
                    own, tk);
}

// Launch, with ROWS = 64 MT (128 for head size 64, 64 for 32), 128 threads, and bytes of dynamic shared memory:
//   forward      batches * heads * ceil(tq / ROWS) blocks   (ROWS + 256) * D * 2
//   backward_q   batches * heads * ceil(tq / ROWS) blocks   (2 * ROWS + 256) * D * 2
//   backward_kv  batches * heads * ceil(tk / ROWS) blocks   (2 * ROWS + 256) * D * 2 + 1024, after backward_q
// lse and delta are [batch, head, tq]; absent key_lengths [batch] and key_mask [batch, tk] are null.
#define MASKS_AND_SIZES                                                                                         \
  const int *key_lengths, const int *key_mask, int batches, int heads, int tq, int tk, int causal, float scale
#define FORWARD(NAME, D, MT, NT, BLOCKS)                                                                        \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                 \
      NAME(View<const bf16> q, View<const bf16> k, View<const bf16> v, View<bf16> o, float* lse, MASKS_AND_SIZES) { \
    enter(); \
    forward<D, MT, NT>(q, k, v, o, lse, key_lengths, key_mask, batches, heads, tq, tk, causal != 0, scale);     \
  }
#define BACKWARD_Q(NAME, D, MT, NT, BLOCKS)                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                 \
      NAME(View<const bf16> q, View<const bf16> k, View<const bf16> v, View<const bf16> o, View<const bf16> grad, \
           View<bf16> dq, const float* lse, float* delta, MASKS_AND_SIZES) {                                    \
    enter(); \
    backward_q<D, MT, NT>(q, k, v, o, grad, dq, lse, delta, key_lengths, key_mask, batches, heads, tq, tk,      \
                          causal != 0, scale);                                                                  \
  }
#define BACKWARD_KV(NAME, D, MT, NT, HOLD, BLOCKS)                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                 \
      NAME(View<const bf16> q, View<const bf16> k, View<const bf16> v, View<const bf16> grad, View<bf16> dk,    \
           View<bf16> dv, const float* lse, const float* delta, MASKS_AND_SIZES) {                              \
    enter(); \
    backward_kv<D, MT, NT, HOLD>(q, k, v, grad, dk, dv, lse, delta, key_lengths, key_mask, batches, heads, tq, tk, \
                                 causal != 0, scale);                                                           \
  }
FORWARD(attention_forward_bf16_d64, 64, 2, 8, 2)
FORWARD(attention_forward_bf16_d32, 32, 1, 8, 2)
BACKWARD_Q(attention_backward_q_bf16_d64, 64, 2, 4, 2)
BACKWARD_Q(attention_backward_q_bf16_d32, 32, 1, 4, 2)
BACKWARD_KV(attention_backward_kv_bf16_d64, 64, 2, 4, false, 2)
BACKWARD_KV(attention_backward_kv_bf16_d32, 32, 1, 4, true, 2)
// Other shapes of the same kernels, to be timed against those above on a new GPU.
#ifdef ATTENTION_VARIANTS
FORWARD(attention_forward_bf16_d64_m2n4, 64, 2, 4, 3)
FORWARD(attention_forward_bf16_d64_m1n8, 64, 1, 8, 4)
BACKWARD_Q(attention_backward_q_bf16_d64_m1n8, 64, 1, 8, 3)
BACKWARD_Q(attention_backward_q_bf16_d64_m1n4, 64, 1, 4, 4)
BACKWARD_KV(attention_backward_kv_bf16_d64_m1n8, 64, 1, 8, true, 2)
BACKWARD_KV(attention_backward_kv_bf16_d64_m1n4, 64, 1, 4, true, 3)
#endif
#endif  // __CUDA_ARCH__ >= 800

// ---- f32 without tensor cores, any head size up to 128 that is a multiple of 4. A block of 128 threads owns 32
// rows, four threads a row, and streams tiles of 16. Pointers are aligned to 16 bytes, strides multiples of 4.
// `dim` is rounded up to 16 in shared memory with zeros behind; 4 more floats a row keep 8 rows in different banks.
// Launch as above with ROWS = 32; with pitch = ceil(dim / 16) * 16 + 4, bytes of dynamic shared memory are
// (64 * pitch + 544) * 4 forward, (96 * pitch + 544) * 4 backward_q, (96 * pitch + 1088) * 4 backward_kv.
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
// This thread's 4 scores of its row: with streamed rows c, c + 4, c + 8, c + 12.
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
  if (row < tq)
#pragma unroll 1
    for (int d = 4 * c; d < dim; d += 16) {
      float x[4];
      load4(o.at(place.batch, place.head) + (i64)row * o.time + d, x);
      float4 y = *gradient.at(r, d);
      row_delta += x[0] * y.x + x[1] * y.y + x[2] * y.z + x[3] * y.w;
    }
  row_delta = quad_sum(row_delta);
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
      weights[c + 4 * j] = seen ? expf(s[j] * scale - row_lse) * (dp[j] - row_delta) : 0.f;
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
      float p = sees ? expf(s[j] * scale - lse[at + n]) : 0.f;
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
