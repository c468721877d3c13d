// w = g v / |v|, one row per block. v, g and all gradients are f32, w has the activation type.
template <typename T>
__device__ __forceinline__ void forward(T* w, float* inverse, const float* v, const float* g, int n) {
  __shared__ float shared[33];
  i64 row = blockIdx.x;
  v += row * n;
  w += row * n;
  float square = 0.f;
  bool whole = n % 4 == 0;
  if (whole) {
    for (int i = 4 * threadIdx.x; i < n; i += 4 * blockDim.x) {
      float p[4];
      load4(v + i, p);
#pragma unroll
      for (int j = 0; j < 4; ++j) square += p[j] * p[j];
    }
  } else {
    for (int i = threadIdx.x; i < n; i += blockDim.x) square += v[i] * v[i];
  }
  square = block_sum(square, shared);
  // A row of zeros has no direction; its weight is zero.
  float s = square > 0.f ? 1.f / sqrtf(square) : 0.f, scale = g[row] * s;
  if (threadIdx.x == 0) inverse[row] = s;
  if (whole) {
    for (int i = 4 * threadIdx.x; i < n; i += 4 * blockDim.x) {
      float p[4];
      load4(v + i, p);
#pragma unroll
      for (int j = 0; j < 4; ++j) p[j] *= scale;
      store4(w + i, p);
    }
  } else {
    for (int i = threadIdx.x; i < n; i += blockDim.x) store(w + i, v[i] * scale);
  }
}
extern "C" __global__ void weight_norm_forward_f32(f32* w, float* inverse, const float* v, const float* g, int n) {
  enter();
  forward(w, inverse, v, g, n);
}
extern "C" __global__ void weight_norm_forward_bf16(bf16* w, float* inverse, const float* v, const float* g, int n) {
  enter();
  forward(w, inverse, v, g, n);
}

// dg = dw u and dv = g / |v| (dw - u (dw u)), with u = v / |v|.
extern "C" __global__ void weight_norm_backward(
    float* dv, const float* base_v, float* dg, const float* base_g, const float* v, const float* g, const float* inverse,
    const float* dw, int n) {
  enter();
  __shared__ float shared[33];
  i64 row = blockIdx.x;
  v += row * n;
  dw += row * n;
  dv += row * n;
  if (base_v) base_v += row * n;
  float s = inverse[row], along = 0.f;
  bool whole = n % 4 == 0;
  if (whole) {
    for (int i = 4 * threadIdx.x; i < n; i += 4 * blockDim.x) {
      float p[4], d[4];
      load4(v + i, p);
      load4(dw + i, d);
#pragma unroll
      for (int j = 0; j < 4; ++j) along += d[j] * p[j] * s;
    }
  } else {
    for (int i = threadIdx.x; i < n; i += blockDim.x) along += dw[i] * v[i] * s;
  }
  along = block_sum(along, shared);
  float scale = g[row] * s, back = along * s;
  if (whole) {
    for (int i = 4 * threadIdx.x; i < n; i += 4 * blockDim.x) {
      float p[4], d[4], b[4] = {};
      load4(v + i, p);
      load4(dw + i, d);
      if (base_v) load4(base_v + i, b);
#pragma unroll
      for (int j = 0; j < 4; ++j) d[j] = b[j] + scale * (d[j] - p[j] * back);
      store4(dv + i, d);
    }
  } else {
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      dv[i] = (base_v ? base_v[i] : 0.f) + scale * (dw[i] - v[i] * back);
  }
  if (threadIdx.x == 0) dg[row] = (base_g ? base_g[row] : 0.f) + along;
}
