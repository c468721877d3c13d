// Samples the next code of every row by the rules of the model crate's `sampling`: repetition penalty, temperature,
// top-k, top-p, sampling; then writes the row's next input. One row per block. The host provides a slot's uniform
// numbers, one for each code it can emit, so a slot's codes do not depend on its row.
#define CANDIDATES 2048

struct Sampling {
  float temperature, top_p, penalty, guidance;
  int top_k, greedy, limit, unused;
};

// Maps floats to unsigned integers in the same order.
__device__ __forceinline__ u32 ordered(float x) {
  u32 u = __float_as_uint(x);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ __forceinline__ u64 warp_max_u64(u64 x) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    u64 y = __shfl_xor_sync(FULL_MASK, x, o);
    x = y > x ? y : x;
  }
  return x;
}

// Log-sum-exp of a row of logits.
__device__ __forceinline__ float log_sum(const float* logits, int count, float* shared) {
  float most = -INF, sum = 0.f;
  for (int i = threadIdx.x; i < count; i += blockDim.x) most = fmaxf(most, load_fresh(logits + i));
  most = block_max(most, shared);
  for (int i = threadIdx.x; i < count; i += blockDim.x) sum += expf(load_fresh(logits + i) - most);
  return most + logf(block_sum(sum, shared));
}

// A logit moved by guidance away from its value without the text.
__device__ __forceinline__ float guided(float own, float other, float own_log, float other_log, float guidance) {
  return own + guidance * ((own - own_log) - (other - other_log));
}

// The mean shift guidance applies to all codes except STOP: it is added to STOP as well, so that its probability
// stays the same.
__device__ __forceinline__ float guided_shift(
    const float* given, const float* others, float own_log, float other_log, float guidance, int count, int stop,
    float* shared) {
  float before = -INF, after = -INF, sum_before = 0.f, sum_after = 0.f;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    if (i == stop) continue;
    float own = load_fresh(given + i);
    before = fmaxf(before, own);
    after = fmaxf(after, guided(own, load_fresh(others + i), own_log, other_log, guidance));
  }
  before = block_max(before, shared);
  after = block_max(after, shared);
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    if (i == stop) continue;
    float own = load_fresh(given + i);
    sum_before += expf(own - before);
    sum_after += expf(guided(own, load_fresh(others + i), own_log, other_log, guidance) - after);
  }
  sum_before = block_sum(sum_before, shared);
  sum_after = block_sum(sum_after, shared);
  return (after + logf(sum_after)) - (before + logf(sum_before));
}

__device__ __forceinline__ void move_on(Row* row, int position, int place, int code) {
  row->position = row->fresh = position;
  row->place = place;
  row->code = code;
}

// The `wanted`-th largest of `ordered(scores)`, 8 bits at a time. Every warp has its own counters: scores are
// similar, and shared counters would be contended. `own` holds 256 counters for each warp.
__device__ __forceinline__ u32 select(
    const float* scores, int count, int wanted, int* own, int* bins, int* found) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  u32 value = 0, mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = lane; i < 256; i += 32) own[warp * 256 + i] = 0;
    __syncwarp();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      u32 key = ordered(scores[i]);
      if ((key & mask) == value) atomicAdd(own + warp * 256 + ((key >> shift) & 255), 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
      int all = 0;
      for (int k = 0; k < warps; ++k) all += own[k * 256 + i];
      bins[i] = all;
    }
    __syncthreads();
    if (warp == 0) {
      // Lane l has the eight bins from 255 - 8 l downwards.
      int sum = 0;
      for (int j = 0; j < 8; ++j) sum += bins[255 - 8 * lane - j];
      int upto = sum;
      for (int o = 1; o < 32; o <<= 1) {
        int y = __shfl_up_sync(FULL_MASK, upto, o);
        if (lane >= o) upto += y;
      }
      if (upto >= wanted && upto - sum < wanted) {
        int left = wanted - (upto - sum), bin = 255 - 8 * lane;
        while (left > bins[bin]) left -= bins[bin--];
        found[0] = bin;
        found[1] = left;
      }
    }
    __syncthreads();
    value |= (u32)found[0] << shift;
    mask |= 255u << shift;
    wanted = found[1];
  }
  return value;
}

