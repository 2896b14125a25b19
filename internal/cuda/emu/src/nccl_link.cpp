// Communicators across processes of one machine. The process that made the id is
// the host: its Meeting is the real one, and ranks elsewhere are guests there, each
// over a Unix socket of its own, whose abstract name leaves no file behind. A
// guest's call brings along the bytes that it reads, takes part as any other does,
// and what it wrote goes back. Who dies or leaves takes its calls along; those of
// the others hang until they abort.
#include "nccl.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <deque>
#include <list>
#include <random>
#include <thread>

// Frame is a message between a guest and its host; bytes follow it.
struct Frame {
  enum { Hello, State, Post, Done, Begin } what;
  uint64_t number;               // of the meeting in Hello, of the collective in Post
  int n, rank, device;           // Hello; rank: also in Begin
  int joined, broken;            // State
  uint64_t id;                   // Post, and Done of the same call
  Kind kind;                     // Post, as in Call; also in Begin, with the peer in root
  uint64_t count;
  int type, op, root, scaled;
  double factor;
  uint64_t bytes;
};

// Link is one end of a connection. Two threads serve it, so that neither end ever
// waits for the other with a lock held.
struct Link {
  int fd;
  std::mutex mu;
  std::condition_variable more;
  std::deque<std::string> out;
  bool closed = false;

  explicit Link(int fd) : fd(fd) {}
  ~Link() { ::close(fd); }
  void send(Frame f, const void* data, size_t n) {
    f.bytes = n;
    std::string text((const char*)&f, sizeof f);
    if (n) text.append((const char*)data, n);
    std::lock_guard<std::mutex> l(mu);
    out.push_back(std::move(text));
    more.notify_one();
  }
  void close() {
    std::lock_guard<std::mutex> l(mu);
    closed = true;
    shutdown(fd, SHUT_RDWR);
    more.notify_one();
  }
  void write() {
    std::unique_lock<std::mutex> l(mu);
    for (;;) {
      more.wait(l, [&] { return closed || !out.empty(); });
      if (closed) return;
      std::string text = std::move(out.front());
      out.pop_front();
      l.unlock();
      for (size_t at = 0; at < text.size();) {
        ssize_t k = ::send(fd, &text[at], text.size() - at, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR) return;  // the reader finds out too
        if (k > 0) at += k;
      }
      l.lock();
    }
  }
  bool read(void* to, size_t n) {
    for (size_t at = 0; at < n;) {
      ssize_t k = recv(fd, (char*)to + at, n - at, 0);
      if (k == 0 || (k < 0 && errno != EINTR)) return false;
      if (k > 0) at += k;
    }
    return true;
  }
  bool receive(Frame& f, std::vector<char>& data) {
    if (!read(&f, sizeof f)) return false;
    data.resize(f.bytes);
    return read(data.data(), f.bytes);
  }
};

void hang_up(Link& l) { l.close(); }

// spawn runs f on a thread that gets no signals: Go's are for Go's threads.
template <class F> static void spawn(F f) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread(f).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

static socklen_t address(sockaddr_un& a, uint64_t host) {
  a = {};
  a.sun_family = AF_UNIX;
  int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "ringo-emulated-nccl-%016llx", (unsigned long long)host);
  return (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + n);
}

void tell(Link& l, int joined, Result broken) {
  Frame f{};
  f.what = Frame::State;
  f.joined = joined;
  f.broken = broken;
  l.send(f, nullptr, 0);
}

// note is begin without a word to others. It returns whether it is news.
static bool note(Meeting& m, int rank, Kind kind, int peer) {
  m.changed.notify_all();
  if (kind == Send) return m.senders.insert({rank, peer}).second;
  if (kind == Recv) return m.receivers.insert({peer, rank}).second;
  return m.connected.insert(rank).second;
}
void begin(Meeting& m, int rank, Kind kind, int peer) {
  if (!note(m, rank, kind, peer)) return;
  Frame f{};
  f.what = Frame::Begin;
  f.rank = rank;
  f.kind = kind;
  f.root = peer;
  if (m.host) m.host->send(f, nullptr, 0);
  for (auto& g : m.guests) g->send(f, nullptr, 0);
}

// Guest is a call of a rank elsewhere.
struct Guest {
  Call call;
  std::vector<char> in, out;
};

