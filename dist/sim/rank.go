package sim

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// group is ranks of a job that communicate.
type group struct {
	net    *network
	ranks  []*rank
	tuner  *algo.Tuner
	shared bool // memory
}

// group returns the group of the ranks with these numbers in the job.
func (n *network) group(world []int) *group {
	g, hosts := &group{net: n, ranks: make([]*rank, len(world))}, make([]string, len(world))
	for i, w := range world {
		g.ranks[i] = &rank{group: g, number: i, world: w, boxes: map[sender]*box{}}
		hosts[i] = strconv.Itoa(w / n.plan.top.Host)
	}
	at := algo.LayoutOf(hosts)
	g.tuner, g.shared = algo.NewTuner(at), n.plan.top.Window && at.Hosts() == 1
	return g
}

// rank is the backend.Virtual of one rank. Its methods write down what a thread does, and take lets that happen.
type rank struct { // fields that each message reads come first
	*group
	number, world int
	path          []hop // of the last message
	to            int   // rank in the job to which that was sent
	boxes         map[sender]*box
	box           *box // the last one
}

// sender is from whom a message comes.
type sender struct {
	rank int
	tag  uint64
}

// message is what is there from a time on.
type message struct {
	at    Time
	bytes int
}

// box is the messages of a sender that nobody has asked for yet, or the threads that wait for one.
type box struct {
	from     sender
	messages []message
	taken    int // of the messages, less than half
	waiting  []*thread
}

// manySenders is for how many a rank keeps boxes that are empty. Most ranks hear from few others at a time, a root from all.
const manySenders = 16

var _ backend.Virtual = (*rank)(nil)

// start lets f run as a thread of the rank from the beginning on.
func (r *rank) start(f func() error) { r.net.resume(0, r.net.thread(r, f)) }

// Rank returns the rank's number in the group.
func (r *rank) Rank() int { return r.number }

// Size returns the number of ranks in the group.
func (r *rank) Size() int { return len(r.ranks) }

// Send returns when the last byte is on the first link.
func (r *rank) Send(peer int, tag uint64, b []byte) error {
	r.pause(r.net.perMessage)
	return r.net.record(step{tag, len(b), int32(peer), send})
}

// Recv returns when the last byte is there.
func (r *rank) Recv(peer int, tag uint64, b []byte) error {
	return r.net.record(step{tag, len(b), int32(peer), receive})
}

// Take is Recv.
func (r *rank) Take(peer int, tag uint64, n int) ([]byte, error) {
	b := r.Memory(n)
	return b, r.Recv(peer, tag, b)
}

// SendRecv returns when both are done.
func (r *rank) SendRecv(to int, out []byte, from int, in []byte, tag uint64) error {
	_ = r.Send(to, tag, out)     // Recv has the error, too
	return r.Recv(from, tag, in) // which notices only when a message is there, and not since when it is waited for
}

// nothing is the memory of all ranks. Nobody touches it, so that it takes addresses and no memory.
var nothing atomic.Pointer[[]byte]

// Memory returns bytes that nobody may touch.
func (r *rank) Memory(n int) []byte {
	for {
		b := nothing.Load()
		if b != nil && n <= len(*b) {
			return (*b)[:n]
		}
		more := make([]byte, n)
		nothing.CompareAndSwap(b, &more)
	}
}

// Work takes the time of copying or adding n bytes.
func (r *rank) Work(n int) { r.pause(of(n, r.net.perByte)) }

// pause lets a thread do something that nobody notices.
func (r *rank) pause(t Time) {
	if t > 0 {
		_ = r.net.record(step{n: int(t), what: pause}) // the next step that others notice has the error too
	}
}

// Fork runs f as a further thread of this rank. An error of f ends the simulation.
func (r *rank) Fork(f func() error) func() error {
	number := r.fork(f, -1)
	return func() error { return r.join(number) }
}

