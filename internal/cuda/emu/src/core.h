// Inside the emulated driver. One lock guards everything but device memory,
// the operations of streams run without it.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include "emu.h"
#include "kernel.h"

typedef int Result;
typedef uint64_t Addr;
enum : Result {
  Ok = 0, InvalidValue = 1, OutOfMemory = 2, NotInitialized = 3, InvalidImage = 200, InvalidContext = 201,
  NoDevice = 100, InvalidDevice = 101, PeerUnsupported = 217, InvalidHandle = 400, IllegalState = 401, NotFound = 500, NotReady = 600, IllegalAddress = 700,
  LaunchTimeout = 702, PeerEnabled = 704, Misaligned = 716, LaunchFailed = 719, NotSupported = 801,
  CaptureUnsupported = 900, CaptureInvalidated = 901, CaptureMerge = 902, CaptureUnmatched = 903,
  CaptureUnjoined = 904, CaptureIsolation = 905, CapturedEvent = 907, CaptureWrongThread = 908,
};
constexpr int MaxDevices = 16;
constexpr unsigned MaxShared = 232448, DefaultShared = 49152;

struct Stream;
typedef std::function<Result(Stream&)> Run;

// Op is an operation of a stream. An op that keeps order (events) runs even
// after an error.
struct Op { std::string name; Run run; bool keeps_order; };

struct Node { Op op; std::vector<int> deps; uint64_t id; };  // id: the CUgraphNode
struct Graph { std::vector<Node> nodes; };

// Capture is a recording: which streams take part, and whether it is still good.
struct Capture {
  enum Mode { Global, ThreadLocal, Relaxed };
  Graph graph;
  Stream* origin;
  std::thread::id thread;
  int mode;
  std::vector<std::shared_ptr<Stream>> streams;
  bool broken = false, ended = false;
};

// Mark is one recording of an event. Who waits, waits for a mark: the event may
// be recorded again meanwhile.
struct Mark {
  std::shared_ptr<Stream> stream;
  uint64_t place;         // in the stream
  bool done = false;
  uint64_t when = 0;      // nanoseconds, once done
};
struct Event {
  int device;
  bool timed;
  std::shared_ptr<Mark> mark;        // the last one; null: never recorded
  std::shared_ptr<Capture> capture;  // the mark is inside a graph, after these nodes
  std::vector<int> frontier;
};

struct Module;

// Gear is what the kernels of one stream need, from its first kernel on. The next
// stream gets that of one that has ended.
struct Gear {
  std::map<Module*, const EmuModule*> instances;
  unsigned char* dynamic;             // dynamic shared memory ends where this does
  unsigned char* stacks[1024] = {};   // of fibers. Each is two mappings, of which Linux allows a process 65,530.
  Gear();
};

struct Stream : std::enable_shared_from_this<Stream> {
  int device;
  std::deque<Op> queue;
  uint64_t issued = 0, finished = 0, demand = 0;  // operations, counted from the beginning
  uint64_t awaited = ~0ull;   // the first place that somebody waits for
  bool held = false, closing = false, asleep = false;
  std::condition_variable wake, changed;  // there is work; what was awaited has finished
  std::shared_ptr<Capture> capture;
  std::vector<int> frontier;  // the nodes that the next one comes after
  std::vector<void*> ahead;   // these, as cuStreamGetCaptureInfo hands them out
  std::mt19937_64 random;
  std::unique_ptr<Gear> gear;
};

// Module is an image; each stream loads a copy of its own, so that kernels of
// different streams run at the same time and share nothing.
struct Module { int device; std::string image; const EmuModule* first; bool taken = false; };  // taken: a gear has the first
struct Function { Module* module; unsigned index; int shared; };

struct Device {
  Result error = Ok;      // sticky: CUDA's contexts do not recover
  std::string detail;
  uint64_t used = 0;
  uint64_t peers = 0;     // bit i: device i's memory may be used
};

struct State {
  std::mutex mu;
  EmuConfig config;
  uint64_t allocs = 0, launches = 0, streams_made = 0, nodes_made = 0;
  Device devices[MaxDevices];
  std::map<void*, std::shared_ptr<Stream>> streams, closed;  // closed ones run what is queued
  std::vector<std::shared_ptr<Stream>> woken;  // see Lock
  std::vector<std::unique_ptr<Gear>> gear;     // that no stream has
  std::map<void*, std::shared_ptr<Event>> events;
  std::map<void*, std::unique_ptr<Module>> modules;
  std::map<void*, std::unique_ptr<Function>> functions;
  std::map<void*, std::shared_ptr<Graph>> graphs, execs;
  std::set<std::shared_ptr<Capture>> captures;  // under way
};
extern State S;

// Lock holds the lock. Streams that got work meanwhile are woken at its end: before,
// they would wake up only to wait for it.
struct Lock : std::unique_lock<std::mutex> {
  Lock() : std::unique_lock<std::mutex>(S.mu) {}
  ~Lock();
};

// context.cpp
int device_of_context(void* ctx);                  // -1: it is none
int current();                                     // the thread's device, -1 is none
Result usable(int* device);                        // a context is current and has no error
// stream.cpp
uint64_t monotonic();                              // nanoseconds
std::shared_ptr<Stream> stream_of(void* handle);   // with the lock held; null: no such stream
Result enqueue(const std::shared_ptr<Stream>&, Op);
void demand(Stream&, uint64_t place);
void wait_for(Lock&, Stream&, uint64_t place);
void wait_device(Lock&, int device);
Result unsafe();                                   // fails, and breaks captures, while one forbids this thread to wait or allocate
void end_capture(Capture&);
// launch.cpp
Result make_launch(void* function, const unsigned grid[3], const unsigned block[3], unsigned shared, void** params, int device, Op*);
// graph.cpp
Result run_graph(const Graph&, Stream&);
Result wait_in_capture(const std::shared_ptr<Stream>&, const std::shared_ptr<Event>&);
// memory.cpp
int device_of(Addr);                               // whose address range; -1 is none
bool is_memory(Addr, uint64_t n);
bool is_pinned(Addr, uint64_t n);
std::string describe(Addr);                        // of an address that faulted
std::string damaged();                             // an allocation written beyond its end; "" is none
int leaked_memory(std::string& out);
// fault.cpp
void install_handler();
void worker_stack();                               // signals of this thread get a stack of their own
void free_worker_stack();                          // at its end
Result guarded(const EmuModule*, const std::function<Result()>&, std::string& detail);
