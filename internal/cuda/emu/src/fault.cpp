// Faults of kernels become CUDA errors: a signal on a stream's thread while it
// runs device code jumps back out of the kernel. All other signals go to the
// handler that was there before, which is Go's.
#include "core.h"
#include <atomic>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

namespace {
struct Attempt {
  sigjmp_buf out;
  volatile int signal;
  volatile Addr address;
  std::atomic<bool> active{false}, late{false};
  pthread_t thread;
  uint64_t since = 0;
};
// initial-exec: the handler must not allocate on threads that never came here.
thread_local Attempt* guard __attribute__((tls_model("initial-exec")));
thread_local bool worker __attribute__((tls_model("initial-exec")));
struct sigaction previous[NSIG];
const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

void handler(int sig, siginfo_t* info, void* context) {
  Attempt* g = guard;
  if (g && g->active) {
    g->active = false;
    g->signal = sig;
    g->address = info->si_code > 0 ? (Addr)info->si_addr : 0;
    siglongjmp(g->out, 1);
  }
  if (worker && info->si_code == SI_TKILL) return;  // from the watchdog, and the kernel has just ended
  struct sigaction& old = previous[sig];
  if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(sig, info, context);
  if (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN) {
    sigaction(sig, &old, nullptr);  // the instruction faults again, without us
    return;
  }
  old.sa_handler(sig);
}

// The watchdog ends kernels that run for too long: it sends their thread one of
// the signals above.
std::mutex watched_mu;
std::set<Attempt*> watched;
void watch() {
  worker_stack();
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    uint64_t timeout = [] { Lock l; return S.config.timeout_ns; }();
    std::lock_guard<std::mutex> l(watched_mu);
    for (Attempt* g : watched)
      if (g->active && monotonic() - g->since > timeout && !g->late.exchange(true)) pthread_kill(g->thread, SIGFPE);
  }
}
}  // namespace

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (int s : signals) {
      struct sigaction a = {};
      a.sa_sigaction = handler;
      a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigfillset(&a.sa_mask);
      sigaction(s, &a, &previous[s]);
    }
    std::thread(watch).detach();
  });
}

void worker_stack() {
  worker = true;
  sigset_t others;  // Go's signals are for Go's threads
  sigfillset(&others);
  for (int sig : signals) sigdelset(&others, sig);
  pthread_sigmask(SIG_BLOCK, &others, nullptr);
  stack_t s = {};
  s.ss_size = 64 << 10;
  s.ss_sp = mmap(0, s.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sigaltstack(&s, nullptr);
}
void free_worker_stack() {
  stack_t s = {}, was;
  s.ss_flags = SS_DISABLE;
  if (!sigaltstack(&s, &was)) munmap(was.ss_sp, was.ss_size);
}

static Result explain(const Attempt& g, std::string& detail) {
  if (g.late) return detail = "it ran for too long", LaunchTimeout;
  if (g.signal == SIGFPE) return detail = "integer division by zero", LaunchFailed;
  if (g.signal == SIGILL) return detail = "trap", LaunchFailed;
  if (!g.address) return detail = "a misaligned or non-canonical address", Misaligned;
  Lock l;
  detail = "access to " + describe(g.address);
  return IllegalAddress;
}

Result guarded(const EmuModule* m, const std::function<Result()>& body, std::string& detail) {
  Attempt g;
  g.thread = pthread_self();
  g.since = monotonic();
  { std::lock_guard<std::mutex> l(watched_mu); watched.insert(&g); }
  volatile Result r = Ok;
  if (!sigsetjmp(g.out, 1)) {
    guard = &g;
    g.active = true;
    r = body();
    g.active = false;
    guard = nullptr;
  } else {
    guard = nullptr;
    r = explain(g, detail);
    if (m) {
      unsigned t[3], b[3];
      m->position(t, b);
      char at[100];
      snprintf(at, sizeof at, " in thread (%u,%u,%u) of block (%u,%u,%u)", t[0], t[1], t[2], b[0], b[1], b[2]);
      detail += at;
    }
  }
  std::lock_guard<std::mutex> l(watched_mu);
  watched.erase(&g);
  return r;
}