// fork is Fork, and returns the number of the thread, which begins when that with another number is over; -1: at once.
func (r *rank) fork(f func() error, after int) (number int) {
	number = len(r.net.threads)
	r.net.thread(r, f)
	_ = r.net.record(step{n: number, peer: int32(after), what: fork})
	return number
}

// join waits for the end of a thread.
func (r *rank) join(number int) error { return r.net.record(step{n: number, what: join}) }

// Post lets a call of Await return: it is a message from the rank to itself.
func (r *rank) Post() { _ = r.net.record(step{peer: int32(r.number), what: post}) }

// Await waits for a Post.
func (r *rank) Await() bool { return r.Recv(r.number, 0, nil) == nil }

// take takes a step of thread t. It returns false if t goes on later.
func (r *rank) take(t *thread, s *step) bool {
	switch s.what {
	case send:
		if !r.net.sync(t) {
			return false
		}
		to := r.ranks[s.peer]
		if len(r.path) == 0 || r.to != to.world {
			r.path, r.to = r.net.plan.route(r.path[:0], r.world, to.world), to.world
		}
		sent, arrived := r.net.carry(r.path, r.world, to.world, s.n)
		t.now = sent
		to.put(sender{r.number, s.tag}, message{arrived, s.n})
	case receive:
		return r.receive(t, sender{int(s.peer), s.tag}, s.n)
	case pause:
		t.now = t.now.plus(Time(s.n))
	case begin:
		r.net.spans[s.n].Start = max(r.net.spans[s.n].Start, t.now)
	case end:
		r.net.spans[s.n].End = max(r.net.spans[s.n].End, t.now)
	case fork:
		child := r.net.threads[s.n]
		child.now = t.now
		if s.peer < 0 || r.net.threads[s.peer].lets(child) {
			r.net.resume(child.now, child)
		}
	case join:
		return r.net.threads[s.n].lets(t)
	case post:
		r.put(sender{rank: r.number}, message{at: t.now})
	}
	return true
}

// open returns the box of a sender.
func (r *rank) open(from sender) *box {
	if r.box == nil || r.box.from != from {
		if r.box = r.boxes[from]; r.box == nil {
			r.box = &box{from: from}
			r.boxes[from] = r.box
		}
	}
	return r.box
}

// put brings a message, and lets a thread that waits for it go on.
func (r *rank) put(from sender, m message) {
	b := r.open(from)
	b.messages = append(b.messages, m)
	if len(b.waiting) > 0 {
		t := b.waiting[0]
		b.waiting = slices.Delete(b.waiting, 0, 1)
		r.receive(t, from, t.steps[t.done-1].n)
		r.net.resume(t.now, t)
	}
}

// receive takes the oldest message of a sender, and ends the simulation if it has another length than what is received. It returns false
// if there is none yet.
func (r *rank) receive(t *thread, from sender, bytes int) bool {
	b := r.open(from)
	if len(b.messages) == 0 {
		b.waiting = append(b.waiting, t)
		return false
	}
	m := b.messages[b.taken]
	if b.taken++; 2*b.taken >= len(b.messages) { // a sender may always be ahead
		b.messages, b.taken = slices.Delete(b.messages, 0, b.taken), 0
	}
	if t.now = max(t.now, m.at); m.bytes != bytes {
		r.net.err = fmt.Errorf("sim: rank %d sends %d bytes, rank %d wants %d", from.rank, m.bytes, r.number, bytes)
	}
	if len(r.boxes) > manySenders && len(b.messages)+len(b.waiting) == 0 {
		delete(r.boxes, from)
		r.box = nil
	}
	return true
}

// misses says what the thread waits for.
func (t *thread) misses() string {
	if s := t.steps[t.done-1]; s.what == receive && int(s.peer) != t.rank.number {
		return fmt.Sprintf("rank %d waits for a message of rank %d", t.rank.number, s.peer)
	}
	return fmt.Sprintf("rank %d waits for another thread", t.rank.number)
}
