// The weight gradient of a 1-D convolution, and the weights re-laid for its data gradient.
//
//   dw[m][tap][ci] = sum over b, s of leaky(dy[b, s, m]) * leaky(x[b] at s * x_pitch + x_offset
//                                                                     + tap * dilation * x_pitch + ci)
//
// Positions are flat elements inside one batch entry, zero outside [0, x_limit), as in the forward kernel. Of a strided
// or transposed convolution the taps are one tap of k * channels (the overlapping view: x_pitch = stride * channels);
// of a transposed one `dy` is its input and `x` the gradient of its output, so that dw comes out as [Cin, k, Cout].
//
// Both operands have the summed index as their row, so both fragments are loaded transposed. A block owns a tile of
// dw (BM x GROUP taps x BC) and a share of the (b, s) chunks; the shares are written separately and added in order by a
// second kernel. Column sums of dy (the bias gradient) are computed as a product with ones, by a warp without a tap
// if there is one.

struct WeightGradShape {
  int batch, rows;     // rows s per batch entry
  int m;               // columns of dy, a multiple of 8
  int channels;        // columns of x per tap, a multiple of 8
  int taps, dilation;
  int x_pitch, x_offset, x_limit;
  int splits;          // shares of the chunks = gridDim.y
  int bias;            // also write the column sums of dy
  float slope_dy, slope_x;  // 1 = no activation
};

extern __shared__ uint4 shared_bytes[];

