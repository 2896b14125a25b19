// Streams, each a thread that runs a queue, and events.
#include "core.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

uint64_t monotonic() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<Stream> stream_of(void* h) {
  auto i = S.streams.find(h);
  return i == S.streams.end() ? nullptr : i->second;
}
static std::shared_ptr<Event> event_of(void* h) {
  auto i = S.events.find(h);
  return i == S.events.end() ? nullptr : i->second;
}

// stream_for_work is a stream that takes work from this thread: its device is
// the current one.
static Result stream_for_work(void* h, std::shared_ptr<Stream>* s) {
  int d;
  if (Result r = usable(&d)) return r;
  *s = stream_of(h);  // the null stream is not one of ours: nothing in the project uses it
  if (!*s || (*s)->device != d) return InvalidHandle;
  return Ok;
}

static bool may_run(Stream& s) {
  if (s.queue.empty() || s.held) return false;
  return !S.config.lazy || s.finished < s.demand || s.closing;
}

// Behind the dynamic shared memory is a guard page.
Gear::Gear() {
  constexpr size_t n = MaxShared + 4096 - MaxShared % 4096;
  auto p = (unsigned char*)mmap(0, n + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) perror("emu: shared memory"), abort();
  mprotect(p + n, 4096, PROT_NONE);
  dynamic = p + n;
}

Lock::~Lock() {
  if (!owns_lock() || S.woken.empty()) return;
  std::vector<std::shared_ptr<Stream>> woken;
  woken.swap(S.woken);
  unlock();
  for (auto& s : woken) s->wake.notify_one();
}
// wake_up wakes a stream that may run something.
static void wake_up(Stream& s) {
  if (!s.asleep || !(may_run(s) || s.closing)) return;
  s.asleep = false;
  S.woken.push_back(s.shared_from_this());
}

static void fail(Stream& s, Result r, const std::string& name) {
  Device& d = S.devices[s.device];
  if (d.error) return;
  d.error = r;
  if (d.detail.empty()) d.detail = name;
}

static void work(std::shared_ptr<Stream> s) {
  worker_stack();
  Lock l;
  for (;;) {
    while (!may_run(*s) && !(s->closing && s->queue.empty())) {
      s->asleep = true;
      s->wake.wait(l);
    }
    s->asleep = false;
    if (s->queue.empty()) break;
    Op op = std::move(s->queue.front());
    s->queue.pop_front();
    uint64_t pause = S.config.delay_ns && s->random() % 4 == 0 ? s->random() % S.config.delay_ns : 0;
    bool skip = S.devices[s->device].error && !op.keeps_order;
    l.unlock();
    if (pause) std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
    Result r = skip ? Ok : op.run(*s);
    Op().run.swap(op.run);  // what it holds goes without the lock
    l.lock();
    if (r) fail(*s, r, op.name);
    if (++s->finished < s->awaited) continue;
    s->awaited = ~0ull;
    l.unlock();
    s->changed.notify_all();
    l.lock();
  }
  S.closed.erase(s.get());
  if (s->gear) S.gear.push_back(std::move(s->gear));
  l.unlock();
  free_worker_stack();
}

Result enqueue(const std::shared_ptr<Stream>& s, Op op) {
  if (s->capture) {
    Capture& c = *s->capture;
    if (c.broken) return CaptureInvalidated;
    c.graph.nodes.push_back({std::move(op), s->frontier, ++S.nodes_made});
    s->frontier = {(int)c.graph.nodes.size() - 1};
    return Ok;
  }
  s->queue.push_back(std::move(op));
  s->issued++;
  wake_up(*s);
  return Ok;
}

void demand(Stream& s, uint64_t place) {
  if (place > s.demand) s.demand = place;
  wake_up(s);
}
void wait_for(Lock& l, Stream& s, uint64_t place) {
  demand(s, place);
  for (auto& w : S.woken) w->wake.notify_one();  // the lock is released below
  S.woken.clear();
  while (s.finished < place) {
    s.awaited = std::min(s.awaited, place);
    s.changed.wait(l);
  }
}
void wait_device(Lock& l, int device) {
  std::vector<std::pair<std::shared_ptr<Stream>, uint64_t>> all;
  for (auto* streams : {&S.streams, &S.closed})
    for (auto& i : *streams)
      if (i.second->device == device) all.push_back({i.second, i.second->issued});
  for (auto& i : all) demand(*i.first, i.second);
  for (auto& i : all) wait_for(l, *i.first, i.second);
}

API Result cuStreamCreateWithPriority(void** h, unsigned flags, int) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (flags > 1) return InvalidValue;
  auto s = std::make_shared<Stream>();
  s->device = d;
  s->random.seed(S.config.seed * 1000003 + S.streams_made++);
  S.streams[s.get()] = s;
  *h = s.get();
  std::thread(work, s).detach();
  return Ok;
}
API Result cuStreamDestroy_v2(void* h) {
  Lock l;
  auto s = stream_of(h);
  if (!s) return InvalidHandle;
  if (s->capture) end_capture(*s->capture);
  s->closing = true;  // what is queued still runs
  s->held = false;
  wake_up(*s);
  S.closed[h] = s;
  S.streams.erase(h);
  return Ok;
}
API Result cuStreamSynchronize(void* h) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  auto s = stream_of(h);
  if (!s) return InvalidHandle;
  if (s->capture) return s->capture->broken = true, CaptureUnsupported;
  if (Result r = unsafe()) return r;
  wait_for(l, *s, s->issued);
  return S.devices[s->device].error;
}
API Result cuStreamQuery(void* h) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  auto s = stream_of(h);
  if (!s) return InvalidHandle;
  if (s->capture) return s->capture->broken = true, CaptureUnsupported;
  if (Result r = unsafe()) return r;
  demand(*s, s->issued);
  return s->finished >= s->issued ? Ok : NotReady;
}

