// bf16 tiles in shared memory and on tensor cores, for attention_bf16.cu.
#if __CUDA_ARCH__ >= 800
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

// A tile in shared memory has rows of D elements, whose 16-byte chunks are permuted by row so that the 8 rows of an
// ldmatrix are in 8 different bank groups. A lane's address is computed once: as the permutation is an XOR on the
// chunk index, step k along the row is `lane_address ^ (k << 5)`, and 16 rows down is `+ 32 * D`.
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
  // A 32-bit product with the addition of the base is one instruction, a 64-bit one is four.
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
// The same with a in shared memory, where its registers are needed for accumulators.
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
// An accumulator has the layout of an A operand once pairs are packed: scores become weights in place.
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
// Which of the 32 keys from `first` on are not hidden by length or mask. Called by the whole warp.
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
// Which 16 MT rows of the block belong to this warp. A causal mask gives the warps of a block unequal work, and a
// warp's index decides which quarter of the multiprocessor it runs on: the order rotates from tile to tile to
// balance that. The shuffle tells the compiler that the index is the same in all lanes, so that it is kept in a
// uniform register.
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
#endif  // __CUDA_ARCH__ >= 800