#if __CUDA_ARCH__ >= 800
// [instructions]
__device__ __forceinline__ u32 shared_address() { return (u32)__cvta_generic_to_shared(shared_bytes); }
__device__ __forceinline__ void copy16(u32 to, const bf16* from, bool live) {
  int bytes = live ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
__device__ __forceinline__ void load_matrix4_transposed(u32* r, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}
__device__ __forceinline__ void mma(float* d, const u32* a, const u32* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Leaky ReLU of a pair. The slope is a sum of two bf16, so 0.1 is exact to 16 bits and the product rounds once.
__device__ __forceinline__ u32 leaky_pair(u32 x, u32 high, u32 low) {
  u32 r;
  asm("{.reg .b32 t;\n fma.rn.bf16x2 t, %1, %3, %4;\n fma.rn.bf16x2 t, %1, %2, t;\n max.bf16x2 %0, %1, t;}"
      : "=r"(r) : "r"(x), "r"(high), "r"(low), "r"(0x80008000u));
  return r;
}
// [/instructions]

__device__ __forceinline__ void leaky_in_place(int byte, float slope) {
  float h = to_f32(to_bf16(slope));
  u32 high = pack_bf16(h, h), low = pack_bf16(slope - h, slope - h);
  uint4* p = shared_bytes + (byte >> 4);
  uint4 v = *p;
  v.x = leaky_pair(v.x, high, low);
  v.y = leaky_pair(v.y, high, low);
  v.z = leaky_pair(v.z, high, low);
  v.w = leaky_pair(v.w, high, low);
  *p = v;
}

// Rows of WIDTH channels; 16-byte pieces are permuted so that eight neighbouring rows are in different banks.
template <int WIDTH> __device__ __forceinline__ int swizzle(int row) {
  return WIDTH >= 64 ? row & 7 : (row >> 1) & 3;
}

// A warp owns WM x (TAPS taps) x WC of dw; warps are split by m, tap, channel and row (the last are added at the
// end).
template <int WM, int WC, int TAPS, int WARPS_M, int WARPS_T, int WARPS_C, int WARPS_R, int ROWS, int STAGES>
__device__ __forceinline__ void weight_grad(const bf16* __restrict__ dy, const bf16* __restrict__ x, float* partial,
                                            const WeightGradShape& p) {
  constexpr int WARPS = WARPS_M * WARPS_T * WARPS_C, THREADS = WARPS * WARPS_R * 32;
  constexpr int BM = WM * WARPS_M, BC = WC * WARPS_C, GROUP = TAPS * WARPS_T, MI = WM / 16, NJ = WC / 8;
  constexpr int A_PIECES = BM / 8, A_PASS = THREADS / A_PIECES, A_ROW = BM * 2, A_BYTES = ROWS * A_ROW;
  constexpr int X_PIECES = BC / 8, X_PASS = THREADS / X_PIECES, X_ROW = BC * 2;
  constexpr int DEPTH = ROWS / 16 / WARPS_R, STEPS = DEPTH * TAPS;
  static_assert(THREADS % A_PIECES == 0 && ROWS % A_PASS == 0 && THREADS % X_PIECES == 0 && ROWS % (16 * WARPS_R) == 0,
                "tile");
  int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  int warp_m = warp % WARPS_M, warp_t = warp / WARPS_M % WARPS_T, warp_c = warp / (WARPS_M * WARPS_T) % WARPS_C;
  int warp_r = warp / WARPS;
  int groups = (p.taps + GROUP - 1) / GROUP, c_blocks = (p.channels + BC - 1) / BC;
  int group = blockIdx.x % groups, c0 = blockIdx.x / groups % c_blocks * BC, m0 = blockIdx.x / (groups * c_blocks) * BM;
  int tap0 = group * GROUP;
  int x_rows = ROWS + (GROUP - 1) * p.dilation, stage_bytes = A_BYTES + x_rows * X_ROW;
  u32 shared = shared_address();

  int per_entry = (p.rows + ROWS - 1) / ROWS, chunks = p.batch * per_entry;
  int chunk = (int)((i64)chunks * blockIdx.y / p.splits);
  int chunk_end = (int)((i64)chunks * (blockIdx.y + 1) / p.splits);

  int a_piece = tid % A_PIECES, a_first = tid / A_PIECES, x_piece = tid % X_PIECES, x_first = tid / X_PIECES;
  bool a_inside = m0 + a_piece * 8 < p.m, x_inside = c0 + x_piece * 8 < p.channels;
  int load_chunk = chunk, load_b = chunk / per_entry, load_s = chunk % per_entry * ROWS, load_stage = 0;
  auto load = [&]() {
    if (load_chunk < chunk_end) {
      u32 to = shared + load_stage * stage_bytes;
      const bf16* from = dy + ((i64)load_b * p.rows + load_s + a_first) * p.m + m0 + a_piece * 8;
#pragma unroll
      for (int q = 0; q < ROWS / A_PASS; q++) {
        int row = a_first + q * A_PASS;
        bool live = a_inside && load_s + row < p.rows;
        copy16(to + row * A_ROW + ((a_piece ^ swizzle<BM>(row)) << 4), live ? from : dy, live);
        from += A_PASS * p.m;
      }
      to += A_BYTES;
      const bf16* xb = x + (i64)load_b * p.x_limit;
      int at = (load_s + tap0 * p.dilation + x_first) * p.x_pitch + p.x_offset + c0 + x_piece * 8;
#pragma unroll 2
      for (int row = x_first; row < x_rows; row += X_PASS, at += X_PASS * p.x_pitch) {
        bool live = x_inside && (u32)at < (u32)p.x_limit;
        copy16(to + row * X_ROW + ((x_piece ^ swizzle<BC>(row)) << 4), xb + (live ? at : 0), live);
      }
      load_chunk++;
      load_stage = load_stage + 1 == STAGES ? 0 : load_stage + 1;
      load_s += ROWS;
      if (load_s >= p.rows) load_s = 0, load_b++;
    }
    copies_commit();
  };

  float acc[TAPS][MI][NJ][4], sums[MI][4];
#pragma unroll
  for (int i = 0; i < MI; i++) {
    sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0.f;
#pragma unroll
    for (int t = 0; t < TAPS; t++)
#pragma unroll
      for (int j = 0; j < NJ; j++) acc[t][i][j][0] = acc[t][i][j][1] = acc[t][i][j][2] = acc[t][i][j][3] = 0.f;
  }

  // Fragment addresses inside a stage: a step of 16 rows keeps the permutation, a step of 16 columns is one XOR.
  int a_row = (lane >> 4) * 8 + (lane & 7), a_column = warp_m * (WM / 8) + ((lane >> 3) & 1);
  u32 a_at = (a_row + warp_r * 16) * A_ROW + ((a_column ^ swizzle<BM>(a_row)) << 4), x_at[TAPS];
#pragma unroll
  for (int t = 0; t < TAPS; t++) {
    int row = ((lane >> 3) & 1) * 8 + (lane & 7) + (warp_t * TAPS + t) * p.dilation;
    int column = warp_c * (WC / 8) + (lane >> 4);
    x_at[t] = A_BYTES + (row + warp_r * 16) * X_ROW + ((column ^ swizzle<BC>(row)) << 4);
  }
  int slot0 = tap0 + warp_t * TAPS, live_taps = min(TAPS, p.taps - slot0);
  int owner = p.taps < groups * GROUP ? p.taps : 0;
  bool summing = p.bias && c0 == 0 && warp_c == 0 && owner >= slot0 && owner < slot0 + TAPS;
  u32 ones[2] = {0x3f803f80u, 0x3f803f80u};

  int stage = 0;
  for (int turn = 1 - STAGES; chunk < chunk_end; turn++) {
    if (turn >= 0) {
      copies_wait<STAGES - 2>();
      if (p.slope_dy != 1.f)
#pragma unroll 4
        for (int row = a_first; row < ROWS; row += A_PASS)
          leaky_in_place(stage * stage_bytes + row * A_ROW + ((a_piece ^ swizzle<BM>(row)) << 4), p.slope_dy);
      if (p.slope_x != 1.f)
#pragma unroll 2
        for (int row = x_first; row < x_rows; row += X_PASS)
          leaky_in_place(stage * stage_bytes + A_BYTES + row * X_ROW + ((x_piece ^ swizzle<BC>(row)) << 4), p.slope_x);
      __syncthreads();
    }
    load();
    if (turn < 0) continue;

    if (live_taps > 0 || summing) {
      u32 at = shared + stage * stage_bytes;
      u32 a[2][MI][4], bfrag[2][NJ / 2][4];
      auto fetch = [&](int step) {
        int t = step % TAPS, depth = step / TAPS;
        if (t == 0) {
#pragma unroll
          for (int i = 0; i < MI; i++)
            load_matrix4_transposed(a[depth & 1][i], ((at + a_at) ^ (i << 5)) + depth * (16 * WARPS_R * A_ROW));
        }
#pragma unroll
        for (int j = 0; j < NJ / 2; j++)
          load_matrix4_transposed(bfrag[step & 1][j], ((at + x_at[t]) ^ (j << 5)) + depth * (16 * WARPS_R * X_ROW));
      };
      fetch(0);
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        if (step + 1 < STEPS) fetch(step + 1);
        int t = step % TAPS, depth = step / TAPS;
        if (t < live_taps) {
#pragma unroll
          for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NJ; j++) mma(acc[t][i][j], a[depth & 1][i], bfrag[step & 1][j / 2] + j % 2 * 2);
        }
        if (t == TAPS - 1 && summing) {
#pragma unroll
          for (int i = 0; i < MI; i++) mma(sums[i], a[depth & 1][i], ones);
        }
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    chunk++;
  }
  copies_wait<0>();

  if (WARPS_R > 1) {
    constexpr int EACH = TAPS * MI * NJ * 4 + MI * 4;
    float* mine = reinterpret_cast<float*>(shared_bytes) + (warp % WARPS) * (EACH * 32) + lane;
    __syncthreads();
    if (warp_r > 0) {
      float* to = mine + (warp_r - 1) * (WARPS * EACH * 32);
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
          to[(i * 4 + q) * 32] = sums[i][q];
#pragma unroll
          for (int t = 0; t < TAPS; t++)
#pragma unroll
            for (int j = 0; j < NJ; j++) to[(((t * NJ + j + 1) * MI + i) * 4 + q) * 32] = acc[t][i][j][q];
        }
    }
    __syncthreads();
    if (warp_r > 0) return;
#pragma unroll 1
    for (int r = 1; r < WARPS_R; r++) {
      const float* from = mine + (r - 1) * (WARPS * EACH * 32);
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
          sums[i][q] += from[(i * 4 + q) * 32];
#pragma unroll
          for (int t = 0; t < TAPS; t++)
#pragma unroll
            for (int j = 0; j < NJ; j++) acc[t][i][j][q] += from[(((t * NJ + j + 1) * MI + i) * 4 + q) * 32];
        }
    }
  }

  int w_row = p.taps * p.channels;
  partial += (i64)blockIdx.y * ((i64)p.m * w_row + p.m);
#pragma unroll
  for (int i = 0; i < MI; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int m = m0 + warp_m * WM + i * 16 + half * 8 + (lane >> 2);
      if (m >= p.m) continue;
      if (summing && (lane & 3) == 0) partial[(i64)p.m * w_row + m] = sums[i][half * 2];
#pragma unroll
      for (int t = 0; t < TAPS; t++)
#pragma unroll
        for (int j = 0; j < NJ; j++) {
          int c = c0 + warp_c * WC + j * 8 + (lane & 3) * 2;
          if (t < live_taps && c < p.channels)
            *reinterpret_cast<float2*>(partial + (i64)m * w_row + (slot0 + t) * p.channels + c) =
                make_float2(acc[t][i][j][half * 2], acc[t][i][j][half * 2 + 1]);
        }
    }
}
#define WEIGHT_GRAD(...) weight_grad<__VA_ARGS__>(dy, x, partial, p)
#else
#define WEIGHT_GRAD(...)
#endif

