// Shared by attention_bf16.cu and attention_f32.cu. Flash attention, forward and backward: the query x key matrix
// is never in memory.
//
//   forward      o = softmax(scale q kT) v, and lse, the log of each row's sum of exponentials (binary in bf16, natural in f32)
//   backward_q   delta = rowsum(do * o), written for backward_kv, and dq; a block owns queries and iterates over keys
//   backward_kv  dk and dv; a block owns keys and iterates over queries
//
// The scores are recomputed in backward_kv rather than shared with backward_q: sharing them would need dq summed
// across blocks (atomics, or partial sums through memory). Here each output has one writer and one order of
// addition. The rows a warp owns stay its own from the first product to the last, so no warp waits for another
// except for the streamed tiles.
//
// Scores may be so large that a float cannot resolve their differences (1e8 and more: a perceiver has no norms
// inside). Their products with the scale are rounded separately, not inside a fused operation, so that the largest
// weight of a row is 1 before it is divided by the sum. The backward passes recompute the scores, and backward_kv
// adds up their products in another order: a score can exceed its lse by a rounding error, which may be 1000. No
// weight is above 1, so its exponent is clamped at 0; without that, weights reached 1e22 and gradients with them.
//
// A row that sees no key has output 0, gradients 0 and lse = +INF: its exponentials are then 0 in the backward
// passes without a test. `scale` must be positive. Queries are aligned to the last keys: query i sees keys <= i +
// tk - tq when causal. Keys at or past key_lengths[batch] and keys whose key_mask is 0 are hidden; hidden values
// must still be finite where only key_mask or causality hides them (0 x inf is NaN).

#ifndef HEAD_GROUP
#define HEAD_GROUP 128
#endif

// One operand: element (batch b, time t, head h, channel c) is base[b * batch + t * time + h * head + c].
template <class T> struct View {
  T* base;
  i64 batch;
  int time, head;
  __device__ __forceinline__ T* at(int b, int h) const { return base + b * batch + (i64)h * head; }
};

// The work of this block. Heads are processed in groups small enough that their keys and values stay in the L2
// cache between blocks; inside a group the longest rows of a causal mask start first, so that the last blocks to
// run are short.
struct Place { int tile, head, batch; };
__device__ __forceinline__ Place find_place(int tiles, int heads, int batches, bool last_first) {
  int id = blockIdx.x, group = id / (HEAD_GROUP * tiles);
  id -= group * HEAD_GROUP * tiles;
  int members = min(HEAD_GROUP, heads * batches - group * HEAD_GROUP), tile = id / members;
  int pair = group * HEAD_GROUP + id - tile * members;
  return {last_first ? tiles - 1 - tile : tile, pair % heads, pair / heads};
}
__device__ __forceinline__ int count_keys(const int* key_lengths, int batch, int tk) {
  return key_lengths ? max(0, min(tk, key_lengths[batch])) : tk;
}

extern __shared__ __align__(128) unsigned char shared_memory[];
