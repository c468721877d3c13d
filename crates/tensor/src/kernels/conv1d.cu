// 1-D convolution as an implicit GEMM on tensor cores: bf16 in, f32 sums, [batch, time, channel] throughout.
//
//   y[b, s, n] = act_out(bias[n] + cond[b, n] + scale * sum over outer, tap, ci of
//                        w[n][outer][tap][ci] * leaky(x at s * x_pitch + x_offset + outer * outer_step
//                                                       + tap * dilation * x_pitch + ci))
//                * leaky'(mask) + residual * residual_scale + base
//
// Positions are flat elements inside one batch entry; what falls outside [0, x_limit) reads as zero and what falls
// outside [0, y_limit) is not written. With that rule this kernel covers every convolution of the model:
//
// | pass                    | x view                                   | weights                  | y view |
// |-------------------------|------------------------------------------|--------------------------|--------|
// | conv, stride 1          | pitch Cin, offset -pad*Cin, taps k       | [Cout, k, Cin]           | pitch Cout, offset 0 |
// | conv, stride u          | pitch u*Cin, offset -pad*Cin, one tap of k*Cin channels (the overlapping view) | the same memory | the same |
// | conv, stride and dilation | pitch u*Cin, outer k, outer_step dilation*Cin, one tap of Cin channels | the same memory | the same |
// | conv's data gradient, stride 1 | dy: pitch Cout, offset -((k-1)*dilation-pad)*Cout, taps k | transposed (stride 1) | pitch Cin |
// | transposed conv, stride u | pitch Cin, taps m = ceil(k/u), offset -(m-1)*Cin | transposed (stride u) | N = u*Cout, pitch u*Cout, offset -pad*Cout |
// | transposed conv's data gradient | dy as "conv, stride u"             | [Cin, k, Cout] as it is  | pitch Cin |
// | strided conv's data gradient | dy as "transposed conv"               | transposed (stride u)    | N = u*Cin, pitch u*Cin, offset -pad*Cin |
//
// A tile of x with its halo is copied to shared memory once per block of channels and used by all taps; the weights
// are streamed. The tile's activation is applied in place by the thread that copied it, so it costs no barrier.

struct ConvShape {
  int rows;            // output rows s per batch entry
  int n;               // output columns
  int channels;        // channels per tap, a multiple of 8
  int taps, dilation;  // taps taken from one x tile
  int outer, outer_step;
  int x_pitch, x_offset, x_limit;  // x_limit = elements of x per batch entry, which is also its batch stride
  int y_pitch, y_offset, y_limit;
  int period;      // bias and cond are indexed by column % period (Cout of a transposed convolution)
  int act_out;     // 0 none, 1 tanh, 2 leaky ReLU with slope_out
  int cond_bf16;   // cond is bf16 [batch, period] rather than f32
  float slope_in;  // 1 = no activation; 0 <= slope <= 1
  float slope_out, slope_mask, scale, residual_scale;
};

extern __shared__ uint4 shared_bytes[];

