// Modules, functions and launches.
#include "core.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>

static constexpr char Magic[] = "EMUCUBIN";
static constexpr size_t Header = 16;  // magic and length; then a shared library

// load opens a copy of the image. Each has a file of its own, in memory, and another path: the loader gives
// out the same library for the same name. The path is the number of the copy, "/." for 1 and "/" for 0.
static const EmuModule* load(const std::string& image, void** handle) {
  static std::atomic<unsigned> copies;
  int fd = memfd_create("emulated module", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  std::string path = "/proc/self/fd";
  for (unsigned n = ++copies; n; n /= 2) path += n % 2 ? "/." : "/";
  path += "/" + std::to_string(fd);
  const char* p = image.data() + Header;
  for (size_t n = image.size() - Header; n;) {
    ssize_t k = write(fd, p, n);
    if (k <= 0) break;
    p += k, n -= k;
  }
  *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  close(fd);
  if (!*handle) {
    fprintf(stderr, "CUDA emulator: %s\n", dlerror());
    return nullptr;
  }
  auto get = (const EmuModule* (*)())dlsym(*handle, "emu_module");
  return get ? get() : nullptr;
}

API Result cuModuleLoadData(void** h, const void* image) {
  if (!image) return InvalidValue;
  uint64_t n;
  if (memcmp(image, Magic, 8)) return InvalidImage;
  memcpy(&n, (const char*)image + 8, 8);
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (Result r = unsafe()) return r;
  auto m = std::make_unique<Module>();
  m->device = d;
  m->image.assign((const char*)image, Header + n);
  void* handle;
  m->first = load(m->image, &handle);
  if (!m->first) return InvalidImage;
  *h = m.get();
  S.modules[*h] = std::move(m);
  return Ok;
}
API Result cuModuleGetFunction(void** f, void* h, const char* name) {
  Lock l;
  auto m = S.modules.find(h);
  if (m == S.modules.end()) return InvalidHandle;
  for (unsigned i = 0; i < m->second->first->count; i++)
    if (!strcmp(m->second->first->kernels[i].name, name)) {
      auto fn = std::make_unique<Function>(Function{m->second.get(), i, (int)DefaultShared});
      *f = fn.get();
      S.functions[*f] = std::move(fn);
      return Ok;
    }
  return NotFound;
}

API Result cuFuncLoad(void* h) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (Result r = unsafe()) return r;
  return S.functions.count(h) ? Ok : InvalidHandle;
}

enum { MaxDynamicShared = 8 };
API Result cuFuncSetAttribute(void* h, int a, int v) {
  Lock l;
  auto f = S.functions.find(h);
  if (f == S.functions.end()) return InvalidHandle;
  if (a != MaxDynamicShared || v < 0 || v > (int)MaxShared) return InvalidValue;
  f->second->shared = v;
  return Ok;
}

// Launch is one launch, with its parameters copied.
struct Launch {
  Module* module;
  unsigned index;
  EmuLaunch at = {};
  std::vector<char> values;
  std::vector<void*> args;
  std::string wrong;  // found at the launch, reported when it runs
  Result code = Ok;
};

static std::string check_params(const EmuKernel& k, void** params, int device) {
  for (unsigned i = 0; i < k.count; i++)
    for (unsigned at = 0; at + 8 <= k.params[i].size; at += 8) {
      Addr p;
      memcpy(&p, (char*)params[i] + at, 8);
      int owner = device_of(p);
      std::string who = "parameter " + std::to_string(i);
      if (k.params[i].pointer && p && owner < 0 && !is_pinned(p, 1)) return who + " is not device memory";
      if (owner >= 0 && owner != device && !(S.devices[device].peers >> owner & 1))
        return who + " is memory of device " + std::to_string(owner) + ", and no peer access is enabled";
    }
  return "";
}

// instance is the stream's copy of a module.
static const EmuModule* instance(Stream& s, Module* m) {
  if (!s.gear) {
    Lock l;
    auto best = std::find_if(S.gear.rbegin(), S.gear.rend(), [&](auto& g) { return g->instances.count(m); });
    if (best == S.gear.rend()) best = S.gear.rbegin();
    if (best == S.gear.rend()) {
      s.gear = std::make_unique<Gear>();
    } else {
      s.gear = std::move(*best);
      S.gear.erase(std::next(best).base());
    }
  }
  auto& i = s.gear->instances[m];
  if (i) return i;
  {
    Lock l;
    if (!m->taken) return m->taken = true, i = m->first;
  }
  void* handle;
  return i = load(m->image, &handle);
}

