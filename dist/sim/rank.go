package sim

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// group is ranks of a job that communicate.
type group struct {
	net   *network
	ranks []*rank
	tuner *algo.Tuner
}

// newGroup returns the group of the ranks with these numbers in the job.
func newGroup(net *network, world []int) *group {
	g, hosts := &group{net: net, ranks: make([]*rank, len(world))}, map[int]int{}
	at := make(algo.Layout, len(world))
	for i, w := range world {
		g.ranks[i] = &rank{group: g, number: i, world: w}
		host, ok := hosts[w/net.plan.top.Host]
		if !ok {
			host = len(hosts)
			hosts[w/net.plan.top.Host] = host
		}
		at[i] = host
	}
	g.tuner = algo.NewTuner(at)
	return g
}

// rank is the backend.Virtual of one rank. Its methods write down what a thread does, and take lets that happen.
type rank struct { // what each message needs comes first
	*group
	number, world int
	path          []hop // of the last message
	to            int   // rank in the job to which that was sent
	receivers     []receiver
	inbox
	posts    []Time // of Post, without Await
	awaits   *thread
	messages *algo.Messages // made when first needed
}

// receiver is a thread that waits for a message.
type receiver struct {
	*thread
	from  sender
	bytes int
}

var errEnded = errors.New("sim: the simulation has ended")

var _ backend.Virtual = (*rank)(nil)

// Rank returns the rank's number in the group.
func (r *rank) Rank() int { return r.number }

// Size returns the number of ranks in the group.
func (r *rank) Size() int { return len(r.ranks) }

// Send returns when the last byte is on the first link.
func (r *rank) Send(peer int, tag uint64, b []byte) error {
	if !r.net.record(r, step{tag, len(b), int32(peer), send}) {
		return errEnded
	}
	return nil
}

// Recv returns when the last byte is there.
func (r *rank) Recv(peer int, tag uint64, b []byte) error {
	if !r.net.record(r, step{tag, len(b), int32(peer), receive}) {
		return errEnded
	}
	return nil
}

// Take is Recv.
func (r *rank) Take(peer int, tag uint64, n int) ([]byte, error) {
	b := r.Memory(n)
	return b, r.Recv(peer, tag, b)
}

// SendRecv returns when both are done.
func (r *rank) SendRecv(to int, out []byte, from int, in []byte, tag uint64) error {
	if err := r.Send(to, tag, out); err != nil {
		return err
	}
	return r.Recv(from, tag, in) // which notices only when a message is there, and not since when it is waited for
}

// nothing is the memory of all ranks. Nobody touches it, so that it takes addresses and no memory.
var nothing struct {
	sync.Mutex
	b []byte
}

// Memory returns bytes that nobody may touch.
func (r *rank) Memory(n int) []byte {
	if n > len(r.net.nothing) {
		nothing.Lock()
		if n > len(nothing.b) {
			nothing.b = make([]byte, n)
		}
		r.net.nothing = nothing.b
		nothing.Unlock()
	}
	return r.net.nothing[:n]
}

// Work takes the time of copying or adding n bytes.
func (r *rank) Work(n int) {
	if r.net.perByte > 0 {
		r.pause(of(n, r.net.perByte))
	}
}

// pause lets a thread do something that nobody notices.
func (r *rank) pause(t Time) { r.net.record(r, step{n: int(t), what: pause}) }

// Fork runs f as a further thread of this rank. An error of f ends the simulation.
func (r *rank) Fork(f func() error) func() error {
	e := r.net.engine
	number := len(e.threads)
	e.thread(f)
	e.record(r, step{n: number, what: fork})
	return func() error {
		if !e.record(r, step{n: number, what: join}) {
			return errEnded
		}
		return nil
	}
}

// Post lets a call of Await return.
func (r *rank) Post() { r.net.record(r, step{what: post}) }

// Await waits for a Post.
func (r *rank) Await() bool { return r.net.record(r, step{what: await}) }

// take takes a step of thread t. It returns false if t goes on later.
func (r *rank) take(t *thread, s *step) bool {
	switch s.what {
	case send:
		return r.send(t, s)
	case receive:
		return r.receive(t, s)
	case pause:
		t.now += Time(s.n)
	case mark:
		r.net.marks[s.n] = max(r.net.marks[s.n], t.now)
	case fork:
		r.net.resume(t.now, r.net.threads[s.n])
	case join:
		child := r.net.threads[s.n]
		if !child.over {
			child.joiners = append(child.joiners, t)
			return false
		}
		t.now = max(t.now, child.now)
	case post:
		if r.awaits == nil {
			r.posts = append(r.posts, t.now)
			break
		}
		r.net.resume(t.now, r.awaits)
		r.awaits = nil
	case await:
		if len(r.posts) == 0 {
			r.awaits = t
			return false
		}
		t.now = max(t.now, r.posts[0])
		r.posts = r.posts[1:]
	}
	return true
}

func (r *rank) send(t *thread, s *step) bool {
	if !t.ready {
		t.now, t.ready = t.now+r.net.perMessage, true
		if !r.net.sync(t) {
			t.done--
			return false
		}
	}
	t.ready = false
	to, me := r.ranks[s.peer], sender{r.number, s.tag}
	if len(r.path) == 0 || r.to != to.world {
		r.path, r.to = r.net.plan.route(r.path[:0], r.world, to.world), to.world
	}
	sent, arrived := r.net.carry(r.path, r.world, to.world, s.n)
	t.now = sent
	for i, x := range to.receivers {
		if x.from == me {
			to.receivers = slices.Delete(to.receivers, i, i+1)
			to.check(me, s.n, x.bytes)
			r.net.resume(arrived, x.thread)
			return true
		}
	}
	to.put(me, message{arrived, s.n})
	return true
}

func (r *rank) receive(t *thread, s *step) bool {
	from := sender{int(s.peer), s.tag}
	m, ok := r.inbox.take(from)
	if !ok {
		r.receivers = append(r.receivers, receiver{t, from, s.n})
		return false
	}
	t.now = max(t.now, m.at)
	r.check(from, m.bytes, s.n)
	return true
}

// check ends the simulation if a message has another length than what is received.
func (r *rank) check(from sender, has, want int) {
	if has != want {
		r.net.err = fmt.Errorf("sim: rank %d sends %d bytes, rank %d wants %d", from.rank, has, r.number, want)
	}
}

// misses says what the rank waits for.
func (r *rank) misses() string {
	if len(r.receivers) == 0 {
		return fmt.Sprintf("rank %d waits for another thread", r.number)
	}
	return fmt.Sprintf("rank %d waits for a message of rank %d", r.number, r.receivers[0].from.rank)
}
