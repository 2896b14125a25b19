// The calls of the emulated NCCL: ranks are threads of one process or processes of one
// machine (nccl_link.cpp), operations run on the streams of the emulated driver. Communicators are blocking: the host waits
// for the other ranks when one is made, and in the first collective and the first message to a rank, where the real
// library connects them. An abort frees a communicator at the end of its group: a call that is still in it then, or when
// it is destroyed, is the end of the process.
#include "nccl.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The driver's functions that are used.
struct Driver {
  int (*get_device)(int*);
  int (*retain)(void**, int);
  int (*push)(void*);
  int (*pop)(void**);
  int (*enqueue)(void*, const char*, int (*)(void*), void*, void (*)(void*));
  int (*is_memory)(uint64_t, uint64_t);
};
static const Driver& driver() {
  static const Driver d = [] {
    const char* path = getenv("RINGO_CUDA_LIB");
    void* h = dlopen(path ? path : "libcuda.so", RTLD_NOW);
    if (!h) fprintf(stderr, "emulated NCCL: %s\n", dlerror()), abort();
    Driver d;
    auto get = [h](const char* name) { return dlsym(h, name); };
    *(void**)&d.get_device = get("cuCtxGetDevice");
    *(void**)&d.retain = get("cuDevicePrimaryCtxRetain");
    *(void**)&d.push = get("cuCtxPushCurrent_v2");
    *(void**)&d.pop = get("cuCtxPopCurrent_v2");
    *(void**)&d.enqueue = get("emu_enqueue");
    *(void**)&d.is_memory = get("emu_is_memory");
    return d;
  }();
  return d;
}

// One text for all threads and communicators, as the real one has.
static char last[256];
static std::mutex last_mu;
static Result fail(Result r, const char* format, ...) {
  std::lock_guard<std::mutex> l(last_mu);
  va_list a;
  va_start(a, format);
  vsnprintf(last, sizeof last, format, a);
  va_end(a);
  return r;
}

struct Id { char bytes[128]; };
struct Config { uint64_t size; uint32_t magic, version; int blocking, cga, min_ctas, max_ctas; const char* net; int share; };
struct Comm;

// Launch is what one group queues on one communicator.
struct Launch { std::shared_ptr<Comm> comm; void* stream; std::vector<Call> calls; std::vector<uint64_t> numbers; };

struct Comm : std::enable_shared_from_this<Comm> {
  std::shared_ptr<Meeting> meeting;
  int rank, device;
  bool aborted = false;
  std::atomic<int> inside{0};  // calls of the host that are in it
  Result state = Ok;           // an asynchronous error
  std::atomic<int> queued{0};  // launches that are not over
  uint64_t host, number;       // of the meeting
  uint64_t calls = 0, collectives = 0, splits = 0;
  std::set<Call*> running;
  std::shared_ptr<Comm> child;  // that a split makes: it is aborted with this one
  std::map<int, std::pair<int, double>> custom;  // reductions of PreMulSum: type and factor
};

// Faults and counts, for tests.
struct Fault { int rank; uint64_t call; int kind; };  // 1 hangs, 2 is an asynchronous error, 3 fails at once, 4 the host hangs; call 0 is init, -1 a split
static std::mutex mu;  // guards what follows
static std::map<Comm*, std::shared_ptr<Comm>> comms;
static std::map<uint64_t, std::weak_ptr<Meeting>> meetings;
static uint64_t ids;
static Fault fault;
static std::vector<std::pair<int, Meeting*>> order;  // launches: of which rank, on which communicator
static std::atomic<uint64_t> made, aborts, destroyed, launches, reductions, splits;

API void emu_nccl_fault(int rank, uint64_t call, int kind) {
  std::lock_guard<std::mutex> l(mu);
  fault = {rank, call, kind};
}
API void emu_nccl_counts(uint64_t out[8]) {
  std::lock_guard<std::mutex> l(mu);
  uint64_t n[8] = {made, aborts, destroyed, comms.size(), launches, moved, reductions, splits};
  memcpy(out, n, sizeof n);
}

