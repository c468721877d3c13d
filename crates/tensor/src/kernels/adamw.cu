// The end of a step over the flat arenas. Indices into report and control are those of `step.rs`.
#define CHUNK 1024
#define GROUPS 8
enum { RATE = 0, WEIGHT = 1, CLIP = 2, AVERAGE = 3 };
// A gradient norm this many times the clipping limit is an explosion. Its direction is meaningless: the gradient is
// dropped.
#define EXPLODED 1000.f
enum { LOSS = 0, NORM = 1, GOOD = 2, STEPS = 3, SCALE = 4, CORRECTIONS = 5 };

struct Groups {
  float decay[GROUPS];
  float rate[GROUPS];
};

extern "C" __global__ void seed(float* out, const float* weight, const float* loss) { enter(); *out = *weight + 0.f * *loss; }

// Each block sums the squares of every gridDim-th chunk; the length is a multiple of a chunk.
extern "C" __global__ void guard_squares(float* parts, const float* gradients, i64 n) {
  enter();
  __shared__ float shared[33];
  float sum = 0.f;
  for (i64 i = (i64)blockIdx.x * CHUNK + 4 * threadIdx.x; i < n; i += (i64)gridDim.x * CHUNK) {
    float g[4];
    load4(gradients + i, g);
    sum += g[0] * g[0] + g[1] * g[1] + g[2] * g[2] + g[3] * g[3];
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

extern "C" __global__ void guard_finish(
    float* report, float* counters, const float* parts, int count, const float* loss, const float* control,
    float beta1, float beta2) {
  enter();
  double sum = 0.0;
  for (int i = threadIdx.x; i < count; i += 32) sum += (double)parts[i];
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(FULL_MASK, sum, o);
  if (threadIdx.x != 0) return;
  float norm = (float)sqrt(sum), l = *loss, clip = control[CLIP];
  bool good = norm < INF && fabsf(l) < INF;  // false for a NaN too
  float steps = counters[0] + (good ? 1.f : 0.f);
  counters[0] = steps;
  report[LOSS] = l;
  report[NORM] = norm;
  report[GOOD] = good ? 1.f : 0.f;
  report[STEPS] = steps;
  report[SCALE] = clip <= 0.f || norm <= clip ? 1.f : norm > EXPLODED * clip ? 0.f : clip / norm;
  report[CORRECTIONS] = (float)(1.0 - pow((double)beta1, (double)steps));
  report[CORRECTIONS + 1] = (float)sqrt(1.0 - pow((double)beta2, (double)steps));
}

extern "C" __global__ void tell(float* report, const float* loss) {
  enter();
  float l = *loss;
  report[LOSS] = l;
  report[NORM] = 0.f;
  report[GOOD] = fabsf(l) < INF ? 1.f : 0.f;
}

// One chunk per block, four elements per thread.
extern "C" __global__ void __launch_bounds__(256) adamw(
    float* master, bf16* work, float* moment1, float* moment2, float* average, const float* gradients,
    const float* report, const float* control, const int* groups, Groups table, float beta1, float beta2,
    float epsilon) {
  enter();
  if (report[GOOD] != 1.f) return;
  int group = groups[blockIdx.x];
  float rate = control[RATE] * table.rate[group];
  float keep = 1.f - rate * table.decay[group], scale = report[SCALE];
  float step = rate / report[CORRECTIONS], inverse = 1.f / report[CORRECTIONS + 1];
  i64 i = (i64)blockIdx.x * CHUNK + 4 * threadIdx.x;
  float p[4], m[4], v[4], g[4];
  load4(gradients + i, g);
  load4(moment1 + i, m);
  load4(moment2 + i, v);
  load4(master + i, p);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float x = g[j] * scale;
    m[j] = beta1 * m[j] + (1.f - beta1) * x;
    v[j] = beta2 * v[j] + (1.f - beta2) * x * x;
    p[j] = p[j] * keep - step * m[j] / (sqrtf(v[j]) * inverse + epsilon);
  }
  store4(moment1 + i, m);
  store4(moment2 + i, v);
  store4(master + i, p);
  if (work) store4(work + i, p);
  if (average) {
    float kept = control[AVERAGE];
    load4(average + i, g);
#pragma unroll
    for (int j = 0; j < 4; ++j) g[j] = kept * g[j] + (1.f - kept) * p[j];
    store4(average + i, g);
  }
}

template <typename T>
__device__ __forceinline__ void commit(float* master, bf16* work, const T* value, const float* report, i64 n) {
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || report[GOOD] != 1.f) return;
  float x = to_f32(value[i]);
  master[i] = x;
  if (work) work[i] = to_bf16(x);
}
extern "C" __global__ void commit_f32(float* master, bf16* work, const f32* value, const float* report, i64 n) {
  enter();
  commit(master, work, value, report, n);
}
extern "C" __global__ void commit_bf16(float* master, bf16* work, const bf16* value, const float* report, i64 n) {
  enter();
  commit(master, work, value, report, n);
}
