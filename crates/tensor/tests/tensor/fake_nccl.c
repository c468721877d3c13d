/* A fake NCCL that checks its arguments against nccl.h of 2.14 and later, and computes nothing. */
#include <stddef.h>
#include <stdlib.h>

typedef struct {
  char internal[128];
} ncclUniqueId;

typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
} ncclConfig;

typedef struct {
  int polls; /* number of polls that still report progress; negative: forever */
  int state; /* status after that */
  int blocking;
} Comm;

enum { SUCCESS = 0, INVALID = 4, REMOTE = 6, IN_PROGRESS = 7 };

int ncclGetVersion(int *version) {
  *version = 22804;
  return SUCCESS;
}

const char *ncclGetErrorString(int status) {
  switch (status) {
    case INVALID: return "invalid argument";
    case REMOTE: return "remote process exited or there was a network error";
    default: return "unknown";
  }
}

int ncclGetUniqueId(ncclUniqueId *id) {
  for (int i = 0; i < 128; ++i) id->internal[i] = (char)(i * 3 + 1);
  return SUCCESS;
}

int ncclCommInitAll(void **comms, int count, const int *devices) {
  (void)devices;
  for (int i = 0; i < count; ++i) {
    Comm *comm = calloc(1, sizeof *comm);
    comm->blocking = 1;
    comms[i] = comm;
  }
  return SUCCESS;
}

/* A group of 99 ranks never connects. */
int ncclCommInitRankConfig(void **out, int world, ncclUniqueId id, int rank, ncclConfig *config) {
  for (int i = 0; i < 128; ++i)
    if (id.internal[i] != (char)(i * 3 + 1)) return INVALID;
  if (config->size != 24 || config->magic != 0xcafebeef || config->version < 21400) return INVALID;
  if (rank < 0 || rank >= world) return INVALID;
  Comm *comm = calloc(1, sizeof *comm);
  comm->blocking = config->blocking;
  comm->polls = world == 99 ? -1 : 3;
  *out = comm;
  if (!comm->blocking) return IN_PROGRESS;
  comm->polls = 0;
  return SUCCESS;
}

int ncclCommGetAsyncError(void *raw, int *state) {
  Comm *comm = raw;
  if (comm->polls != 0) {
    if (comm->polls > 0) --comm->polls;
    *state = IN_PROGRESS;
  } else {
    *state = comm->state;
  }
  return SUCCESS;
}

/* Types: 7 is f32, 9 is bf16; operation 0 is the sum. A length of 13 fails remotely, 14 never ends. */
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *raw, void *stream) {
  Comm *comm = raw;
  (void)stream;
  if (from != to || (type != 7 && type != 9) || op != 0) return INVALID;
  if (count == 13) comm->state = REMOTE;
  if (comm->blocking) return comm->state;
  comm->polls = count == 14 ? -1 : 2;
  return IN_PROGRESS;
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *raw, void *stream) {
  (void)root;
  return ncclAllReduce(from, to, count, type, 0, raw, stream);
}

int ncclCommDestroy(void *comm) {
  free(comm);
  return SUCCESS;
}

/* Not freed: another thread may still be polling it. */
int ncclCommAbort(void *comm) {
  ((Comm *)comm)->state = REMOTE;
  ((Comm *)comm)->polls = 0;
  return SUCCESS;
}

int ncclGroupStart(void) { return SUCCESS; }
int ncclGroupEnd(void) { return SUCCESS; }