// emu_nccl_order gives the communicators of the launches of a rank since it was asked last, and returns how many.
API uint64_t emu_nccl_order(int rank, uint64_t* out, uint64_t room) {
  std::lock_guard<std::mutex> l(mu);
  uint64_t n = 0;
  std::vector<std::pair<int, Meeting*>> others;
  for (auto& o : order)
    if (o.first != rank) others.push_back(o);
    else if (n < room) out[n++] = (uint64_t)o.second;
  order.swap(others);
  return n;
}

static std::shared_ptr<Comm> find(Comm* c) {
  std::lock_guard<std::mutex> l(mu);
  auto i = comms.find(c);
  return i == comms.end() ? nullptr : i->second;
}
static Comm* keep(const std::shared_ptr<Comm>& c) {
  std::lock_guard<std::mutex> l(mu);
  comms[c.get()] = c;
  made++;
  return c.get();
}

// in_use says whether the memory of a call is still there when it runs.
static bool in_use(const Call& c, const Comm& comm) {
  Extent e = extent(c, comm.rank, comm.meeting->n);
  return (!e.in || driver().is_memory((uint64_t)c.src, e.in)) && (!e.out || driver().is_memory((uint64_t)c.dst, e.out));
}

static int run(void* arg) {
  constexpr int IllegalAddress = 700;  // CUDA's
  auto& launch = *((std::shared_ptr<Launch>*)arg)->get();
  Comm& c = *launch.comm;
  Meeting& m = *c.meeting;
  std::unique_lock<std::mutex> l(m.mu);
  for (size_t i = 0; i < launch.calls.size() && !c.aborted; i++) {
    if (!in_use(launch.calls[i], c)) return c.queued--, IllegalAddress;
    c.running.insert(&launch.calls[i]);
    if (launch.calls[i].lost) c.state = RemoteError;
    if (!launch.calls[i].hangs) (m.host ? send_off : post)(m, c.rank, launch.numbers[i], launch.calls[i]);
  }
  m.changed.wait(l, [&] {
    for (auto& x : launch.calls)
      if (!x.done && !c.aborted) return false;
    return true;
  });
  for (auto& x : launch.calls) c.running.erase(&x);
  c.queued--;
  m.changed.notify_all();  // ncclCommDestroy waits for it
  return 0;
}

static Result start(const std::shared_ptr<Launch>& launch) {
  void* ctx;
  launch->comm->queued++;
  driver().retain(&ctx, launch->comm->device);
  driver().push(ctx);
  int r = driver().enqueue(launch->stream, "nccl", run, new std::shared_ptr<Launch>(launch),
                           [](void* a) { delete (std::shared_ptr<Launch>*)a; });
  driver().pop(&ctx);
  return r ? fail(CudaError, "the stream refused the operation: CUDA error %d", r) : Ok;
}

// Inside marks a call of the host that uses a communicator.
struct Inside {
  Comm& c;
  explicit Inside(Comm& c) : c(c) { c.inside++; }
  ~Inside() { c.inside--; }
};

// state_of is an error of a communicator, whoever noticed it.
static Result state_of(Comm& c) {
  std::lock_guard<std::mutex> l(c.meeting->mu);
  if (c.aborted) return fail(InternalError, "the communicator has been aborted");
  if (c.meeting->broken) return c.state = c.meeting->broken;
  return c.state;
}

// wait waits on the host until the others have come as far, or the communicator is aborted.
template <class F> static Result wait(Comm& c, F over) {
  Meeting& m = *c.meeting;
  std::unique_lock<std::mutex> l(m.mu);
  m.changed.notify_all();
  m.changed.wait(l, [&] { return c.aborted || m.broken || over(m); });
  if (c.aborted) return fail(InternalError, "the communicator has been aborted");
  return m.broken;
}

// connect waits for those that a launch is the first to need.
static Result connect(const Launch& launch) {
  Comm& c = *launch.comm;
  Meeting& m = *c.meeting;
  bool collective = false, hangs = false;
  std::set<std::pair<int, int>> to, from;
  {
    std::lock_guard<std::mutex> l(m.mu);
    for (auto& x : launch.calls) {
      hangs = hangs || x.stuck;
      begin(m, c.rank, x.kind, x.root);
      if (x.kind == Send) to.insert({c.rank, x.root});
      else if (x.kind == Recv) from.insert({x.root, c.rank});
      else collective = true;
    }
  }
  return wait(c, [&](Meeting& m) {
    for (auto& p : to)
      if (!m.receivers.count(p)) return false;
    for (auto& p : from)
      if (!m.senders.count(p)) return false;
    return !hangs && (!collective || (int)m.connected.size() == m.n);
  });
}

