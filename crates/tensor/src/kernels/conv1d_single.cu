// Convolutions with one channel on a side (a waveform): too narrow for tensor cores, so plain arithmetic, bound by
// the memory of the wide side. The forward pass with one output channel uses the tensor-core kernel's 256x8 tile;
// the rest is here.

struct SingleShape {
  int length;                   // samples of the single channel per batch entry
  int rows, n;                  // rows per batch entry and columns of the wide side; n a multiple of 8
  int taps, stride, step, offset;  // row s, tap t reads sample s * stride + t * step + offset, zero outside [0, length)
  int act_out;                  // 0 none, 1 tanh, 2 leaky ReLU with slope_out
  float slope_in;               // on the single channel's samples; 1 = none
  float slope_out, slope_mask, scale, residual_scale;
};

#define ROWS_PER_THREAD 4

__device__ __forceinline__ float leaky_rounded(float x, float slope) {
  return x < 0.f && slope != 1.f ? to_f32(to_bf16(x * slope)) : x;
}

// y[b, s, n] = act_out(bias[n] + sum over taps of w[n][tap] * leaky(x[b, s * stride + tap * step + offset]))
//              * leaky'(mask) * scale + residual * residual_scale + base.
// The data gradient of a one-channel output is this too: x = dy, w = its weights [1, k, Cin] transposed to [Cin, k],
// flipped or with a negative step (step = -dilation, offset = pad).
// Block 256, rows per block = 4 * (256 / (n / 8)) with n <= 2048, grid (ceil(rows / rows per block), batch);
// dynamic shared memory taps * n * 4 bytes.
extern __shared__ uint4 shared_bytes[];
extern "C" __global__ void __launch_bounds__(256)
    conv1d_single_forward_bf16(const bf16* __restrict__ x, const bf16* __restrict__ w, const float* __restrict__ bias,
                               const bf16* residual, const bf16* mask, const bf16* base, bf16* y, SingleShape p) {
  enter();
  float* weights = reinterpret_cast<float*>(shared_bytes);  // [tap][n]
#pragma unroll 1
  for (int i = threadIdx.x; i < p.taps * p.n; i += 256) weights[i] = to_f32(w[i % p.n * p.taps + i / p.n]);
  __syncthreads();
  int pieces = p.n / 8, down = 256 / pieces, piece = threadIdx.x % pieces, line = threadIdx.x / pieces;
  if (line >= down) return;
  const bf16* from = x + (i64)blockIdx.y * p.length;
  int s0 = blockIdx.x * down * ROWS_PER_THREAD + line;
  float acc[ROWS_PER_THREAD][8];
#pragma unroll
  for (int r = 0; r < ROWS_PER_THREAD; r++)
#pragma unroll
    for (int q = 0; q < 8; q++) acc[r][q] = bias ? bias[piece * 8 + q] : 0.f;
#pragma unroll 2
  for (int tap = 0; tap < p.taps; tap++) {
    float v[8];
    load8(weights + tap * p.n + piece * 8, v);
#pragma unroll
    for (int r = 0; r < ROWS_PER_THREAD; r++) {
      int at = (s0 + r * down) * p.stride + tap * p.step + p.offset;
      float sample = (u32)at < (u32)p.length ? leaky_rounded(to_f32(from[at]), p.slope_in) : 0.f;
#pragma unroll
      for (int q = 0; q < 8; q++) acc[r][q] += v[q] * sample;
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS_PER_THREAD; r++) {
    int s = s0 + r * down;
    if (s >= p.rows) continue;
    i64 to = ((i64)blockIdx.y * p.rows + s) * p.n + piece * 8;
    float o[8];
    if (p.act_out == 1) {
#pragma unroll
      for (int q = 0; q < 8; q++) {
        float e = __expf(-2.f * fabsf(acc[r][q]));
        acc[r][q] = copysignf((1.f - e) / (1.f + e), acc[r][q]);
      }
    } else if (p.act_out == 2) {
#pragma unroll
      for (int q = 0; q < 8; q++) acc[r][q] *= acc[r][q] < 0.f ? p.slope_out : 1.f;
    }
    if (mask) {
      load8(mask + to, o);
#pragma unroll
      for (int q = 0; q < 8; q++) acc[r][q] *= o[q] < 0.f ? p.slope_mask : 1.f;
    }
#pragma unroll
    for (int q = 0; q < 8; q++) acc[r][q] *= p.scale;
    if (residual) {
      load8(residual + to, o);
#pragma unroll
      for (int q = 0; q < 8; q++) acc[r][q] += o[q] * p.residual_scale;
    }
    if (base) {
      load8(base + to, o);
#pragma unroll
      for (int q = 0; q < 8; q++) acc[r][q] += o[q];
    }
    store8(y + to, acc[r]);
  }
}

// partial[share][tap * tap_stride + c * column_stride] = the share's sum over b, s of
//   leaky(wide[b, s, c]) * leaky(single[b, s * stride + tap * step + offset]).
// One channel out: wide = x, single = dy, step = -dilation, offset = pad, stride 1 (dw [1, k, C]: tap_stride C,
// column_stride 1). One channel in: wide = dy, single = x, step = dilation, offset = -pad (dw [C, k, 1]: tap_stride 1,
// column_stride k). shares_sum_f32 (n_first = stride = taps * n) adds the shares.
// Block 256, grid (ceil(n / 256), splits, ceil(taps / 8)). slope_out is the wide side's slope here.
extern "C" __global__ void __launch_bounds__(256)
    conv1d_single_weight_grad_bf16(const bf16* __restrict__ wide, const bf16* __restrict__ single, float* partial,
                                   int batch, int tap_stride, int column_stride, SingleShape p) {
  enter();
  __shared__ float part[256 * 8];
  int pieces = p.n / 8, across = min(32, pieces - (int)blockIdx.x * 32), down = 256 / across;
  int piece = blockIdx.x * 32 + threadIdx.x % across, line = threadIdx.x / across, tap0 = blockIdx.z * 8;
  float acc[8][8];
#pragma unroll
  for (int t = 0; t < 8; t++)
#pragma unroll
    for (int q = 0; q < 8; q++) acc[t][q] = 0.f;
  i64 total = (i64)batch * p.rows, begin = total * blockIdx.y / gridDim.y, end = total * (blockIdx.y + 1) / gridDim.y;
  if (line < down) {
#pragma unroll 1
    for (i64 row = begin + line; row < end; row += down) {
      int b = (int)(row / p.rows), s = (int)(row - (i64)b * p.rows);
      float v[8];
      load8(wide + row * p.n + piece * 8, v);
      if (p.slope_out != 1.f) {
#pragma unroll
        for (int q = 0; q < 8; q++) v[q] = leaky_rounded(v[q], p.slope_out);
      }
      const bf16* from = single + (i64)b * p.length;
#pragma unroll
      for (int t = 0; t < 8; t++) {
        int at = s * p.stride + (tap0 + t) * p.step + p.offset;
        float sample = (u32)at < (u32)p.length ? leaky_rounded(to_f32(from[at]), p.slope_in) : 0.f;
#pragma unroll
        for (int q = 0; q < 8; q++) acc[t][q] += v[q] * sample;
      }
    }
  }
  partial += (i64)blockIdx.y * p.taps * p.n;
#pragma unroll
  for (int t = 0; t < 8; t++) {
    __syncthreads();
#pragma unroll
    for (int q = 0; q < 8; q++) part[threadIdx.x * 8 + q] = acc[t][q];
    __syncthreads();
#pragma unroll 1
    for (int c = threadIdx.x; c < across * 8; c += 256) {
      float sum = 0.f;
#pragma unroll 4
      for (int l = 0; l < down; l++) sum += part[l * across * 8 + c];
      if (tap0 + t < p.taps) partial[(tap0 + t) * tap_stride + (blockIdx.x * 256 + c) * column_stride] = sum;
    }
  }
}
