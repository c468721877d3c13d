// From a waveform to spectra, all in f32: overlapping frames, power or magnitude, logarithm.

extern "C" __global__ void frames_forward(
    float* out, const float* x, int samples, int frames, int size, int hop, int pad) {
  enter();
  int f = blockIdx.x, j = blockIdx.y * blockDim.x + threadIdx.x;
  if (j >= size) return;
  int s = f * hop + j - pad;
  if (s < 0) s = -s;
  if (s >= samples) s = 2 * (samples - 1) - s;
  out[((i64)blockIdx.z * frames + f) * size + j] = x[(i64)blockIdx.z * samples + s];
}
// Sum over all frames that contain a position of the padded waveform, first to last.
__device__ __forceinline__ float over(const float* dy, int place, int frames, int size, int hop) {
  int first = place < size ? 0 : (place - size + hop) / hop, last = min(frames - 1, place / hop);
  float sum = 0.f;
  for (int f = first; f <= last; ++f) sum += dy[(i64)f * size + place - f * hop];
  return sum;
}
// One sample per thread: its own position, and those where the ends reflect it.
extern "C" __global__ void frames_backward(
    float* dx, const float* base, const float* dy, int samples, int frames, int size, int hop, int pad) {
  enter();
  int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s >= samples) return;
  dy += (i64)blockIdx.y * frames * size;
  i64 at = (i64)blockIdx.y * samples + s;
  float sum = over(dy, pad + s, frames, size, hop);
  if (s > 0 && s <= pad) sum += over(dy, pad - s, frames, size, hop);
  if (s < samples - 1 && s >= samples - 1 - pad) sum += over(dy, pad + 2 * (samples - 1) - s, frames, size, hop);
  dx[at] = (base ? base[at] : 0.f) + sum;
}

// z is [row][2][bins]: real parts, then imaginary parts.
extern "C" __global__ void spectrum_forward(float* y, const float* z, i64 n, int bins, int root, float epsilon) {
  enter();
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  i64 at = i + i / bins * bins;
  float a = z[at], b = z[at + bins], power = a * a + b * b;
  y[i] = root ? sqrtf(power + epsilon) : power;
}
// The magnitude has no derivative at zero: its gradient is zero there.
extern "C" __global__ void spectrum_backward(
    float* dz, const float* base, const float* z, const float* dy, i64 n, int bins, int root, float epsilon) {
  enter();
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  i64 at = i + i / bins * bins;
  float a = z[at], b = z[at + bins], g = dy[i];
  if (root) {
    float magnitude = sqrtf(a * a + b * b + epsilon);
    g = magnitude > 0.f ? g / magnitude : 0.f;
  } else {
    g *= 2.f;
  }
  dz[at] = (base ? base[at] : 0.f) + g * a;
  dz[at + bins] = (base ? base[at + bins] : 0.f) + g * b;
}

// log(max(x, floor) + plus)
extern "C" __global__ void mel_log_forward(float* y, const float* x, i64 n, float floor, float plus) {
  enter();
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = logf(fmaxf(x[i], floor) + plus);
}
extern "C" __global__ void mel_log_backward(
    float* dx, const float* base, const float* x, const float* dy, i64 n, float floor, float plus) {
  enter();
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = (base ? base[i] : 0.f) + (x[i] > floor ? dy[i] / (x[i] + plus) : 0.f);
}