// Which tile: one tap (strided, transposed, 1x1) 128x256x1 where m >= 128 and channels >= 256, else 64x128x1; m and
// channels <= 32: 32x32x3, 32x32x8 or 32x32x12, the first that holds the taps; m <= 64: 64x64x3 up to three taps, else
// 64x64x4; wider: 128x64x3 up to three taps, else 128x64x4. Splits: as many as make the grid one full round of blocks
// (blocks per SM: the last number of each tile), or two rounds where one would leave more than 15 % of it idle.
// BM x BC x taps of a block. Launch: grid (ceil(taps / GROUP) * ceil(channels / BC) * ceil(m / BM), splits), block
// `threads`, dynamic shared memory STAGES * (ROWS * BM + (ROWS + (GROUP - 1) * dilation) * BC) * 2 bytes.
// Workspace: splits * (m * taps * channels + m) f32; the last m of a share are the column sums of dy.
#define WEIGHT(BM, BC, GROUP, WM, WC, TAPS, WARPS_M, WARPS_T, WARPS_C, WARPS_R, ROWS, STAGES, PER_SM)              \
  extern "C" __global__ void __launch_bounds__(WARPS_M* WARPS_T* WARPS_C* WARPS_R * 32, PER_SM)                    \
      conv1d_weight_grad_bf16_##BM##x##BC##x##GROUP(const bf16* dy, const bf16* x, float* partial,                 \
                                                    WeightGradShape p) {                                           \
    enter(); \
    WEIGHT_GRAD(WM, WC, TAPS, WARPS_M, WARPS_T, WARPS_C, WARPS_R, ROWS, STAGES);                                   \
  }

