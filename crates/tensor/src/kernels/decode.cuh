// Shared by the decoding kernels. A batch has up to 64 rows, each the next position of one slot (or, for a prompt,
// one position of it). The results of a row depend neither on the number of rows nor on the other rows: sums over
// channels are split at positions that depend on the matrix size only, and added in a fixed order.

// The state of a row of the batch; mirrors the host's `Row`.
struct Row {
  int slot;      // slot whose keys and values it uses; negative: empty row
  int position;  // rows of the slot before this one
  int place;     // codes of the slot before this one (`code_index` on the host)
  int code;      // the code before this one, or START
  int emitted;   // codes since the host sent the rows
  int status;    // 0 while it is running
  int fresh;     // keys of the slot from this row on are written by this step
  int pair;      // the row with the same sequence without its text (guidance), -1: none, -2: this row is one
};
__device__ __forceinline__ Row load_row_state(const Row* p) {
  Row r;
  asm volatile("ld.global.cg.v4.s32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.slot), "=r"(r.position), "=r"(r.place), "=r"(r.code) : "l"(p));
  asm volatile("ld.global.cg.v4.s32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.emitted), "=r"(r.status), "=r"(r.fresh), "=r"(r.pair) : "l"((const int*)p + 4));
  return r;
}
__device__ __forceinline__ bool is_active(const Row& row) { return row.slot >= 0 && row.status == 0; }

// For kernels that load weights first. They call enter(), or, if the next kernel only reads weights before it
// waits, let_next_in() at once and wait_for_last() before they read the output of the previous kernel.
__device__ __forceinline__ void enter_later() {}
__device__ __forceinline__ void let_next_in() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Weights: never written while kernels run, read once.
__device__ __forceinline__ uint4 load_weights(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// Data written by another kernel; bypasses L1.
__device__ __forceinline__ uint4 load_fresh(const void* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ float load_fresh(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ void load4_fresh(const float* p, float v[4]) {
  uint4 q = load_fresh((const void*)p);
  v[0] = __uint_as_float(q.x); v[1] = __uint_as_float(q.y);
  v[2] = __uint_as_float(q.z); v[3] = __uint_as_float(q.w);
}
__device__ __forceinline__ void unpack(const uint4& q, float v[8]) {
  v[0] = low_bf16(q.x); v[1] = high_bf16(q.x); v[2] = low_bf16(q.y); v[3] = high_bf16(q.y);
  v[4] = low_bf16(q.z); v[5] = high_bf16(q.z); v[6] = low_bf16(q.w); v[7] = high_bf16(q.w);
}

#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Copies 16 bytes to shared memory asynchronously; `await_copies` waits for those of the calling thread.
__device__ __forceinline__ void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from)
               : "memory");
}
__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

// Heads of at least this many channels store the values of every tile of rows as [channel][row], for the tensor
// cores.
#define TURNED 32
#define TILE 16
// Keys per chunk of the attention, whatever the batch: partial results are merged in the order of the chunks.
#define CHUNK 128
// Weight of each chunk's partial result, in the lane of its index, and the divisor of their sum. Used by a whole
// warp; there are at most 32 chunks, lanes without one have (-INF, 0).
__device__ __forceinline__ float part_weight(float most, float sum, float& scale) {
  float e = exp2f(most - warp_max(most));
  scale = 1.f / warp_sum(e * sum);
  return e;
}

// A row of at most 1024 channels, spread over a warp: lane l has channels 128 i + 4 l + j. The width must be a
// multiple of 4.
#define SPREAD 8
__device__ __forceinline__ void load_spread(const float* x, int width, float (&v)[SPREAD][4]) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < SPREAD; ++i) {
    int at = i * 128 + lane * 4;
    v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0.f;
    if (at < width) load4_fresh(x + at, v[i]);
  }
}
// Sums over a row consist of sums over 128 channels each, added in order: the same bits whether one warp has the
// whole row or eight warps have 128 channels each.
__device__ __forceinline__ float spread_sum(float (&part)[SPREAD]) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1)
#pragma unroll
    for (int i = 0; i < SPREAD; ++i) part[i] += __shfl_xor_sync(FULL_MASK, part[i], o);
  float sum = part[0];
#pragma unroll
  for (int i = 1; i < SPREAD; ++i) sum += part[i];
  return sum;
}
// Explicit fused multiply-adds: the compiler might fuse differently in different kernels.
__device__ __forceinline__ float squares(const float (&v)[4]) {
  return __fmaf_rn(v[0], v[0], __fmul_rn(v[1], v[1])) + __fmaf_rn(v[2], v[2], __fmul_rn(v[3], v[3]));
}
// Layer norm of a spread row; `norm` is the scale, followed by the bias, in any memory.
__device__ __forceinline__ void normalise(float (&v)[SPREAD][4], const float* norm, int width) {
  int lane = threadIdx.x & 31;
  float part[SPREAD];
#pragma unroll
  for (int i = 0; i < SPREAD; ++i) part[i] = (v[i][0] + v[i][1]) + (v[i][2] + v[i][3]);
  float mean = spread_sum(part) / (float)width;
#pragma unroll
  for (int i = 0; i < SPREAD; ++i) {
    part[i] = 0.f;
    if (i * 128 + lane * 4 < width) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[i][j] -= mean;
      part[i] = squares(v[i]);
    }
  }
  float scale = rsqrtf(spread_sum(part) / (float)width + 1e-5f);
#pragma unroll
  for (int i = 0; i < SPREAD; ++i) {
    int at = i * 128 + lane * 4;
    if (at < width) {
      float w[4], b[4];
      load4(norm + at, w);
      load4(norm + width + at, b);
#pragma unroll
      for (int j = 0; j < 4; ++j) v[i][j] = __fmaf_rn(__fmul_rn(v[i][j], scale), w[j], b[j]);
    }
  }
}

// The same by 256 threads with four channels each, or none if `there` is false. `shared` holds 16 floats that must
// not be used otherwise until all threads have passed the next barrier.
__device__ __forceinline__ float sum_of_eight(float x, float* shared) {
  x = warp_sum(x);
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = x;
  __syncthreads();
  float sum = shared[0];
#pragma unroll
  for (int i = 1; i < SPREAD; ++i) sum += shared[i];
  return sum;
}
__device__ __forceinline__ void normalise_together(
    float (&v)[4], const float (&w)[4], const float (&b)[4], bool there, int width, float* shared) {
  float mean = sum_of_eight((v[0] + v[1]) + (v[2] + v[3]), shared) / (float)width;
  float square = 0.f;
  if (there) {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] -= mean;
    square = squares(v);
  }
  float scale = rsqrtf(sum_of_eight(square, shared + 8) / (float)width + 1e-5f);
#pragma unroll
  for (int j = 0; j < 4; ++j) v[j] = __fmaf_rn(__fmul_rn(v[j], scale), w[j], b[j]);
}
