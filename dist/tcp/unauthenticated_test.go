package tcp

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/ports"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// attackers is how many unauthenticated connections are at it at the same time.
const attackers = 16

// attacks is how many times unauthenticated connections connect.
func attacks(t *testing.T) int {
	if s := os.Getenv("RINGO_STRANGERS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		return n
	}
	if reliability.Long(t) {
		return 5000
	}
	return 400
}

// Unauthenticated connections hammer on every address that the job has ever used, while its ranks meet and while it computes: it computes
// the right thing, and they get nothing. Half of them come before the last rank, when doors are open.
func TestStrangersDuringJob(t *testing.T) {
	captureLog(t)
	const n = 3
	cs, total := configs(t, n), attacks(t)
	port := ports.Free(t, 1) // where rank 1 will be met
	cs[1].Ports = [2]int{port, port}
	for r := range cs {
		cs[r].JoinTimeout = 5 * time.Minute
	}
	crowd := &crowd{targets: []string{cs[0].Addr, fmt.Sprintf("127.0.0.1:%d", port)}, kinds: attackKinds(t)}
	engines, errs := make([]*Engine, n), make([]error, n)
	var joining sync.WaitGroup
	for r := range n - 1 {
		joining.Go(func() { engines[r], errs[r] = Join(t.Context(), cs[r]) })
	}
	crowd.attack(0, total/2)
	var last sync.WaitGroup
	last.Go(func() { crowd.attack(total/2, total) })
	engines[n-1], errs[n-1] = Join(t.Context(), cs[n-1])
	joining.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	defer closeAll(engines)
	var over atomic.Bool
	go func() { last.Wait(); over.Store(true) }()
	steps := computeUntil(t, open(t, engines, "world"), &over)
	assert.Zero(t, crowd.leaked.Load(), "bytes that a stranger got after its handshake")
	t.Logf("%d connections, %d of them made; %d steps of the job", total, crowd.made.Load(), steps)
	assert.Positive(t, steps)
	assert.Greater(t, int(crowd.made.Load()), total/4)
}

func TestLongStrangersDuringJob(t *testing.T) { reliability.AsLong(t, TestStrangersDuringJob) }

// computeUntil all-reduces and checks every result until over.
func computeUntil(t *testing.T, be []backend.Backend, over *atomic.Bool) int {
	n := len(be)
	var steps int
	for r, err := range each(n, func(r int) error {
		for seq := uint64(1); ; seq++ {
			x := make([]float32, 1+seq%40_000)
			for i := range x {
				x[i] = float32(r + i%7)
			}
			if r == 0 && over.Load() {
				x[0] = -1000 // the last step: everyone sees it in the sum
			}
			op := sumOp(x)
			op.Seq = seq
			if err := do(be[r], &op); err != nil {
				return err
			}
			for i, v := range x {
				if i > 0 && v != float32(n*(i%7)+n*(n-1)/2) {
					return fmt.Errorf("step %d: element %d is %v", seq, i, v)
				}
			}
			if x[0] < 0 {
				if r == 0 {
					steps = int(seq)
				}
				return nil
			}
		}
	}) {
		require.NoError(t, err, "rank %d", r)
	}
	return steps
}

// crowd is unauthenticated connections.
type crowd struct {
	targets []string
	kinds   []func(rng *rand.Rand, c net.Conn) int // they return the bytes of payload that they got
	made    atomic.Int64
	leaked  atomic.Int64
}

// attack connects, numbers from to to.
func (w *crowd) attack(from, to int) {
	var next atomic.Int64
	next.Store(int64(from))
	var wg sync.WaitGroup
	for range attackers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(to); i = next.Add(1) - 1 {
				rng := rand.New(rand.NewPCG(uint64(i), 3))
				c, err := net.Dial("tcp", w.targets[rng.IntN(len(w.targets))])
				if err != nil {
					continue // nobody listens any more
				}
				w.made.Add(1)
				c.SetDeadline(time.Now().Add(20 * time.Millisecond))
				w.leaked.Add(int64(w.kinds[int(i)%len(w.kinds)](rng, c)))
				c.Close()
			}
		})
	}
	wg.Wait()
}

func attackKinds(t *testing.T) []func(rng *rand.Rand, c net.Conn) int {
	kinds := []func(rng *rand.Rand, c net.Conn) int{
		func(rng *rand.Rand, c net.Conn) int { return talk(c, randomBytes(rng)) },
		func(_ *rand.Rand, c net.Conn) int { return talk(c, []byte("GET / HTTP/1.1\r\nHost: ringo\r\n\r\n")) },
		func(rng *rand.Rand, c net.Conn) int { return talk(c, garbage(rng)) }, // a frame in plain
		func(rng *rand.Rand, c net.Conn) int { // a record of TLS that is none
			return talk(c, append([]byte{22, 3, 1, byte(rng.Uint32()), byte(rng.Uint32())}, randomBytes(rng)...))
		},
		func(_ *rand.Rand, c net.Conn) int { // slow
			for _, b := range []byte{22, 3, 1, 2, 0} {
				if talk(c, []byte{b}); c.SetDeadline(time.Now().Add(5*time.Millisecond)) != nil {
					return 0
				}
			}
			return 0
		},
		func(_ *rand.Rand, c net.Conn) int { c.(*net.TCPConn).SetLinger(0); return 0 }, // a reset
	}
	for _, conf := range unauthenticated(t) {
		kinds = append(kinds, func(_ *rand.Rand, c net.Conn) int {
			c.SetDeadline(time.Now().Add(time.Second))
			s := tls.Client(c, conf)
			if s.Handshake() != nil {
				return 0
			}
			_ = writeJSON(s, frameHello, 0, hello{member: member{Rank: 2}, Size: 3}) // may be refused already
			got, _ := s.Read(make([]byte, 1024))
			return got
		})
	}
	return kinds
}

func randomBytes(rng *rand.Rand) []byte {
	b := make([]byte, rng.IntN(4096))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// talk says b and waits for an answer that is no alert of TLS, and so none that anyone should get.
func talk(c net.Conn, b []byte) int {
	if _, err := c.Write(b); err != nil {
		return 0
	}
	in := make([]byte, 1024)
	n, err := c.Read(in)
	if err != nil || in[0] == 21 || in[0] == 22 { // an alert, or a handshake that goes no further
		return 0
	}
	return n
}