#if __CUDA_ARCH__ >= 800
// [instructions]
__device__ __forceinline__ u32 shared_address() { return (u32)__cvta_generic_to_shared(shared_bytes); }
// Copies 16 bytes, or writes zeros if `live` is false; the address must be readable in either case.
__device__ __forceinline__ void copy16(u32 to, const bf16* from, bool live) {
  int bytes = live ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
// Weights are read by every block of an SM: cached in L1 as well.
__device__ __forceinline__ void copy16_shared_by_blocks(u32 to, const bf16* from, bool live) {
  int bytes = live ? 16 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
__device__ __forceinline__ void load_matrix4(u32* r, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}
__device__ __forceinline__ void load_matrix2(u32* r, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address));
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

struct Slope {
  u32 high, low;
  __device__ explicit Slope(float slope) {
    float h = to_f32(to_bf16(slope));
    high = pack_bf16(h, h);
    low = pack_bf16(slope - h, slope - h);
  }
};
__device__ __forceinline__ void leaky_in_place(int byte, const Slope& slope) {
  uint4* p = shared_bytes + (byte >> 4);
  uint4 v = *p;
  v.x = leaky_pair(v.x, slope.high, slope.low);
  v.y = leaky_pair(v.y, slope.high, slope.low);
  v.z = leaky_pair(v.z, slope.high, slope.low);
  v.w = leaky_pair(v.w, slope.high, slope.low);
  *p = v;
}

// Rows of BK channels; 16-byte pieces are permuted so that eight neighbouring rows are in different banks.
template <int BK> __device__ __forceinline__ int swizzle(int row) {
  return BK >= 64 ? row & 7 : BK == 32 ? (row >> 1) & 3 : (row >> 2) & 1;
}

__device__ __forceinline__ float activate_out(float v, const ConvShape& p) {
  if (p.act_out == 1) {
    float e = __expf(-2.f * fabsf(v));
    return copysignf((1.f - e) / (1.f + e), v);
  }
  return p.act_out == 2 && v < 0.f ? v * p.slope_out : v;
}

template <int BM, int BN, int WARPS_M, int WARPS_N, int WARPS_K, int BK, int GROUP, int STAGES>
__device__ __forceinline__ void convolve(const bf16* __restrict__ x, const bf16* __restrict__ w,
                                         const float* __restrict__ bias, const void* __restrict__ cond,
                                         const bf16* residual, const bf16* mask, const bf16* base, bf16* y,
                                         const ConvShape& p) {
  constexpr int THREADS = WARPS_M * WARPS_N * WARPS_K * 32;
  constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N, MI = WM / 16, NJ = WN / 8;
  constexpr int PIECES = BK / 8, ROW = BK * 2, TAP_BYTES = BN * ROW, W_BYTES = TAP_BYTES * GROUP;
  constexpr int KSTEPS = BK / 16 / WARPS_K, STEPS = KSTEPS * GROUP;
  constexpr int PASS = THREADS / PIECES;  // rows the block copies at a time
  static_assert(BK / 16 % WARPS_K == 0 && THREADS % PIECES == 0, "tile");
  int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  int warp_k = warp / (WARPS_M * WARPS_N), warp_n = warp / WARPS_M % WARPS_N, warp_m = warp % WARPS_M;
  int n0 = blockIdx.x * BN, s0 = blockIdx.y * BM, b = blockIdx.z;
  const bf16* xb = x + (i64)b * p.x_limit;

  int blocks = (p.channels + BK - 1) / BK, groups = (p.taps + GROUP - 1) / GROUP;
  int x_tiles = p.outer * blocks, total = x_tiles * groups;
  int x_rows = BM + (p.taps - 1) * p.dilation, x_bytes = x_rows * ROW;
  int x_slots = min(x_tiles, (STAGES - 2 + groups) / groups + 1);
  int w_at = x_slots * x_bytes, w_row = p.outer * p.taps * p.channels;
  u32 shared = shared_address();

  int piece = tid % PIECES, first = tid / PIECES;
  int load_index = 0, load_group = 0, load_block = 0, load_outer = 0, load_slot = 0, load_stage = 0;
  auto load = [&]() {
    if (load_index < total) {
      int channel = load_block * BK + piece * 8;
      bool inside = channel < p.channels;
      if (load_group == 0) {
        int at = (s0 + first) * p.x_pitch + p.x_offset + load_outer * p.outer_step + channel;
        u32 to = shared + load_slot * x_bytes;
#pragma unroll 2
        for (int row = first; row < x_rows; row += PASS, at += PASS * p.x_pitch) {
          bool live = inside && (u32)at < (u32)p.x_limit;
          copy16(to + row * ROW + ((piece ^ swizzle<BK>(row)) << 4), xb + (live ? at : 0), live);
        }
      }
      int tap0 = load_group * GROUP;
      u32 to = shared + w_at + load_stage * W_BYTES;
      const bf16* from = w + ((load_outer * p.taps + tap0) * p.channels + channel);
#pragma unroll
      for (int q = 0; q < (BN * GROUP + PASS - 1) / PASS; q++) {
        int row = first + q * PASS;  // column of y, and tap of the group beyond BN
        if ((BN * GROUP) % PASS == 0 || row < BN * GROUP) {
          int n = row % BN, tap = row / BN;
          bool live = inside && n0 + n < p.n && tap0 + tap < p.taps;
          int at = (n0 + n) * w_row + tap * p.channels;
          copy16_shared_by_blocks(to + row * ROW + ((piece ^ swizzle<BK>(row)) << 4), live ? from + at : w, live);
        }
      }
      load_index++;
      load_stage = load_stage + 1 == STAGES ? 0 : load_stage + 1;
      if (++load_group == groups) {
        load_group = 0;
        load_slot = load_slot + 1 == x_slots ? 0 : load_slot + 1;
        if (++load_block == blocks) load_block = 0, load_outer++;
      }
    }
    copies_commit();
  };

  float acc[MI][NJ][4];
#pragma unroll
  for (int i = 0; i < MI; i++)
#pragma unroll
    for (int j = 0; j < NJ; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;

  int a_row = warp_m * WM + (lane & 15), a_half = lane >> 4;
  int b_row = warp_n * WN + (NJ > 1 ? (lane >> 4) * 8 : 0) + (lane & 7), b_half = (lane >> 3) & 1;
  u32 b_at = b_row * ROW + ((b_half ^ swizzle<BK>(b_row)) << 4);
  bool activate = p.slope_in != 1.f;
  Slope slope(p.slope_in);

  // The first iterations only fill the stages: a single copy site keeps the code and its compilation small.
  int group = 0, slot = 0, stage = 0;
  for (int index = 1 - STAGES; index < total; index++) {
    if (index >= 0) {
      copies_wait<STAGES - 2>();
      if (group == 0 && activate)
#pragma unroll 2
        for (int row = first; row < x_rows; row += PASS)
          leaky_in_place(slot * x_bytes + row * ROW + ((piece ^ swizzle<BK>(row)) << 4), slope);
      __syncthreads();
    }
    load();
    if (index < 0) continue;
    u32 x_at = shared + slot * x_bytes, w_stage = shared + w_at + stage * W_BYTES + b_at;
    int tap0 = group * GROUP;
    u32 a[2][MI][4], bfrag[2][NJ][2];
    auto fetch = [&](int step, int to) {
      int tap = step / KSTEPS, k = step % KSTEPS * WARPS_K + warp_k;
      int row = a_row + (tap0 + tap) * p.dilation;
      u32 at = x_at + row * ROW + (((a_half ^ swizzle<BK>(row)) << 4) ^ (k << 5));
#pragma unroll
      for (int i = 0; i < MI; i++) load_matrix4(a[to][i], at + i * 16 * ROW);
      u32 wat = (w_stage ^ (k << 5)) + tap * TAP_BYTES;
      if (NJ == 1) {
        load_matrix2(bfrag[to][0], wat);
      } else {
#pragma unroll
        for (int j = 0; j < NJ; j += 2) load_matrix4(bfrag[to][j], wat + j * 8 * ROW);
      }
    };
    fetch(0, 0);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      if (step + 1 < STEPS) fetch(step + 1, (step + 1) & 1);
      if (GROUP == 1 || tap0 + step / KSTEPS < p.taps) {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
          for (int j = 0; j < NJ; j++) mma(acc[i][j], a[step & 1][i], bfrag[step & 1][j]);
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if (++group == groups) {
      group = 0;
      slot = slot + 1 == x_slots ? 0 : slot + 1;
    }
  }
  copies_wait<0>();
  __syncthreads();

  float* staging = reinterpret_cast<float*>(shared_bytes);
  if (WARPS_K > 1) {
    float* mine = staging + (warp % (WARPS_M * WARPS_N)) * (WM * WN) + lane;
    if (warp_k > 0) {
      float* to = mine + (warp_k - 1) * (BM * BN);
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NJ; j++)
#pragma unroll
          for (int q = 0; q < 4; q++) to[((i * NJ + j) * 4 + q) * 32] = acc[i][j][q];
    }
    __syncthreads();
    if (warp_k == 0) {
#pragma unroll 1
      for (int k = 1; k < WARPS_K; k++) {
        const float* from = mine + (k - 1) * (BM * BN);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
          for (int j = 0; j < NJ; j++)
#pragma unroll
            for (int q = 0; q < 4; q++) acc[i][j][q] += from[((i * NJ + j) * 4 + q) * 32];
      }
    }
    __syncthreads();
    if (warp_k > 0) return;
  }

  // Through shared memory, sixteen rows of a warp at a time, so that y and its addends move in 16-byte pieces.
  constexpr int LINE = WN + 8;
  float* rows = staging + warp * 16 * LINE;
  constexpr int ACROSS = WN / 8;
  int column = n0 + warp_n * WN + lane % ACROSS * 8;
  bool wide = ((p.y_pitch | p.y_offset | p.n | p.period) & 7) == 0;
  float add[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
  if (wide && column < p.n) {
    int c = column % p.period;
    if (bias) load8(bias + c, add);
    if (cond) {
      float r[8];
      if (p.cond_bf16) load8((const bf16*)cond + b * p.period + c, r);
      else load8((const float*)cond + b * p.period + c, r);
#pragma unroll
      for (int q = 0; q < 8; q++) add[q] += r[q];
    }
  }
  i64 y_batch = (i64)b * p.y_limit;
#pragma unroll 1
  for (int i = 0; i < MI; i++) {
    // The accumulators are registers, so constants must index them even in this rolled loop.
#pragma unroll
    for (int m = 0; m < MI; m++)
      if (m == i) {
#pragma unroll
        for (int j = 0; j < NJ; j++) {
          float* to = rows + (lane >> 2) * LINE + j * 8 + (lane & 3) * 2;
          *reinterpret_cast<float2*>(to) = make_float2(acc[m][j][0], acc[m][j][1]);
          *reinterpret_cast<float2*>(to + 8 * LINE) = make_float2(acc[m][j][2], acc[m][j][3]);
        }
      }
    __syncwarp();
    int s = s0 + warp_m * WM + i * 16;
    if (wide) {
#pragma unroll 1
      for (int row = lane / ACROSS; row < 16; row += 32 / ACROSS) {
        int at = (s + row) * p.y_pitch + p.y_offset + column;
        if (s + row >= p.rows || column >= p.n || (u32)at >= (u32)p.y_limit) continue;
        i64 to = y_batch + at;
        float v[8], r[8];
        load8(rows + row * LINE + lane % ACROSS * 8, v);
#pragma unroll
        for (int q = 0; q < 8; q++) v[q] = activate_out(v[q] * p.scale + add[q], p);
        if (mask) {
          load8(mask + to, r);
#pragma unroll
          for (int q = 0; q < 8; q++) v[q] *= r[q] < 0.f ? p.slope_mask : 1.f;
        }
        if (residual) {
          load8(residual + to, r);
#pragma unroll
          for (int q = 0; q < 8; q++) v[q] += r[q] * p.residual_scale;
        }
        if (base) {
          load8(base + to, r);
#pragma unroll
          for (int q = 0; q < 8; q++) v[q] += r[q];
        }
        store8(y + to, v);
      }
    } else {
#pragma unroll 1
      for (int e = lane; e < 16 * WN; e += 32) {
        int row = e / WN, n = n0 + warp_n * WN + e % WN, at = (s + row) * p.y_pitch + p.y_offset + n;
        if (s + row >= p.rows || n >= p.n || (u32)at >= (u32)p.y_limit) continue;
        i64 to = y_batch + at;
        int c = n % p.period, bc = b * p.period + c;
        float v = rows[row * LINE + e % WN] * p.scale + (bias ? bias[c] : 0.f);
        if (cond) v += p.cond_bf16 ? to_f32(((const bf16*)cond)[bc]) : ((const float*)cond)[bc];
        v = activate_out(v, p);
        if (mask) v *= to_f32(mask[to]) < 0.f ? p.slope_mask : 1.f;
        if (residual) v += to_f32(residual[to]) * p.residual_scale;
        if (base) v += to_f32(base[to]);
        y[to] = to_bf16(v);
      }
    }
    __syncwarp();
  }
}
#define CONVOLVE(...) convolve<__VA_ARGS__>(x, w, bias, cond, residual, mask, base, y, p)
#else
#define CONVOLVE(...)
#endif

// One kernel per tile BM x BN x BK (rows, columns, channels of a stage); then its warps by rows, columns and depth, the
// taps of a stage, the stages, and the blocks an SM should hold. Which one to use depends on n and on the number of
// blocks B:
//
// | n            | tile                                                                        |
// |--------------|-----------------------------------------------------------------------------|
// | <= 8         | 256x8x32                                                                    |
// | <= 32        | 256x32x32 while B >= 2 per SM, else 128x32x32; channels > 32: 64x32x64      |
// | <= 64        | 256x64x64 while B >= 1 per SM, then 128x64x64, 64x64x64, 64x32x64           |
// | more         | 128x128x64 while B >= 1 per SM, then 128x64x64, 64x64x64, 64x32x64          |
//
// 32x32x64 is for shapes that fit no other tile (long halos); 256x128x64 and 512x32x32 read less and suit whole waves
// of blocks.
// `base` may be `y` itself (accumulate); `residual`, `mask`, `base`, `bias`, `cond` may be null.
// Launch: grid (ceil(n / BN), ceil(rows / BM), batch), block `threads`, dynamic shared memory
//   groups = ceil(taps / GROUP), x_tiles = outer * ceil(channels / BK)
//   slots  = min(x_tiles, (STAGES - 2 + groups) / groups + 1)
//   bytes  = max(slots * (BM + (taps - 1) * dilation) * BK * 2 + STAGES * GROUP * BN * BK * 2, 36 KiB)
#define FORWARD(BM, BN, BK, WARPS_M, WARPS_N, WARPS_K, GROUP, STAGES, PER_SM)                                      \
  extern "C" __global__ void __launch_bounds__(WARPS_M* WARPS_N* WARPS_K * 32, PER_SM)                             \
      conv1d_forward_bf16_##BM##x##BN##x##BK(const bf16* x, const bf16* w, const float* bias, const void* cond,    \
                                             const bf16* residual, const bf16* mask, const bf16* base, bf16* y,    \
                                             ConvShape p) {                                                        \
    enter(); \
    CONVOLVE(BM, BN, WARPS_M, WARPS_N, WARPS_K, BK, GROUP, STAGES);                                                \
  }

// A tile shape costs about half a second of compilation: a caller that needs only some defines TILES, one bit each.
#ifndef TILES
#define TILES 0xffff
#endif
#if TILES & 0x1
FORWARD(256, 128, 64, 4, 2, 1, 1, 4, 1)
#endif
#if TILES & 0x2
FORWARD(128, 128, 64, 2, 2, 1, 1, 3, 2)
#endif
#if TILES & 0x4
FORWARD(256, 64, 64, 4, 1, 1, 1, 4, 2)
#endif
#if TILES & 0x8
FORWARD(128, 64, 64, 2, 2, 1, 1, 4, 2)
#endif
#if TILES & 0x10
FORWARD(64, 64, 64, 2, 2, 1, 1, 4, 3)
#endif
#if TILES & 0x20
FORWARD(64, 32, 64, 2, 1, 4, 1, 4, 2)
#endif
#if TILES & 0x40
FORWARD(32, 32, 64, 1, 1, 4, 1, 4, 4)
#endif
#if TILES & 0x80
FORWARD(512, 32, 32, 4, 1, 1, 4, 3, 2)
#endif
#if TILES & 0x100
FORWARD(256, 32, 32, 4, 1, 1, 4, 3, 3)
#endif
#if TILES & 0x200
FORWARD(128, 32, 32, 4, 1, 1, 4, 3, 4)
#endif
#if TILES & 0x400
FORWARD(256, 8, 32, 4, 1, 1, 4, 3, 4)
#endif
