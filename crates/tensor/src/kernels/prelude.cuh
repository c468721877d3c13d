// Prepended to every kernel file. No toolkit header is included, so a machine needs only NVRTC and the driver. A
// bf16 is its 16 bits; arithmetic is in f32.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;

#define INF __int_as_float(0x7f800000)
#define FULL_MASK 0xffffffffu

// The first call of every kernel. Kernels are launched before the previous one has finished, so that their blocks
// are resident when their turn comes: here they wait until their inputs are written, and let the next kernel
// launch.
__device__ __forceinline__ void enter() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((u32)x << 16); }

// Rounds to nearest even; a NaN stays a NaN.
__device__ __forceinline__ bf16 to_bf16(float x) {
#if __CUDA_ARCH__ >= 800
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
#else
  u32 u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (bf16)((u >> 16) | 0x40u);
  return (bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
}

// Packs two floats as a pair of bf16: `lo` in the low half.
__device__ __forceinline__ u32 pack_bf16(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return (u32)to_bf16(lo) | ((u32)to_bf16(hi) << 16);
#endif
}
__device__ __forceinline__ float low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ void store(float* p, float x) { *p = x; }
__device__ __forceinline__ void store(bf16* p, float x) { *p = to_bf16(x); }

// Loads or stores four neighbours at once; the address must be aligned to all four (16 bytes of f32, 8 of bf16).
__device__ __forceinline__ void load4(const float* p, float v[4]) {
  float4 q = *reinterpret_cast<const float4*>(p);
  v[0] = q.x; v[1] = q.y; v[2] = q.z; v[3] = q.w;
}
__device__ __forceinline__ void load4(const bf16* p, float v[4]) {
  uint2 q = *reinterpret_cast<const uint2*>(p);
  v[0] = low_bf16(q.x); v[1] = high_bf16(q.x); v[2] = low_bf16(q.y); v[3] = high_bf16(q.y);
}
__device__ __forceinline__ void store4(float* p, const float v[4]) {
  *reinterpret_cast<float4*>(p) = make_float4(v[0], v[1], v[2], v[3]);
}
__device__ __forceinline__ void store4(bf16* p, const float v[4]) {
  *reinterpret_cast<uint2*>(p) = make_uint2(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]));
}
// Eight neighbours: 16 bytes of bf16, 32 of f32.
__device__ __forceinline__ void load8(const float* p, float v[8]) { load4(p, v); load4(p + 4, v + 4); }
__device__ __forceinline__ void load8(const bf16* p, float v[8]) {
  uint4 q = *reinterpret_cast<const uint4*>(p);
  v[0] = low_bf16(q.x); v[1] = high_bf16(q.x); v[2] = low_bf16(q.y); v[3] = high_bf16(q.y);
  v[4] = low_bf16(q.z); v[5] = high_bf16(q.z); v[6] = low_bf16(q.w); v[7] = high_bf16(q.w);
}
__device__ __forceinline__ void store8(float* p, const float v[8]) { store4(p, v); store4(p + 4, v + 4); }
__device__ __forceinline__ void store8(bf16* p, const float v[8]) {
  *reinterpret_cast<uint4*>(p) =
      make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

// a / b of non-negative numbers; a 64-bit division takes many times as long as a 32-bit one.
__device__ __forceinline__ i64 quotient(i64 a, i64 b) {
  return ((u64)(a | b) >> 32) == 0 ? (i64)((u32)a / (u32)b) : a / b;
}

// Reductions have a fixed order: the same input gives the same bits.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) x += __shfl_xor_sync(FULL_MASK, x, o);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, o));
  return x;
}
// Every thread of the block gets the sum. `shared` holds 33 floats; blockDim.x is a multiple of 32.
__device__ __forceinline__ float block_sum(float x, float* shared) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  if (warp == 0) {
    float y = lane < warps ? shared[lane] : 0.f;
    y = warp_sum(y);
    if (lane == 0) shared[32] = y;
  }
  __syncthreads();
  return shared[32];
}
__device__ __forceinline__ float block_max(float x, float* shared) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  x = warp_max(x);
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  if (warp == 0) {
    float y = lane < warps ? shared[lane] : -INF;
    y = warp_max(y);
    if (lane == 0) shared[32] = y;
  }
  __syncthreads();
  return shared[32];
}
