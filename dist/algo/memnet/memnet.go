package memnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/dist/backend"
)

// large is the size above which a Send waits for its Recv. The contract of backend.Transport allows this.
const large = 64 << 10

// Message is a message at the moment when it is sent.
type Message struct {
	From, To int
	Tag      uint64
	// Step is 1 + the largest Step among the messages that From has received so far, and those that it has sent to the same rank. So it
	// is the length of the longest chain of messages that must arrive one after the other.
	Step  int
	Bytes []byte // the payload
	round int    // the round in which it is sent, see Rounds

	taken chan struct{} // closed by the receiver; nil if the sender does not wait
}

// Net connects n ranks.
type Net struct {
	ranks     []*Rank
	mailboxes [][]chan Message // from, to
	observe   func(m *Message)
	down      chan struct{} // closed when cause is set
	once      sync.Once
	cause     error
}

// New connects n ranks. If observe is not nil, it sees every message before it is sent, on the goroutine of the sender. Messages of one
// rank come in order, those of several ranks at the same time. observe may not keep Bytes, but it may replace them by other bytes of the
// same length.
func New(n int, observe func(m *Message)) *Net {
	net := &Net{mailboxes: make([][]chan Message, n), observe: observe, down: make(chan struct{})}
	for i := range n {
		net.ranks = append(net.ranks, &Rank{net: net, rank: i, sent: make([]int, n), early: make([][]Message, n)})
		net.mailboxes[i] = make([]chan Message, n)
		for j := range n {
			net.mailboxes[i][j] = make(chan Message, backend.Depth)
		}
	}
	return net
}

// Rank returns the transport of rank r.
func (n *Net) Rank(r int) *Rank { return n.ranks[r] }

// Run calls fn for all ranks at the same time and waits for all. After the first error, or the end of ctx, all calls of the other ranks
// fail. Run returns this error.
func (n *Net) Run(ctx context.Context, fn func(t *Rank) error) error {
	defer context.AfterFunc(ctx, func() { n.fail(context.Cause(ctx)) })()
	var wg sync.WaitGroup
	for _, t := range n.ranks {
		wg.Go(func() {
			if err := fn(t); err != nil {
				n.fail(fmt.Errorf("rank %d: %w", t.rank, err))
			}
		})
	}
	wg.Wait()
	select {
	case <-n.down:
		return n.cause
	default:
		return nil
	}
}

func (n *Net) fail(err error) {
	n.once.Do(func() {
		n.cause = err
		close(n.down)
	})
}

// Rounds returns how many rounds the messages since the last call needed, if a rank sends at most one and takes at most one in a round
// (the model of Hockney, and of Thakur, Rabenseifner, Gropp 2005): n−1 if one rank sends to all others, ⌈lg n⌉ in a binomial tree. No
// rank may be in a call.
func (n *Net) Rounds() int {
	most := 0
	for _, t := range n.ranks {
		most = max(most, t.sends, t.takes)
		t.sends, t.takes = 0, 0
	}
	return most
}

// Drained returns an error that names a message that was sent and not received. No rank may be in a call.
func (n *Net) Drained() error {
	for to, t := range n.ranks {
		for from := range n.ranks {
			if left := len(t.early[from]) + len(n.mailboxes[from][to]); left > 0 {
				return fmt.Errorf("rank %d did not ask for %d messages of rank %d", to, left, from)
			}
		}
	}
	return nil
}

// Rank is the backend.Transport of one rank.
type Rank struct {
	net   *Net
	rank  int
	mu    sync.Mutex
	step  int         // the largest Step that it received; guarded by mu
	sent  []int       // the largest Step that it sent to each rank; guarded by mu
	sends int         // the round of the last message that it sent; guarded by mu
	takes int         // the round of the last message that it took; guarded by mu
	early [][]Message // by sender: arrived before their Recv
}

// Rank returns the number of this rank.
func (t *Rank) Rank() int { return t.rank }

// Size returns the number of ranks.
func (t *Rank) Size() int { return len(t.net.ranks) }

var errDown = errors.New("another rank failed")

// put gives a message to peer. If taken is not nil, the sender must wait for it.
func (t *Rank) put(peer int, tag uint64, b []byte) (taken chan struct{}, err error) {
	t.mu.Lock()
	t.sent[peer] = max(t.step, t.sent[peer]) + 1
	t.sends = max(t.sends, t.takes) + 1
	m := Message{From: t.rank, To: peer, Tag: tag, Step: t.sent[peer], Bytes: b, round: t.sends}
	t.mu.Unlock()
	if t.net.observe != nil {
		t.net.observe(&m)
	}
	if len(b) <= large {
		m.Bytes = bytes.Clone(m.Bytes)
	} else {
		m.taken = make(chan struct{})
	}
	select {
	case t.net.mailboxes[t.rank][peer] <- m:
		return m.taken, nil
	case <-t.net.down:
		return nil, errDown
	}
}

func (t *Rank) await(taken chan struct{}) error {
	if taken == nil {
		return nil
	}
	select {
	case <-taken:
		return nil
	case <-t.net.down:
		return errDown
	}
}

// Send is that of backend.Transport.
func (t *Rank) Send(peer int, tag uint64, b []byte) error {
	taken, err := t.put(peer, tag, b)
	if err != nil {
		return err
	}
	return t.await(taken)
}

// next returns the next message of peer with a tag.
func (t *Rank) next(peer int, tag uint64) (Message, error) {
	for i, m := range t.early[peer] {
		if m.Tag == tag {
			t.early[peer] = append(t.early[peer][:i], t.early[peer][i+1:]...)
			return m, nil
		}
	}
	for {
		select {
		case m := <-t.net.mailboxes[peer][t.rank]:
			if m.Tag == tag {
				return m, nil
			}
			t.early[peer] = append(t.early[peer], m)
		case <-t.net.down:
			return Message{}, errDown
		}
	}
}

// Recv is that of backend.Transport.
func (t *Rank) Recv(peer int, tag uint64, b []byte) error {
	m, err := t.next(peer, tag)
	if err != nil {
		return err
	}
	copy(b, m.Bytes)
	t.mu.Lock()
	t.step = max(t.step, m.Step)
	t.takes = max(t.takes+1, m.round)
	t.mu.Unlock()
	if m.taken != nil {
		close(m.taken)
	}
	if len(m.Bytes) != len(b) {
		return fmt.Errorf("rank %d sends %d bytes, rank %d wants %d", peer, len(m.Bytes), t.rank, len(b))
	}
	return nil
}

// Take is that of backend.Transport.
func (t *Rank) Take(peer int, tag uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	err := t.Recv(peer, tag, b)
	if err != nil {
		t.net.fail(fmt.Errorf("rank %d: %w", t.rank, err)) // this rank may be sending, too
	}
	return b, err
}

// SendRecv is that of backend.Transport.
func (t *Rank) SendRecv(to int, out []byte, from int, in []byte, tag uint64) error {
	taken, err := t.put(to, tag, out)
	if err != nil {
		return err
	}
	if err := t.Recv(from, tag, in); err != nil {
		return err
	}
	return t.await(taken)
}
