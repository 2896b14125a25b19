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

// rank is the backend.Virtual of one rank.
type rank struct {
	*group
	number, world int
	inbox
	receivers []*thread // that wait for a message
	posts     []Time    // of Post, without Await
	awaits    *thread
	messages  *algo.Messages // made when first needed
}

var errEnded = errors.New("sim: the simulation has ended")

var _ backend.Virtual = (*rank)(nil)

// Rank returns the rank's number in the group.
func (r *rank) Rank() int { return r.number }

// Size returns the number of ranks in the group.
func (r *rank) Size() int { return len(r.ranks) }

// Send returns when the last byte is on the first link.
func (r *rank) Send(peer int, tag uint64, b []byte) error {
	sent, err := r.send(peer, tag, len(b))
	if err == nil {
		r.net.current().now = sent
	}
	return err
}

// send sends a message, and returns when its last byte is on the first link.
func (r *rank) send(peer int, tag uint64, bytes int) (sent Time, err error) {
	e, t := r.net.engine, r.net.current()
	t.now += r.net.perMessage
	if !e.sync() {
		return 0, errEnded
	}
	to, me, m := r.ranks[peer], sender{r.number, tag}, message{bytes: bytes}
	sent, m.at = r.net.carry(r.world, to.world, bytes)
	for i, other := range to.receivers {
		if other.from == me {
			other.got = m
			to.receivers = slices.Delete(to.receivers, i, i+1)
			e.resume(m.at, other)
			return sent, nil
		}
	}
	to.inbox.put(me, m)
	return sent, nil
}

// Recv returns when the last byte is there.
func (r *rank) Recv(peer int, tag uint64, b []byte) error {
	t, from := r.net.current(), sender{peer, tag}
	if m, ok := r.inbox.take(from); ok {
		t.got, t.now = m, max(t.now, m.at)
	} else {
		t.from, t.waits = from, r
		r.receivers = append(r.receivers, t)
		if !r.net.wait() {
			return errEnded
		}
	}
	if t.got.bytes != len(b) {
		return fmt.Errorf("sim: rank %d sends %d bytes, rank %d wants %d", peer, t.got.bytes, r.number, len(b))
	}
	return nil
}

// misses says what the rank waits for.
func (r *rank) misses() string {
	if len(r.receivers) == 0 {
		return fmt.Sprintf("rank %d waits for another thread", r.number)
	}
	return fmt.Sprintf("rank %d waits for a message of rank %d", r.number, r.receivers[0].from.rank)
}

// Take is Recv.
func (r *rank) Take(peer int, tag uint64, n int) ([]byte, error) {
	b := r.Memory(n)
	return b, r.Recv(peer, tag, b)
}

// SendRecv returns when both are done.
func (r *rank) SendRecv(to int, out []byte, from int, in []byte, tag uint64) error {
	sent, err := r.send(to, tag, len(out))
	if err != nil {
		return err
	}
	err = r.Recv(from, tag, in)
	t := r.net.current()
	t.now = max(t.now, sent)
	return err
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
func (r *rank) Work(n int) { r.net.current().now += of(n, r.net.perByte) }

// Fork runs f as a further thread of this rank.
func (r *rank) Fork(f func() error) (join func() error) {
	e := r.net.engine
	t := e.start(e.current().now, f)
	return func() error {
		me := e.current()
		if !t.over {
			t.joiner, me.waits = me, r
			if !e.wait() {
				return errEnded
			}
		}
		me.now = max(me.now, t.now)
		return t.err
	}
}

// Post lets a call of Await return.
func (r *rank) Post() {
	now := r.net.current().now
	if t := r.awaits; t != nil {
		r.awaits = nil
		r.net.resume(now, t)
		return
	}
	r.posts = append(r.posts, now)
}

// Await waits for a Post.
func (r *rank) Await() bool {
	t := r.net.current()
	if len(r.posts) > 0 {
		t.now = max(t.now, r.posts[0])
		r.posts = r.posts[1:]
		return true
	}
	r.awaits, t.waits = t, r
	return r.net.wait()
}
