// Convolutions of any shape by im2col columns, [rows, groups, taps, channels of a group]: one row for every output
// position, holding everything it reads. A thread moves 16 bytes if a group's channels are divisible accordingly,
// else one element.

struct ColumnsShape {
  int height, width, channels, groups;  // of the input
  int input_first, input_lines;         // lines of each item's input that are summed
  int first, lines, out_width;          // lines of each item's output with columns
  int kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  int wide;                             // 16 bytes per thread
};

template <typename T> __device__ __forceinline__ void copy16(T* to, const T* from) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

// `x` points to the first item; `n` threads.
template <typename T>
__device__ __forceinline__ void fill(T* columns, const T* x, u32 n, const ColumnsShape& p) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 v = p.wide ? 16 / sizeof(T) : 1, each = (u32)(p.channels / p.groups) / v, taps = p.kernel_h * p.kernel_w;
  u32 rest = i / each;
  int c = (i - rest * each) * v;
  u32 next = rest / taps;
  int tap = rest - next * taps;
  rest = next / p.groups;
  int group = next - rest * p.groups;
  next = rest / p.out_width;
  int left = rest - next * p.out_width;
  u32 item = next / p.lines;
  int top = p.first + next - item * p.lines;
  int h = top * p.stride_h - p.padding_h + tap / p.kernel_w * p.dilation_h;
  int w = left * p.stride_w - p.padding_w + tap % p.kernel_w * p.dilation_w;
  bool inside = (u32)h < (u32)p.height && (u32)w < (u32)p.width;
  const T* from = x + (((i64)item * p.height + h) * p.width + w) * p.channels + group * (p.channels / p.groups) + c;
  T* to = columns + (i64)i * v;
  if (p.wide) {
    if (inside) copy16(to, from);
    else *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
  } else {
    *to = inside ? *from : (T)0;
  }
}

template <int V, typename T> __device__ __forceinline__ void load(const T* from, float* v) {
  if constexpr (V == 8) load8(from, v);
  else if constexpr (V == 4) load4(from, v);
  else v[0] = to_f32(*from);
}

// out = base + the sum over taps of the elements the columns hold for it; `out` and `base` point to the first
// summed line.
template <typename T, int V>
__device__ __forceinline__ void gather_each(T* out, const T* base, const T* columns, u32 i, const ColumnsShape& p) {
  u32 each = (u32)p.channels / V, rest = i / each;
  int c = (i - rest * each) * V;
  u32 next = rest / p.width;
  int w = rest - next * p.width;
  u32 item = next / p.input_lines;
  int h = p.input_first + next - item * p.input_lines;
  int per = p.channels / p.groups, group = c / per, taps = p.kernel_h * p.kernel_w;
  float sum[V];
#pragma unroll
  for (int q = 0; q < V; q++) sum[q] = 0.f;
  if (base) load<V>(base + (i64)i * V, sum);
  for (int tap_h = 0; tap_h < p.kernel_h; tap_h++) {
    int y = h + p.padding_h - tap_h * p.dilation_h, top = y / p.stride_h;
    if (y < 0 || top * p.stride_h != y || top < p.first || top >= p.first + p.lines) continue;
    for (int tap_w = 0; tap_w < p.kernel_w; tap_w++) {
      int x = w + p.padding_w - tap_w * p.dilation_w, left = x / p.stride_w;
      if (x < 0 || left * p.stride_w != x || left >= p.out_width) continue;
      i64 row = ((i64)item * p.lines + top - p.first) * p.out_width + left;
      const T* from = columns + row * ((i64)taps * p.channels) + ((group * taps + tap_h * p.kernel_w + tap_w) * per) +
                      (c - group * per);
      float r[V];
      load<V>(from, r);
#pragma unroll
      for (int q = 0; q < V; q++) sum[q] += r[q];
    }
  }
  T* to = out + (i64)i * V;
  if constexpr (V == 8) store8(to, sum);
  else if constexpr (V == 4) store4(to, sum);
  else store(to, sum[0]);
}
template <typename T>
__device__ __forceinline__ void gather(T* out, const T* base, const T* columns, u32 n, const ColumnsShape& p) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (p.wide) gather_each<T, 16 / sizeof(T)>(out, base, columns, i, p);
  else gather_each<T, 1>(out, base, columns, i, p);
}

#define COLUMNS(T) \
  extern "C" __global__ void columns_fill_##T(T* columns, const T* x, int n, ColumnsShape p) { \
    enter(); \
    fill(columns, x, (u32)n, p); \
  } \
  extern "C" __global__ void columns_gather_##T(T* out, const T* base, const T* columns, int n, ColumnsShape p) { \
    enter(); \
    gather(out, base, columns, (u32)n, p); \
  }
COLUMNS(f32)
COLUMNS(bf16)
