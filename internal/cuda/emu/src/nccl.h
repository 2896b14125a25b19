// Inside the emulated NCCL: what meets in a communicator, and arithmetic.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>
#define API extern "C" __attribute__((visibility("default")))

typedef int Result;
enum : Result { Ok = 0, CudaError = 1, SystemError = 2, InternalError = 3, InvalidArgument = 4, InvalidUsage = 5, RemoteError = 6 };
enum Type { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, NumTypes };
enum Op { Sum, Prod, Max, Min, Avg, FirstCustom };
enum Kind { AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, AllToAll, Send, Recv };

// Call is one operation as a rank gave it.
struct Call {
  Kind kind;
  const char* src;
  char* dst;
  size_t n;
  int type, op, root;  // root: also the peer of Send and Recv
  double factor;       // of PreMulSum
  bool scaled, hangs, done;
  std::function<void()> over;  // called when it is done, if there is one; with the lock held
  bool lost = false;           // it hangs as its communicator fails
  bool stuck = false;          // the host hangs in it
};

// Extent is how many bytes a call reads and writes.
struct Extent { size_t in, out; };
Extent extent(const Call&, int rank, int ranks);

struct Link;  // to another process
void hang_up(Link&);

// Meeting is the ranks of a communicator. One lock guards everything; data is
// moved by the last rank to come, with the lock held.
struct Meeting {
  int n = 0, joined = 0;
  std::mutex mu;
  std::condition_variable changed;
  std::vector<int> devices;
  std::set<int> ranks;
  Result broken = Ok;  // why it never comes about
  std::map<uint64_t, std::vector<Call*>> steps;             // collectives by number
  std::map<std::pair<int, int>, std::vector<Call*>> sends, recvs;  // from, to: those that wait
  std::set<int> connected;  // ranks that have begun their first collective
  std::set<std::pair<int, int>> senders, receivers;  // from, to: those that have begun their first message
  std::set<std::shared_ptr<Link>> guests;  // ranks of other processes

  // Of a guest, for which this is only what its host has told:
  std::shared_ptr<Link> host;
  uint64_t sent = 0;
  std::map<uint64_t, Call*> away;  // calls at the host

  ~Meeting() { if (host) hang_up(*host); }
};

extern std::atomic<uint64_t> moved;  // bytes of messages between different ranks
size_t type_size(int type);
// half_value is a bfloat16 or float16 number.
double half_value(uint16_t bits, bool brain);
// post shows a call to the others; with the lock held. Calls that do not match
// wait for ever, as the real ones do.
void post(Meeting&, int rank, uint64_t number, Call&);
// withdraw takes the calls of an aborted rank back; with the lock held.
void withdraw(Meeting&, const std::set<Call*>&);

// meeting_of is the meeting of an id of this process.
std::shared_ptr<Meeting> meeting_of(uint64_t number);
// join adds a rank, of another process if there is a link.
Result join(Meeting&, int n, int rank, int device, std::shared_ptr<Link>);
// tell says to a guest how many ranks there are.
void tell(Link&, int joined, Result broken);
// be_host lets others find this process, by the number returned; 0 is a failure.
uint64_t be_host();
// visit is the meeting of another process for a rank of this one, or null.
std::shared_ptr<Meeting> visit(uint64_t host, uint64_t number, int n, int rank, int device);
// begin notes that a rank has come to a kind of operation (with a peer), and tells the other
// processes; with the lock held.
void begin(Meeting&, int rank, Kind, int peer);
// send_off is post for a guest.
void send_off(Meeting&, int rank, uint64_t number, Call&);