// entertain serves a guest until it leaves.
static void entertain(const std::shared_ptr<Link>& link) {
  Frame f;
  std::vector<char> data;
  if (!link->receive(f, data) || f.what != Frame::Hello) return link->close();
  auto m = meeting_of(f.number);
  int rank = f.rank;
  if (Result r = join(*m, f.n, f.rank, f.device, link)) tell(*link, 0, r);
  std::list<Guest> calls;
  while (link->receive(f, data)) {
    std::lock_guard<std::mutex> l(m->mu);
    if (f.what == Frame::Begin) {
      begin(*m, f.rank, f.kind, f.root);
      continue;
    }
    calls.remove_if([](Guest& g) { return g.call.done; });
    calls.emplace_back();
    Guest& g = calls.back();
    g.call = Call{f.kind, nullptr, nullptr, f.count, f.type, f.op, f.root, f.factor, f.scaled != 0, false, false, nullptr};
    g.in = data;
    g.out.resize(extent(g.call, rank, m->n).out);
    g.call.src = g.in.data();
    g.call.dst = g.out.data();
    Frame answer{};
    answer.what = Frame::Done;
    answer.id = f.id;
    g.call.over = [link, answer, &g] { link->send(answer, g.out.data(), g.out.size()); };
    post(*m, rank, f.number, g.call);
  }
  link->close();
  std::set<Call*> gone;
  for (auto& g : calls) gone.insert(&g.call);
  std::lock_guard<std::mutex> l(m->mu);
  withdraw(*m, gone);
  m->guests.erase(link);
  m->changed.notify_all();
}

uint64_t be_host() {
  static const uint64_t host = [] {
    std::random_device random;
    uint64_t host = (uint64_t)random() << 32 | random() | 1;
    sockaddr_un a;
    socklen_t n = address(a, host);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (sockaddr*)&a, n) || listen(fd, 1024)) return (uint64_t)0;
    spawn([fd] {
      for (;;) {
        int guest = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (guest < 0) {
          if (errno == EINTR || errno == ECONNABORTED) continue;
          return;
        }
        auto link = std::make_shared<Link>(guest);
        spawn([link] { link->write(); });
        spawn([link] { entertain(link); });
      }
    });
    return host;
  }();
  return host;
}

// hear takes what the host of a guest's meeting says.
static void hear(const std::weak_ptr<Meeting>& weak, Link& link) {
  Frame f;
  std::vector<char> data;
  while (link.receive(f, data)) {
    auto m = weak.lock();
    if (!m) return;
    std::lock_guard<std::mutex> l(m->mu);
    if (f.what == Frame::State) {
      m->joined = f.joined;
      m->broken = f.broken;
    } else if (f.what == Frame::Begin) {
      note(*m, f.rank, f.kind, f.root);
    } else {
      auto i = m->away.find(f.id);
      if (i == m->away.end()) continue;  // it has been aborted
      if (!data.empty()) memcpy(i->second->dst, data.data(), data.size());
      i->second->done = true;
      m->away.erase(i);
    }
    m->changed.notify_all();
  }
}

std::shared_ptr<Meeting> visit(uint64_t host, uint64_t number, int n, int rank, int device) {
  sockaddr_un a;
  socklen_t size = address(a, host);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return nullptr;
  auto link = std::make_shared<Link>(fd);
  if (connect(fd, (sockaddr*)&a, size)) return nullptr;
  auto m = std::make_shared<Meeting>();
  m->n = n;
  m->host = link;
  Frame f{};
  f.what = Frame::Hello;
  f.number = number;
  f.n = n;
  f.rank = rank;
  f.device = device;
  link->send(f, nullptr, 0);
  std::weak_ptr<Meeting> weak = m;
  spawn([link] { link->write(); });
  spawn([link, weak] { hear(weak, *link); });
  return m;
}

void send_off(Meeting& m, int rank, uint64_t number, Call& c) {
  Frame f{};
  f.what = Frame::Post;
  f.number = number;
  f.id = ++m.sent;
  f.kind = c.kind;
  f.count = c.n;
  f.type = c.type;
  f.op = c.op;
  f.root = c.root;
  f.scaled = c.scaled;
  f.factor = c.factor;
  m.away[f.id] = &c;
  m.host->send(f, c.src, extent(c, rank, m.n).in);
}
