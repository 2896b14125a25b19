//go:build linux || darwin

package launch

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/identity"
)

// playShow sends two reports and prints a line.
func playShow(env Env) int {
	w, err := ConnectAgent()
	if err != nil || w.Asked() == nil {
		fmt.Println("nobody watches", err)
		return 96
	}
	for n := range 2 {
		<-w.Asked()
		if err := w.Show(fmt.Appendf(nil, `{"report": %d}`, n)); err != nil {
			fmt.Println(err)
			return 95
		}
	}
	<-w.Asked() // the second was taken
	fmt.Println("shown by", env.Rank)
	if env.Rank == 2 {
		return 7
	}
	return 0
}

// heard is a Watcher that writes down what it hears.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) note(format string, a ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, a...))
}

func (h *heard) Started(gen, ranks, local int)      { h.note("%d: %d ranks, %d here", gen, ranks, local) }
func (h *heard) Shown(gen, rank int, report []byte) { h.note("%d: %d shows %s", gen, rank, report) }
func (h *heard) Ended(gen, rank, status int)        { h.note("%d: %d ends with %d", gen, rank, status) }
func (h *heard) Failed(gen, first, last int, text string) {
	h.note("%d: %d to %d: %s", gen, first, last, text)
}
func (h *heard) Printed(gen, rank int, lines []byte) {
	for line := range strings.Lines(string(lines)) {
		h.note("%d: %d prints %q", gen, rank, line)
	}
}

func TestWatch(t *testing.T) {
	c, _ := roleConfig(3, "show")
	h := &heard{}
	c.Watch = h
	require.ErrorContains(t, Run(c), "rank 2")
	assert.Equal(t, "1: 3 ranks, 3 here", h.lines[0])
	for rank := range 3 {
		assert.Contains(t, h.lines, fmt.Sprintf(`1: %d prints "shown by %d\n"`, rank, rank))
		first := slices.Index(h.lines, fmt.Sprintf(`1: %d shows {"report":0}`, rank))
		second := slices.Index(h.lines, fmt.Sprintf(`1: %d shows {"report":1}`, rank))
		assert.True(t, 0 < first && first < second, h.lines)
	}
	lines := slices.DeleteFunc(h.lines, func(line string) bool { return strings.Contains(line, " prints ") }) // may come late
	assert.Regexp(t, `^1: 2 to 2: rank 2 \(pid \d+\) exited with status 7$`, lines[len(lines)-1])
	assert.Contains(t, lines, "1: 0 ends with 0")
	assert.Contains(t, lines, "1: 2 ends with 7")
}

// Reports of other hosts reach host 0, which watches; what they print does not.
func TestWatchNodes(t *testing.T) {
	t.Setenv("RINGO_JOB_SECRET", identity.NewSecret())
	t.Setenv("RINGO_BIND", "")
	rdzv, h := freeAddr(t), &heard{}
	zero := startNode(rdzv, 0, 2, 1, func(c *Config) { c.Watch = h }, "show")
	one := startNode(rdzv, 1, 2, 1, nil, "show")
	require.NoError(t, <-zero.ended)
	require.NoError(t, <-one.ended)
	assert.Equal(t, "1: 2 ranks, 1 here", h.lines[0])
	for _, want := range []string{
		`0 shows {"report":1}`, `1 shows {"report":0}`, `1 shows {"report":1}`, `0 prints "shown by 0\n"`, "1 ends with 0",
	} {
		assert.Contains(t, h.lines, "1: "+want)
	}
	assert.NotContains(t, strings.Join(h.lines, ""), "1 prints")
	assert.Contains(t, one.out.String(), "shown by 1")

	c := Config{Ranks: 1, Args: []string{"x"}, MaxNodes: 2, NodeRank: 1, Rendezvous: rdzv, Watch: h}
	assert.ErrorContains(t, c.Check(), "node 1 cannot watch the job: node 0 does")
}

// An agent that does not read holds nobody up: there is one report at most, for which the socket has room.
func TestSlowAgent(t *testing.T) {
	agent, file, err := socketPair()
	require.NoError(t, err)
	defer agent.Close()
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	file.Close()
	for _, c := range []net.Conn{agent, conn} { // as on macOS
		require.NoError(t, c.(*net.UnixConn).SetReadBuffer(8<<10))
		require.NoError(t, c.(*net.UnixConn).SetWriteBuffer(8<<10))
	}
	setShowBuffers(agent)
	w := newWorker(conn, true)
	defer conn.Close()
	<-w.Asked()
	most := []byte(`"` + strings.Repeat("x", maxShow-2) + `"`)
	require.NoError(t, w.Show(most))
	select {
	case <-w.Asked():
		t.Fatal("asked for a second report before the first was taken")
	default:
	}
	for step := range 100 {
		require.NoError(t, w.Progress(step))
	}
	assert.ErrorContains(t, w.Show(append(most, ' ')), "report of 65537 bytes, want at most 65536")
}

func TestUnwatched(t *testing.T) {
	var none *Worker
	assert.Nil(t, none.Asked())
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() { _ = json.NewDecoder(theirs).Decode(new(message)) }()
	assert.Nil(t, newWorker(ours, false).Asked())
	t.Setenv("RINGO_WATCHED", "1") // of the job that this process belongs to
	a := &agent{config: &Config{Ranks: 1}}
	for _, v := range a.environment() {
		assert.NotContains(t, v, "RINGO_WATCHED")
	}
	a.start.Watch = true
	assert.Contains(t, a.environment(), "RINGO_WATCHED=1")
}

// To a slow peer, what is only shown is dropped; all else arrives.
func TestSlowPeer(t *testing.T) {
	ours, theirs := net.Pipe()
	w := newWire(ours, 0)
	for i := range 5 * maxQueuedShows {
		w.send(note{Show: &shown{Gen: 1, Rank: i, What: json.RawMessage("1")}})
		if i%maxQueuedShows == 0 {
			w.send(note{Notice: fmt.Sprint(i)})
		}
	}
	w.finish()
	peer := newWire(theirs, 0)
	defer peer.finish()
	news, shows := 0, 0
	for {
		n, err := peer.read()
		if err != nil {
			break
		}
		if n.Notice != "" {
			news++
		}
		if n.Show != nil {
			shows++
		}
	}
	assert.Equal(t, 5, news)
	assert.LessOrEqual(t, shows, 2*maxQueuedShows) // those that the writer held, and the queue
	assert.GreaterOrEqual(t, shows, maxQueuedShows-5)
}