// A tile shape costs about half a second of compilation: a caller that needs only some defines TILES, one bit each.
#ifndef TILES
#define TILES 0xffff
#endif
#if TILES & 0x1
WEIGHT(128, 64, 4, 64, 64, 1, 2, 4, 1, 1, 64, 4, 1)
#endif
#if TILES & 0x2
WEIGHT(128, 64, 3, 32, 32, 3, 4, 1, 2, 1, 64, 4, 1)
#endif
#if TILES & 0x4
WEIGHT(128, 256, 1, 64, 64, 1, 2, 1, 4, 1, 64, 4, 1)
#endif
#if TILES & 0x8
WEIGHT(64, 64, 4, 64, 64, 1, 1, 4, 1, 1, 64, 4, 2)
#endif
#if TILES & 0x10
WEIGHT(64, 64, 3, 32, 32, 3, 2, 1, 2, 1, 64, 4, 2)
#endif
#if TILES & 0x20
WEIGHT(64, 128, 1, 64, 64, 1, 1, 1, 2, 2, 64, 4, 2)
#endif
#if TILES & 0x40
WEIGHT(32, 32, 12, 32, 32, 3, 1, 4, 1, 1, 128, 3, 3)
#endif
#if TILES & 0x80
WEIGHT(32, 32, 8, 32, 32, 4, 1, 2, 1, 2, 128, 3, 2)
#endif
#if TILES & 0x100
WEIGHT(32, 32, 3, 32, 32, 3, 1, 1, 1, 4, 128, 4, 3)
#endif

