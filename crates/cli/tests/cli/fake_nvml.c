/* An NVML of two GPUs. The first answers everything; the second nothing: "not supported" (3), and a list of processes that
   always outgrows its room. FAKE_NVML=broken does not start. */
#include <stdlib.h>
#include <string.h>

typedef unsigned int u;
typedef unsigned long long ull;
static int gpus[2];

int nvmlInit_v2(void) {
    const char *how = getenv("FAKE_NVML");
    return how && !strcmp(how, "broken") ? 9 : 0;
}
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "something"; }
int nvmlSystemGetDriverVersion(char *text, u length) { return strncpy(text, "570.1", length), 0; }
int nvmlDeviceGetCount_v2(u *count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(u index, void **handle) { return *handle = &gpus[index], 0; }

#define FIRST(handle) if ((handle) != (void *)&gpus[0]) return 3
int nvmlDeviceGetName(void *h, char *text, u length) {
    FIRST(h);
    /* No end within the room. */
    return memset(text, 'x', length), memcpy(text, "FAKE", 4), 0;
}
int nvmlDeviceGetUtilizationRates(void *h, u *rates) { FIRST(h); return rates[0] = 97, rates[1] = 41, 0; }
int nvmlDeviceGetMemoryInfo(void *h, ull *m) { FIRST(h); return m[0] = 80ull << 30, m[1] = 60ull << 30, m[2] = 20ull << 30, 0; }
int nvmlDeviceGetPowerUsage(void *h, u *mw) { FIRST(h); return *mw = 612500, 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, u *mw) { FIRST(h); return *mw = 700000, 0; }
int nvmlDeviceGetTemperature(void *h, u sensor, u *c) { FIRST(h); return *c = sensor == 0 ? 64 : 0, 0; }
int nvmlDeviceGetClockInfo(void *h, u which, u *mhz) { FIRST(h); return *mhz = which == 1 ? 1755 : which == 2 ? 2619 : 0, 0; }
int nvmlDeviceGetPcieThroughput(void *h, u which, u *kb) { FIRST(h); return *kb = which == 1 ? 3000 : 500, 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, ull *mask) { FIRST(h); return *mask = 0x4 | 0x20, 0; }

struct process { u pid; ull memory; u gpu, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u *count, struct process *list) {
    if (h != (void *)&gpus[0]) return *count = *count * 2 + 1, 7;
    if (*count < 100) return *count = 100, 7;
    for (u i = 0; i < 100; i++) list[i] = (struct process){4000000 + i, i == 0 ? 5ull << 30 : ~0ull, 0, 0};
    return *count = 100, 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, u *count, struct process *list) {
    FIRST(h);
    list[0] = (struct process){4000000, 1, 0, 0};
    return *count = 1, 0;
}