API Result ncclGetVersion(int* v) {
  const char* forced = getenv("EMU_NCCL_VERSION");
  *v = forced ? atoi(forced) : 23203;
  return Ok;
}
API const char* ncclGetErrorString(Result r) {
  static const char* text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage",
                               "remote process exited or there was a network error", "NCCL operation in progress"};
  return r >= 0 && r < 8 ? text[r] : "unknown result code";
}
API const char* ncclGetLastError(Comm*) { return last; }
// An id is a pattern, the host and the number of the meeting there.
API Result ncclGetUniqueId(Id* id) {
  uint64_t host = be_host();
  if (!host) return fail(SystemError, "no Unix socket can be made");
  std::lock_guard<std::mutex> l(mu);
  const char* debug = getenv("NCCL_DEBUG");
  if (!ids && debug && *debug) printf("NCCL version 2.32.3+emulated\n");  // C keeps it back where that is a pipe
  for (int i = 0; i < 128; i++) id->bytes[i] = (char)(i * 7 + 1);  // every word counts
  uint64_t n = ++ids;
  memcpy(id->bytes + 112, &host, 8);
  memcpy(id->bytes + 120, &n, 8);
  return Ok;
}

std::shared_ptr<Meeting> meeting_of(uint64_t number) {
  std::lock_guard<std::mutex> l(mu);
  auto m = meetings[number].lock();
  if (!m) meetings[number] = m = std::make_shared<Meeting>();
  return m;
}

Result join(Meeting& m, int n, int rank, int device, std::shared_ptr<Link> guest) {
  std::lock_guard<std::mutex> l(m.mu);
  if (m.n && m.n != n) return fail(InvalidArgument, "%d ranks here, %d on another rank", n, m.n);
  if (!m.ranks.insert(rank).second) return fail(InvalidUsage, "two ranks are both rank %d", rank);
  m.n = n;
  const char* several = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  for (int d : m.devices)
    if (d == device && !(several && *several == '1'))
      m.broken = fail(InvalidUsage, "Duplicate GPU detected : two ranks both on CUDA device %d", d);
  m.devices.push_back(device);
  m.joined++;
  if (guest) m.guests.insert(guest);
  for (auto& g : m.guests) tell(*g, m.joined, m.broken);
  m.changed.notify_all();
  return Ok;
}

// give_up forgets a communicator that cannot be made.
static Result give_up(Comm** out, Result r) {
  std::lock_guard<std::mutex> l(mu);
  comms.erase(*out);
  made--;
  *out = nullptr;
  return r;
}

static bool fails(int rank, uint64_t call, int kind) {
  std::lock_guard<std::mutex> l(mu);
  return fault.kind == kind && fault.rank == rank && fault.call == call;
}
static bool hangs(int rank, uint64_t call) { return fails(rank, call, 4); }