// The kernels without tiles; the last bit of TILES.
#if TILES & 0x8000
// first[i] = first_base[i] + scale * (sum of the shares' element i), shares in one fixed order; elements from n_first
// on go to `second`, without the factor. A base may be null, or its result itself. Block 256, grid
// ceil((n_first + n_second) / 32). `stride` = elements of a share.
extern "C" __global__ void __launch_bounds__(256)
    shares_sum_f32(const float* __restrict__ partial, float* first, const float* first_base, float* second,
                   const float* second_base, int n_first, int n_second, int stride, int splits, float scale) {
  enter();
  __shared__ float part[8][32];
  int lane = threadIdx.x % 32, group = threadIdx.x / 32, i = blockIdx.x * 32 + lane;
  float sum = 0.f;
  if (i < n_first + n_second) {
    const float* from = partial + i;
#pragma unroll 8
    for (int s = group; s < splits; s += 8) sum += from[(i64)s * stride];
  }
  part[group][lane] = sum;
  __syncthreads();
  if (group == 0 && i < n_first + n_second) {
#pragma unroll
    for (int g = 1; g < 8; g++) sum += part[g][lane];
    int j = i - n_first;
    if (j < 0) first[i] = (first_base ? first_base[i] : 0.f) + scale * sum;
    else second[j] = (second_base ? second_base[j] : 0.f) + sum;
  }
}

// w [a, k, c] to out [(r, c), i, a] for the phases r < u and the i < m = ceil(k / u) taps of each:
// out[r * c + ci][i][ai] = w[ai][r + u * (m - 1 - i)][ci], zero beyond k. With u = 1: transposed and flipped.
// Block 256, grid (ceil(a / 32), ceil(c / 32), u * m).
extern "C" __global__ void __launch_bounds__(256)
    conv1d_weight_transpose_bf16(const bf16* __restrict__ w, bf16* __restrict__ out, int a, int k, int c, int u) {
  enter();
  __shared__ bf16 tile[32][33];
  int m = (k + u - 1) / u, r = blockIdx.z / m, i = blockIdx.z % m, tap = r + u * (m - 1 - i);
  int lane = threadIdx.x % 32, ci = blockIdx.y * 32 + lane, ai = blockIdx.x * 32 + lane;
  for (int row = threadIdx.x / 32; row < 32; row += 8) {
    int from = blockIdx.x * 32 + row;
    tile[row][lane] = from < a && ci < c && tap < k ? w[((i64)from * k + tap) * c + ci] : (bf16)0;
  }
  __syncthreads();
  for (int row = threadIdx.x / 32; row < 32; row += 8) {
    int to = blockIdx.y * 32 + row;
    if (to < c && ai < a) out[((i64)(r * c + to) * m + i) * a + ai] = tile[lane][row];
  }
}
#endif