// A gate holds up the threads that make a call on a device, as a driver that hangs does.
static struct {
  std::mutex mu;
  std::condition_variable open;
  std::string call;
  int device;
} gate;
static std::atomic<bool> shut;

API void emu_block(const char* call, int device) {
  std::lock_guard<std::mutex> l(gate.mu);
  gate.call = call;
  gate.device = device;
  shut = *call != 0;
  gate.open.notify_all();
}
static void pass(const char* call) {
  if (!shut) return;
  std::unique_lock<std::mutex> l(gate.mu);
  gate.open.wait(l, [&] { return gate.call != call || gate.device != current(); });
}

API Result cuEventCreate(void** h, unsigned flags) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  if (flags > 7) return InvalidValue;
  auto e = std::make_shared<Event>();
  e->device = d;
  e->timed = !(flags & 2);
  S.events[e.get()] = e;
  *h = e.get();
  return Ok;
}
API Result cuEventDestroy_v2(void* h) {
  Lock l;
  return S.events.erase(h) ? Ok : InvalidHandle;
}
API Result cuEventRecord(void* h, void* hs) {
  pass("cuEventRecord");
  Lock l;
  std::shared_ptr<Stream> s;
  if (Result r = stream_for_work(hs, &s)) return r;
  auto e = event_of(h);
  if (!e || e->device != s->device) return InvalidHandle;
  e->capture = s->capture;
  if (s->capture) {
    e->frontier = s->frontier;
    return Ok;
  }
  auto mark = std::make_shared<Mark>(Mark{s, s->issued + 1});
  e->mark = mark;
  return enqueue(s, {"event record", [mark](Stream&) {
    Lock l;
    mark->done = true;
    mark->when = monotonic();
    mark->stream = nullptr;
    return Ok;
  }, true});
}
API Result cuStreamWaitEvent(void* hs, void* h, unsigned flags) {
  Lock l;
  if (flags) return InvalidValue;
  std::shared_ptr<Stream> s;
  if (Result r = stream_for_work(hs, &s)) return r;
  auto e = event_of(h);
  if (!e) return InvalidHandle;
  if (e->capture || s->capture) return wait_in_capture(s, e);
  if (!e->mark || e->mark->done) return Ok;
  auto mark = e->mark;
  return enqueue(s, {"event wait", [mark](Stream&) {
    Lock l;
    if (auto s = mark->stream) wait_for(l, *s, mark->place);
    return Ok;
  }, true});
}

// event_for_host is an event that the host may ask about.
static Result event_for_host(void* h, std::shared_ptr<Event>* e) {
  int d;
  if (Result r = usable(&d)) return r;
  *e = event_of(h);
  if (!*e) return InvalidHandle;
  if (Result r = unsafe()) return r;
  if ((*e)->capture) return (*e)->capture->broken = true, CapturedEvent;
  return Ok;
}
API Result cuEventQuery(void* h) {
  pass("cuEventQuery");
  Lock l;
  std::shared_ptr<Event> e;
  if (Result r = event_for_host(h, &e)) return r;
  if (!e->mark || e->mark->done) return Ok;
  demand(*e->mark->stream, e->mark->place);
  return NotReady;
}
API Result cuEventSynchronize(void* h) {
  Lock l;
  std::shared_ptr<Event> e;
  if (Result r = event_for_host(h, &e)) return r;
  auto mark = e->mark;
  if (mark && !mark->done) {
    auto s = mark->stream;
    wait_for(l, *s, mark->place);
  }
  return S.devices[e->device].error;
}
API Result cuEventElapsedTime(float* ms, void* ha, void* hb) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  auto a = event_of(ha), b = event_of(hb);
  if (!a || !b || !a->timed || !b->timed || !a->mark || !b->mark || a->device != b->device) return InvalidHandle;
  if (a->capture || b->capture) return CapturedEvent;
  if (!a->mark->done || !b->mark->done) return NotReady;
  *ms = (float)((double)((int64_t)(b->mark->when - a->mark->when)) / 1e6);
  return Ok;
}

API int emu_hold(void* h, int held) {
  Lock l;
  auto s = stream_of(h);
  if (!s) return InvalidHandle;
  s->held = held;
  wake_up(*s);
  return Ok;
}
API int emu_enqueue(void* h, const char* name, int (*run)(void*), void* arg, void (*drop)(void*)) {
  std::shared_ptr<void> keep(arg, [drop](void* a) { if (drop) drop(a); });
  Lock l;
  std::shared_ptr<Stream> s;
  if (Result r = stream_for_work(h, &s)) return r;
  return enqueue(s, {name, [run, keep](Stream&) { return run(keep.get()); }, false});
}