static Result check_config(const Config* cfg) {
  if (!cfg || cfg->magic != 0xcafebeef || cfg->size < 48) return fail(InvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  if (cfg->blocking != 1) return fail(InvalidArgument, "only blocking communicators are emulated");
  if (cfg->cga != INT_MIN || cfg->min_ctas != INT_MIN || cfg->max_ctas != INT_MIN || cfg->net || cfg->share != INT_MIN)
    return fail(InvalidArgument, "the configuration takes what the variables NCCL_* say from the user");
  return Ok;
}

// enter makes a rank's communicator in a meeting, and waits for the others. parent is what is split.
static Result enter(Comm** out, uint64_t host, uint64_t number, int n, int rank, int device, Comm* parent) {
  auto c = std::make_shared<Comm>();
  c->rank = rank;
  c->device = device;
  c->host = host;
  c->number = number;
  c->meeting = host == be_host() ? meeting_of(number) : visit(host, number, n, rank, device);
  if (!c->meeting) return fail(SystemError, "the process that made the id cannot be reached: it has ended, or runs elsewhere");
  Inside inside(*c);
  *out = keep(c);  // early, for who aborts
  if (parent) {
    std::lock_guard<std::mutex> l(parent->meeting->mu);
    if (parent->aborted) c->aborted = true;
    else parent->child = c;
  }
  bool stuck = hangs(rank, 0);
  if (!stuck && !c->meeting->host)
    if (Result r = join(*c->meeting, n, rank, device, nullptr)) return give_up(out, r);
  return wait(*c, [&](Meeting& m) { return !stuck && m.joined >= m.n; });
}

API Result ncclCommInitRankConfig(Comm** out, int n, Id id, int rank, const Config* cfg) {
  if (!out || n < 1 || rank < 0 || rank >= n) return fail(InvalidArgument, "rank %d of %d", rank, n);
  if (Result r = check_config(cfg)) return r;
  for (int i = 0; i < 112; i++)
    if (id.bytes[i] != (char)(i * 7 + 1)) return fail(InvalidArgument, "byte %d of the id is not what ncclGetUniqueId gave", i);
  int device;
  if (driver().get_device(&device)) return fail(CudaError, "no context is current");
  uint64_t host, number;
  memcpy(&host, id.bytes + 112, 8);
  memcpy(&number, id.bytes + 120, 8);
  return enter(out, host, number, n, rank, device, nullptr);
}

// ncclCommSplit is collective, with nothing of the communicator in flight. The ranks of a color meet in the process of the parent's id.
API Result ncclCommSplit(Comm* handle, int color, int key, Comm** out, const Config* cfg) {
  auto c = find(handle);
  if (!c) return fail(InvalidArgument, "no such communicator");
  Inside inside(*c);
  if (Result r = state_of(*c)) return r;
  if (Result r = check_config(cfg)) return r;
  if (c->queued) return fail(InvalidUsage, "operations are in flight on the communicator that is split");
  if (color < -1) return fail(InvalidArgument, "color %d", color);
  if (fails(c->rank, -1, 3)) return fail(SystemError, "a split that fails as the test asked for");
  Meeting& m = *c->meeting;
  int mine[2] = {color, key}, n = 0, rank = 0;
  std::vector<int> all(2 * m.n);
  Call gather{AllGather, (const char*)mine, (char*)all.data(), 2, I32, 0, 0, 1, false, false, false, nullptr};
  bool stuck = hangs(c->rank, -1);
  {
    std::unique_lock<std::mutex> l(m.mu);
    c->running.insert(&gather);
    uint64_t number = ++c->collectives;
    if (!stuck) (m.host ? send_off : post)(m, c->rank, number, gather);
    m.changed.wait(l, [&] { return gather.done || c->aborted; });
    c->running.erase(&gather);
    if (c->aborted) return fail(InternalError, "the communicator that is split has been aborted");
  }
  *out = nullptr;
  uint64_t count = ++c->splits;
  if (color < 0) return splits++, Ok;
  for (int i = 0; i < m.n; i++)
    if (all[2 * i] == color) {
      n++;
      rank += all[2 * i + 1] < key || (all[2 * i + 1] == key && i < c->rank);
    }
  uint64_t number = (1ull << 63 | (c->number * 0x9e3779b97f4a7c15 + count * 0x100000001b3) >> 1) + (uint64_t)color;
  Comm* child = nullptr;
  Result r = enter(&child, c->host, number, n, rank, c->device, c.get());
  {
    std::lock_guard<std::mutex> l(m.mu);
    c->child = nullptr;
  }
  if (r) return child ? give_up(&child, r) : r;
  *out = child;  // only now, as the real one
  splits++;
  return Ok;
}

API Result ncclCommGetAsyncError(Comm* handle, Result* state) {
  auto c = find(handle);
  if (!c) return fail(InvalidArgument, "no such communicator");
  Inside inside(*c);
  *state = state_of(*c);
  return Ok;
}

// The group of this thread.
static thread_local int depth;
static thread_local Result refused;
static thread_local std::vector<std::shared_ptr<Launch>> group;
static thread_local std::vector<std::shared_ptr<Comm>> doomed;  // to be freed

static void reclaim(const std::shared_ptr<Comm>& c) {
  if (c->inside) fprintf(stderr, "emulated NCCL: rank %d's communicator is freed while a call uses it\n", c->rank), abort();
  std::lock_guard<std::mutex> l(mu);
  comms.erase(c.get());
  reductions -= c->custom.size();
}
API Result ncclCommAbort(Comm* handle) {
  auto c = find(handle);
  if (!c) return fail(InvalidArgument, "no such communicator");
  std::shared_ptr<Comm> child;
  {
    std::lock_guard<std::mutex> l(c->meeting->mu);
    c->aborted = true;
    withdraw(*c->meeting, c->running);
    if (c->meeting->host) hang_up(*c->meeting->host);
    c->meeting->changed.notify_all();
    child = c->child;
  }
  if (child) {
    std::lock_guard<std::mutex> l(child->meeting->mu);
    child->aborted = true;
    child->meeting->changed.notify_all();
  }
  aborts++;
  if (depth) doomed.push_back(c);
  else reclaim(c);
  return Ok;
}
// ncclCommDestroy waits for what is running, as the real one does; and a host for its
// guests, which need it: NCCL calls it collective between the ranks of a machine.
API Result ncclCommDestroy(Comm* handle) {
  auto c = find(handle);
  if (!c) return fail(InvalidArgument, "no such communicator");
  {
    std::unique_lock<std::mutex> l(c->meeting->mu);
    c->meeting->changed.wait(l, [&] { return c->running.empty() && c->meeting->guests.empty(); });
  }
  reclaim(c);
  destroyed++;
  return Ok;
}

API Result ncclGroupStart() { return depth++, Ok; }
static Result end_group() {
  std::vector<std::shared_ptr<Launch>> all;
  std::vector<std::shared_ptr<Comm>> gone;
  all.swap(group);
  gone.swap(doomed);
  Result r = refused;
  refused = Ok;
  for (auto& launch : all) {
    if (r) break;
    Inside inside(*launch->comm);
    launches++;
    {
      std::lock_guard<std::mutex> l(mu);
      order.emplace_back(launch->comm->rank, launch->comm->meeting.get());
    }
    if (!(r = connect(*launch))) r = start(launch);
  }
  for (auto& c : gone) reclaim(c);
  return r;
}
API Result ncclGroupEnd() {
  if (!depth) return fail(InvalidUsage, "ncclGroupEnd: not in a group call.");
  return --depth ? Ok : end_group();
}

// inject applies the fault that the test asked for to a call.
static Result inject(Comm& c, Call& call) {
  std::lock_guard<std::mutex> l(mu);
  if (!fault.kind || fault.rank != c.rank || fault.call != c.calls) return Ok;
  call.hangs = fault.kind != 3;
  call.lost = fault.kind == 2;
  call.stuck = fault.kind == 4;
  return fault.kind == 3 ? fail(SystemError, "a failure that the test asked for") : Ok;
}

// overlap says whether what a call writes is also something that it reads, but for
// what NCCL calls in place: it defines nothing else.
static bool overlap(const Call& c, Extent e, int rank) {
  size_t own = rank * c.n * type_size(c.type);
  if (!e.in || !e.out || c.src + e.in <= c.dst || c.dst + e.out <= c.src) return false;
  switch (c.kind) {
    case AllGather: return c.src != c.dst + own;
    case ReduceScatter: return c.dst != c.src + own;
    case AllToAll: return true;
    default: return c.src != c.dst;
  }
}

static Result check(Comm& c, Call& call) {
  if (call.type < 0 || call.type >= NumTypes) return fail(InvalidArgument, "%d is no type", call.type);
  int peers = c.meeting->n;
  if (call.op < Sum || (call.op > Avg && call.op < FirstCustom)) return fail(InvalidArgument, "%d is no reduction", call.op);
  if (call.root < 0 || call.root >= peers) return fail(InvalidArgument, "root or peer %d of %d ranks", call.root, peers);
  if (call.op >= FirstCustom) {
    auto i = c.custom.find(call.op);
    if (i == c.custom.end() || i->second.first != call.type) return fail(InvalidArgument, "%d is no reduction of type %d", call.op, call.type);
    call.scaled = true;
    call.factor = i->second.second;
    call.op = Sum;
  }
  Extent e = extent(call, c.rank, peers);
  if (e.in && !driver().is_memory((uint64_t)call.src, e.in)) return fail(InvalidArgument, "sendbuff %p is not %zu bytes of device memory", call.src, e.in);
  if (e.out && !driver().is_memory((uint64_t)call.dst, e.out)) return fail(InvalidArgument, "recvbuff %p is not %zu bytes of device memory", call.dst, e.out);
  size_t align = type_size(call.type);
  if ((e.in && (uintptr_t)call.src % align) || (e.out && (uintptr_t)call.dst % align))
    return fail(InvalidArgument, "sendbuff %p or recvbuff %p is not aligned to elements of %zu bytes", call.src, call.dst, align);
  if (overlap(call, e, c.rank)) return fail(InvalidArgument, "sendbuff %p and recvbuff %p overlap, and not in place", call.src, call.dst);
  return Ok;
}

static Result take(Comm* handle, void* stream, Call call) {
  auto c = find(handle);
  if (!c) return fail(InvalidArgument, "no such communicator");
  Inside inside(*c);
  if (Result state = state_of(*c)) return state;
  c->calls++;
  if (Result r = inject(*c, call)) return r;
  if (Result r = check(*c, call)) return r;
  if (!call.n) return Ok;  // as the real one
  std::shared_ptr<Launch> launch;
  for (auto& g : group)
    if (g->comm == c && g->stream == stream) launch = g;
  if (!launch) {
    launch = std::make_shared<Launch>();
    launch->comm = c;
    launch->stream = stream;
    group.push_back(launch);
  }
  bool collective = call.kind != Send && call.kind != Recv;
  launch->numbers.push_back(collective ? ++c->collectives : 0);
  launch->calls.push_back(call);
  return Ok;
}
static Result queue(Comm* c, void* stream, Kind k, const void* s, void* r, size_t n, int type, int op, int root) {
  depth++;
  Result e = take(c, stream, Call{k, (const char*)s, (char*)r, n, type, op, root, 1, false, false, false, nullptr});
  if (e) refused = e;
  return --depth ? e : end_group();
}

API Result ncclAllReduce(const void* s, void* r, size_t n, int t, int op, Comm* c, void* q) { return queue(c, q, AllReduce, s, r, n, t, op, 0); }
API Result ncclReduce(const void* s, void* r, size_t n, int t, int op, int root, Comm* c, void* q) { return queue(c, q, Reduce, s, r, n, t, op, root); }
API Result ncclBroadcast(const void* s, void* r, size_t n, int t, int root, Comm* c, void* q) { return queue(c, q, Broadcast, s, r, n, t, 0, root); }
API Result ncclAllGather(const void* s, void* r, size_t n, int t, Comm* c, void* q) { return queue(c, q, AllGather, s, r, n, t, 0, 0); }
API Result ncclReduceScatter(const void* s, void* r, size_t n, int t, int op, Comm* c, void* q) { return queue(c, q, ReduceScatter, s, r, n, t, op, 0); }
API Result ncclAlltoAll(const void* s, void* r, size_t n, int t, Comm* c, void* q) { return queue(c, q, AllToAll, s, r, n, t, 0, 0); }
API Result ncclSend(const void* s, size_t n, int t, int peer, Comm* c, void* q) { return queue(c, q, Send, s, nullptr, n, t, 0, peer); }
API Result ncclRecv(void* r, size_t n, int t, int peer, Comm* c, void* q) { return queue(c, q, Recv, nullptr, r, n, t, 0, peer); }

API Result ncclRedOpCreatePreMulSum(int* op, void* factor, int type, int residence, Comm* handle) {
  auto c = find(handle);
  if (!c || residence != 1) return fail(InvalidArgument, "ncclRedOpCreatePreMulSum");
  double x;
  switch (type) {
    case F32: { float f; memcpy(&f, factor, 4); x = f; break; }
    case F64: memcpy(&x, factor, 8); break;
    case F16: case BF16: { uint16_t h; memcpy(&h, factor, 2); x = half_value(h, type == BF16); break; }
    default: return fail(InvalidArgument, "a factor of type %d", type);
  }
  *op = FirstCustom;
  while (c->custom.count(*op)) ++*op;
  c->custom[*op] = {type, x};
  reductions++;
  return Ok;
}
API Result ncclRedOpDestroy(int op, Comm* handle) {
  auto c = find(handle);
  if (!c || !c->custom.erase(op)) return fail(InvalidArgument, "%d is no reduction of this communicator", op);
  reductions--;
  return Ok;
}
