// An NVML of a host that FAKE_NVML names; a device is its index plus 1.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long device;

static int host(const char *name) {
  const char *h = getenv("FAKE_NVML");
  return h && strcmp(h, name) == 0;
}

int nvmlInit_v2(void) { return host("broken") ? 9 : 0; }

const char *nvmlErrorString(int r) { return r == 9 ? "Driver Not Loaded" : "fake error"; }

int nvmlSystemGetDriverVersion(char *s, unsigned n) { return snprintf(s, n, "580.159.04") >= (int)n; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device *d) {
  unsigned domain, bus;
  if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || bus < 1 || bus > 8) return 6;
  *d = bus;
  return 0;
}

int nvmlDeviceGetNvLinkState(device d, unsigned link, int *active) {
  if (host("pcie")) return 3;
  if (host("pairs") && link >= 4) return 2;
  *active = !host("pairs") || link != 1; // one of four is down
  return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device d, unsigned link, int *kind) {
  *kind = host("switch") ? 2 : 0;
  return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device d, unsigned link, char *info) {
  memset(info, 0xff, 36);
  snprintf(info + 36, 32, "%08X:%02X:00.0", 0, (unsigned)((d - 1 ^ 1) + 1));
  return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(device a, device b, int *level) {
  *level = (a - 1) / 2 == (b - 1) / 2 ? 10 : 50;
  return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(device d, unsigned *v) { *v = 5; return 0; }

int nvmlDeviceGetMaxPcieLinkWidth(device d, unsigned *v) { *v = 16; return 0; }