static Result run_kernel(Launch& k, Stream& s) {
  const EmuModule* m = instance(s, k.module);
  if (!m) return InvalidImage;
  const EmuKernel& kernel = m->kernels[k.index];
  std::string detail = k.wrong;
  Result r = k.code;
  if (!r) {
    EmuLaunch at = k.at;
    at.args = k.args.data();
    at.seed = s.random();
    at.dynamic = s.gear->dynamic - (at.shared + 15) / 16 * 16;
    at.stacks = s.gear->stacks;
    r = guarded(m, [&] { return m->run(&kernel, &at); }, detail);
    if (r && detail.empty()) detail = at.detail;
  }
  Lock l;
  std::string text = damaged();
  if (!r && !text.empty()) r = IllegalAddress, detail = text + ", found after this kernel";
  if (r && !S.devices[s.device].error) S.devices[s.device].detail = std::string("kernel ") + kernel.name + ": " + detail;
  return r;
}

static Result check_shape(const Function& f, const EmuKernel& k, const EmuLaunch& at) {
  const unsigned *g = at.grid, *b = at.block;
  uint64_t threads = (uint64_t)b[0] * b[1] * b[2];
  if (!g[0] || !g[1] || !g[2] || g[0] > 0x7fffffffu || g[1] > 65535 || g[2] > 65535) return InvalidValue;
  if (!threads || threads > k.max_threads || b[0] > 1024 || b[1] > 1024 || b[2] > 64) return InvalidValue;
  return at.shared > (unsigned)f.shared ? InvalidValue : Ok;
}

// params_fit tells whether there are as many parameters as the kernel has, of a list that ends with a null pointer, and room
// for each before the next. A driver knows neither and takes what it finds.
static bool params_fit(const EmuKernel& k, void** params) {
  for (unsigned i = 0; i < k.count; i++) {
    if (!params[i]) return false;
    if (i + 1 < k.count && params[i + 1] && (char*)params[i + 1] - (char*)params[i] < (long)k.params[i].size) return false;
  }
  return !params[k.count];
}

Result make_launch(void* h, const unsigned g[3], const unsigned b[3], unsigned shared, void** params, int device, Op* op) {
  auto fi = S.functions.find(h);
  if (fi == S.functions.end() || fi->second->module->device != device) return InvalidHandle;
  Function& f = *fi->second;
  const EmuKernel& k = f.module->first->kernels[f.index];
  auto launch = std::make_shared<Launch>();
  launch->module = f.module;
  launch->index = f.index;
  std::copy(g, g + 3, launch->at.grid);
  std::copy(b, b + 3, launch->at.block);
  launch->at.shared = shared;
  launch->at.reverse = S.config.reverse;
  launch->at.banks = S.config.banks;
  if (Result r = check_shape(f, k, launch->at)) return r;
  if (!params_fit(k, params)) return InvalidValue;
  size_t bytes = 0;
  for (unsigned i = 0; i < k.count; i++) bytes += (k.params[i].size + 63) / 64 * 64;
  launch->values.resize(bytes + 64);
  char* at = launch->values.data() + (-(uintptr_t)launch->values.data() & 63);  // tensor maps begin at multiples of 64
  for (unsigned i = 0; i < k.count; i++, at += (k.params[i - 1].size + 63) / 64 * 64) {
    memcpy(at, params[i], k.params[i].size);
    launch->args.push_back(at);
  }
  launch->wrong = check_params(k, params, device);
  if (!launch->wrong.empty()) launch->code = IllegalAddress;
  if (++S.launches == S.config.fail_launch) launch->code = LaunchFailed, launch->wrong = "a failure that the test asked for";
  *op = {k.name, [launch](Stream& t) { return run_kernel(*launch, t); }, false};
  return Ok;
}

API Result cuLaunchKernel(void* h, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void* hs, void** params, void** extra) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  auto s = stream_of(hs);
  if (!s || s->device != d) return InvalidHandle;
  if (extra) return InvalidValue;
  unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  Op op;
  if (Result r = make_launch(h, grid, block, shared, params, d, &op)) return r;
  return enqueue(s, std::move(op));
}