extern "C" __global__ void __launch_bounds__(512) decode_sample(
    Row* rows, int batch, const float* logits, int vocabulary, int stop, const Sampling* samplings,
    const double* uniforms, int numbers, u32* seen, int words, int* codes, float* x, const float* table,
    const float* positions, int width) {
  enter();
  extern __shared__ __align__(16) char space[];
  double* sums = reinterpret_cast<double*>(space);                // CANDIDATES
  u64* keys = reinterpret_cast<u64*>(sums + CANDIDATES);          // CANDIDATES, or 256 counters for each of 16 warps
  int* order = reinterpret_cast<int*>(keys + CANDIDATES);         // CANDIDATES
  int* bins = order + CANDIDATES;                                 // 256
  float* scores = reinterpret_cast<float*>(bins + 256);           // vocabulary
  __shared__ u64 best_of[32];
  __shared__ int found[2], counts[33], chosen;
  __shared__ float reduced[33];
  int row = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  Row state = load_row_state(rows + row);
  // A row without the text is advanced by the row it guides.
  if (!is_active(state) || state.pair == -2) return;
  Sampling options = samplings[state.slot];
  u32* said = seen + (i64)state.slot * words;
  const float* given = logits + (i64)row * vocabulary;

  // The position of the next code is known before the code is.
  float stand[2] = {0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int c = threadIdx.x + i * blockDim.x;
    if (c < width) stand[i] = positions[(i64)(state.place + 1) * width + c];
  }
  const float* others = logits + (i64)max(state.pair, 0) * vocabulary;
  float own_log = 0.f, other_log = 0.f, shift = 0.f;
  if (state.pair >= 0) {
    own_log = log_sum(given, vocabulary, reduced);
    other_log = log_sum(others, vocabulary, reduced);
    shift = guided_shift(given, others, own_log, other_log, options.guidance, vocabulary, stop, reduced);
  }
  u64 best = 0;
  for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
    float s = load_fresh(given + i);
    if (state.pair >= 0)
      s = i == stop ? s + shift : guided(s, load_fresh(others + i), own_log, other_log, options.guidance);
    if (said[i >> 5] >> (i & 31) & 1u) s = s < 0.f ? s * options.penalty : s / options.penalty;
    if (s != s) s = -INF;
    scores[i] = s;
    u64 key = (u64)ordered(s) << 32 | (0xffffffffu - (u32)i);
    best = key > best ? key : best;
  }
  best = warp_max_u64(best);
  if (lane == 0) best_of[warp] = best;
  __syncthreads();
  if (warp == 0) {
    best = warp_max_u64(lane < warps ? best_of[lane] : 0);
    if (lane == 0) best_of[0] = best;
  }
  __syncthreads();
  int greatest = (int)(0xffffffffu - (u32)best_of[0]);
  float top = scores[greatest];
  if (top == -INF) {
    if (threadIdx.x == 0) {
      rows[row].status = 3;
      if (state.pair >= 0) rows[state.pair].status = 3;
    }
    return;
  }

  if (options.greedy) {
    if (threadIdx.x == 0) chosen = greatest;
  } else {
    int wanted = options.top_k > 0 ? min(options.top_k, vocabulary) : vocabulary;
    wanted = min(wanted, CANDIDATES);
    u32 least = wanted < vocabulary ? select(scores, vocabulary, wanted, reinterpret_cast<int*>(keys), bins, found) : 0;
    // Candidates in the order of their ids. Those as likely as the last one stay.
    int total = 0;
    for (int start = 0; start < vocabulary; start += blockDim.x) {
      int i = start + threadIdx.x;
      bool in = i < vocabulary && scores[i] > -INF && ordered(scores[i]) >= least;
      u32 ballot = __ballot_sync(FULL_MASK, in);
      if (lane == 0) counts[warp] = __popc(ballot);
      __syncthreads();
      int before = total, all = 0;
      for (int k = 0; k < warps; ++k) {
        if (k < warp) before += counts[k];
        all += counts[k];
      }
      before += __popc(ballot & ((1u << lane) - 1u));
      if (in && before < CANDIDATES) keys[before] = (u64)ordered(scores[i]) << 32 | (0xffffffffu - (u32)i);
      total += all;
      __syncthreads();
    }
    total = min(total, CANDIDATES);
    double temperature = (double)fmaxf(options.temperature, 1e-4f);
    for (int i = threadIdx.x; i < total; i += blockDim.x) {
      u64 key = keys[i];
      int rank = 0;
      for (int j = 0; j < total; ++j) rank += keys[j] > key;
      int id = (int)(0xffffffffu - (u32)key);
      order[rank] = id;
      sums[rank] = exp(((double)scores[id] - (double)top) / temperature);
    }
    __syncthreads();
    if (warp == 0) {
      double sum = 0.0;
      for (int start = 0; start < total; start += 32) {
        int i = start + lane;
        double own = i < total ? sums[i] : 0.0;
        for (int o = 1; o < 32; o <<= 1) {
          double y = __shfl_up_sync(FULL_MASK, own, o);
          if (lane >= o) own += y;
        }
        own += sum;
        if (i < total) sums[i] = own;
        sum = __shfl_sync(FULL_MASK, own, 31);
      }
      __syncwarp();
      // Keeps the most likely candidates until the remaining tail has at most its share of the probability.
      int left = total;
      if (options.top_p < 1.f) {
        double out = (1.0 - (double)options.top_p) * sum;
        for (int start = 0; start < total; start += 32) {
          int i = start + lane;
          u32 enough = __ballot_sync(FULL_MASK, i < total && sum - sums[i] <= out);
          if (enough) {
            left = start + __ffs(enough);
            break;
          }
        }
      }
      double at = uniforms[(i64)state.slot * numbers + min(state.place, numbers - 1)] * sums[left - 1];
      int index = left - 1;
      for (int start = 0; start < left; start += 32) {
        int i = start + lane;
        u32 over = __ballot_sync(FULL_MASK, i < left && at < sums[i]);
        if (over) {
          index = start + __ffs(over) - 1;
          break;
        }
      }
      if (lane == 0) chosen = order[index];
    }
  }
  __syncthreads();

  int code = chosen, place = state.place + 1;
  if (threadIdx.x == 0) {
    codes[(i64)state.emitted * batch + row] = code;
    rows[row].emitted = state.emitted + 1;
    int status = code == stop ? 1 : place >= options.limit ? 2 : 0;
    if (code != stop) {
      said[code >> 5] |= 1u << (code & 31);
      move_on(rows + row, state.position + 1, place, code);
    }
    rows[row].status = status;
    if (state.pair >= 0) {
      Row* other = rows + state.pair;
      if (code != stop) move_on(other, other->position + 1, place, code);
      other->emitted += 1;
      other->status = status;
    }
  }
  if (code == stop) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int c = threadIdx.x + i * blockDim.x;
    if (c >= width) break;
    float next = table[(i64)code * width + c] + stand[i];
    x[(i64)row * width + c] = next;
    if (state.pair >= 0) x[(i64)state.pair * width + c] = next;
  }
}

// Input of the first block, for rows that are new in the batch.
extern "C" __global__ void decode_embed(
    const Row* rows, float* x, const float* table, const float* positions, int width) {
  enter();
  Row state = load_row_state(rows + blockIdx.x);
  if (!is_active(state)) return;
  for (int c = threadIdx.x; c < width; c += blockDim.x)
    x[(i64)blockIdx.x * width + c] =
        table[(i64)state.code * width + c] + positions[(i64)state.place * width + c];
}

// The same for positions of a prompt: the voice vectors, of which a row has index `place`, then text.
extern "C" __global__ void decode_prompt(
    const Row* rows, float* x, const float* voice, int latents, const float* table, const float* positions, int width) {
  enter();
  Row state = load_row_state(rows + blockIdx.x);
  if (!is_active(state)) return;
  int at = state.position - latents;
  for (int c = threadIdx.x; c < width; c += blockDim.x)
    x[(i64)blockIdx.x * width + c] =
        at < 0 ? voice[(i64)state.place * width + c]
               : table[(i64)state.code * width + c] + positions[(i64)at * width + c];
}
