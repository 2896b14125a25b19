// Copies and fills.
#include "core.h"
#include <string.h>

// queue puts work on device memory into a stream; it runs under the fault handler.
static Result queue(void* h, const char* name, std::function<void()> body) {
  int d;
  if (Result r = usable(&d)) return r;
  auto s = stream_of(h);
  if (!s || s->device != d) return InvalidHandle;
  return enqueue(s, {name, [body](Stream& t) {
    std::string detail;
    Result r = guarded(nullptr, [&] { body(); return Ok; }, detail);
    if (r) {
      Lock l;
      S.devices[t.device].detail = detail;
    }
    return r;
  }, false});
}

API Result cuMemcpyHtoDAsync_v2(Addr dst, const void* src, size_t n, void* h) {
  Lock l;
  if (!is_memory(dst, n)) return InvalidValue;
  if (is_pinned((Addr)src, n) || S.config.reaches) return queue(h, "copy from host", [=] { memcpy((void*)dst, src, n); });
  auto s = stream_of(h);  // pageable memory is staged, so it may change after this call
  if (s && s->capture) return s->capture->broken = true, CaptureUnsupported;
  auto stage = std::make_shared<std::vector<char>>((const char*)src, (const char*)src + n);
  return queue(h, "copy from host", [=] { memcpy((void*)dst, stage->data(), n); });
}
API Result cuMemcpyDtoHAsync_v2(void* dst, Addr src, size_t n, void* h) {
  Lock l;
  if (!is_memory(src, n)) return InvalidValue;
  bool pin = is_pinned((Addr)dst, n) || S.config.reaches;
  auto s = stream_of(h);
  if (!pin && s && s->capture) return s->capture->broken = true, CaptureUnsupported;
  if (Result r = queue(h, "copy to host", [=] { memcpy(dst, (void*)src, n); }); r || pin) return r;
  wait_for(l, *s, s->issued);  // pageable memory has been written when the call returns
  return S.devices[s->device].error;
}
static Result copy(Addr dst, Addr src, size_t n, void* h) {
  if (!is_memory(dst, n) || !is_memory(src, n)) return InvalidValue;
  if (dst < src + n && src < dst + n) return InvalidValue;  // CUDA leaves it undefined
  return queue(h, "copy", [=] { memcpy((void*)dst, (void*)src, n); });
}
API Result cuMemcpyDtoDAsync_v2(Addr dst, Addr src, size_t n, void* h) {
  Lock l;
  return copy(dst, src, n, h);
}
API Result cuMemcpyPeerAsync(Addr dst, void* to, Addr src, void* from, size_t n, void* h) {
  Lock l;
  if (device_of(dst) != device_of_context(to) || device_of(src) != device_of_context(from)) return InvalidContext;
  return copy(dst, src, n, h);
}
API Result cuMemsetD8Async(Addr dst, unsigned char v, size_t n, void* h) {
  Lock l;
  if (!is_memory(dst, n)) return InvalidValue;
  return queue(h, "fill", [=] { memset((void*)dst, v, n); });
}
API Result cuMemsetD32Async(Addr dst, unsigned v, size_t n, void* h) {
  Lock l;
  if (!is_memory(dst, 4 * n) || dst % 4) return InvalidValue;
  return queue(h, "fill", [=] { for (size_t i = 0; i < n; i++) ((unsigned*)dst)[i] = v; });
}
