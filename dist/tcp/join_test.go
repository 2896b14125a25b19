package tcp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/ports"
	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestJoinOfOne(t *testing.T) {
	e, err := Join(t.Context(), Config{Size: 1, Secret: testSecret})
	require.NoError(t, err)
	be, err := e.Open(backend.Spec{ID: 1, Name: "world", Ranks: []int{0}})
	require.NoError(t, err)
	x := []float32{1, 2}
	require.NoError(t, do(be, &backend.Op{Kind: backend.AllReduce, Seq: 1, Count: 2, Src: memOf(x), Dst: memOf(x)}))
	assert.Equal(t, []float32{1, 2}, x)
	require.NoError(t, e.Close())
}

func TestWrongConfig(t *testing.T) {
	for _, c := range []struct {
		c    Config
		want string
	}{
		{Config{Rank: 4, Size: 4, Secret: testSecret}, "rank 4 of 4"},
		{Config{Rank: -1, Size: 4, Secret: testSecret}, "rank -1 of 4"},
		{Config{Rank: 0, Size: 2, Addr: "127.0.0.1:0", Secret: []byte("hunter2")}, "7 bytes, need 32"},
		{Config{Rank: 0, Size: 2, Addr: "nonsense", Secret: testSecret}, "nonsense"},
		{Config{Rank: 0, Size: 2, Addr: "192.0.2.1:29500", Secret: testSecret}, "RINGO_BIND"},
	} {
		_, err := Join(t.Context(), c.c)
		assert.ErrorContains(t, err, c.want)
	}
}

// A rank that comes twice, and one of a job of another size, are errors on all ranks.
func TestWrongRankJoins(t *testing.T) {
	for _, c := range []struct {
		row   int
		wrong func(c *Config)
		texts []string
	}{
		{29, func(c *Config) { c.Rank = 1 }, []string{"rank 1 joined twice: host h", "host h1, pid ", "host h2, pid "}},
		{31, func(c *Config) { c.Size = 5 }, []string{"3 (rank 0 (host h0, pid ", "vs 5 (rank 2 (host h2, pid "}},
	} {
		t.Run(c.texts[0], func(t *testing.T) {
			t.Parallel()
			cs := configs(t, 3)
			c.wrong(&cs[2])
			began := time.Now()
			_, errs := joinAll(cs)
			for _, err := range errs {
				for _, text := range c.texts {
					assert.ErrorContains(t, err, text)
				}
			}
			reliability.Took(t, c.row, "tcp", time.Second, time.Since(began))
		})
	}
}

// A rank that gave its handshake up on a busy machine comes again before rank 0 has seen the end of the connection: it is no
// twin of itself.
func TestSameRankComesAgain(t *testing.T) {
	t.Parallel()
	cs := configs(t, 3)
	ended := make(chan error, 1)
	go func() {
		_, err := Join(t.Context(), cs[0])
		ended <- err
	}()
	conf, err := tlsConfig(testSecret, "test")
	require.NoError(t, err)
	me := hello{member: member{Rank: 1, Host: "h1", PID: 1, Addr: "127.0.0.1:1"}, Size: 3}
	for range 3 {
		c, _, err := dialOnce(t.Context(), conf, cs[0].Addr, me)
		require.NoError(t, err)
		defer c.NetConn().Close()
	}
	me.Host = "h2"
	_, _, err = dialOnce(t.Context(), conf, cs[0].Addr, me)
	assert.ErrorContains(t, err, "rank 1 joined twice: host h1, pid 1 and host h2, pid 1")
	assert.ErrorContains(t, <-ended, "joined twice")
}

func TestRankMissing(t *testing.T) {
	t.Parallel()
	cs := configs(t, 4)
	for i := range cs {
		cs[i].JoinTimeout = time.Second
	}
	_, errs := joinAll(cs[:3])
	for _, err := range errs {
		assert.ErrorContains(t, err, "join timed out after 1s: waiting for rank 3 of 4")
	}
}

func TestRankZeroMissing(t *testing.T) {
	t.Parallel()
	c := configs(t, 2)[1]
	c.Addr, c.JoinTimeout = ports.Silent(t), 100*time.Millisecond
	_, err := Join(t.Context(), c)
	assert.ErrorContains(t, err, "rank 1 cannot reach rank 0 at "+c.Addr)
}

func TestOldGenerationMayNotJoin(t *testing.T) {
	t.Parallel()
	cs := configs(t, 2)
	cs[0].Gen, cs[1].Gen = 2, 1
	cs[0].JoinTimeout = time.Second
	_, errs := joinAll(cs)
	assert.ErrorContains(t, errs[0], "waiting for rank 1 of 2")
	assert.ErrorContains(t, errs[1], "generation 1 is over, this is generation 2")
}

func TestJoinEndsWithContext(t *testing.T) {
	cs := configs(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, c := range cs[:2] {
		go func() {
			_, err := Join(ctx, c)
			done <- err
		}()
	}
	cancel()
	for range 2 {
		assert.ErrorIs(t, <-done, context.Canceled)
	}
}

// Rank 0 takes the connection and says nothing: the end of the context closes it in the middle of the handshake.
func TestJoinEndsWithContextInHandshake(t *testing.T) {
	t.Parallel()
	c := configs(t, 2)[1]
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	c.Addr = silent.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Join(ctx, c)
		ended <- err
	}()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	cancel()
	err = <-ended
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "rank 1 cannot reach rank 0 at "+c.Addr)
}

// A rank that dies while others are still missing may come again.
func TestRankComesAgain(t *testing.T) {
	cs := configs(t, 3)
	conf, err := tlsConfig(testSecret, "test")
	require.NoError(t, err)
	joined := joining(t, cs[0])
	knock := func(rank int, host string) *tls.Conn {
		c, zero, err := dialOnce(t.Context(), conf, cs[0].Addr, hello{member: member{Rank: rank, Host: host}, Size: 3})
		require.NoError(t, err, host)
		assert.Equal(t, "h0", zero.Host)
		return c
	}
	require.NoError(t, knock(1, "first").NetConn().Close())
	again, two := knock(1, "again"), knock(2, "two")
	for rank, c := range []*tls.Conn{nil, again, two} {
		if rank == 0 {
			continue
		}
		var table []member
		require.NoError(t, readJSON(c, frameTable, &table))
		require.Len(t, table, 3)
		assert.Equal(t, "again", table[1].Host)
		assert.Equal(t, "two", table[2].Host)
		for _, d := range playData(t, conf, cs[0].Addr, c, hello{member: table[rank], Size: 3}) {
			defer d.NetConn().Close()
		}
	}
	e := joined()
	again.NetConn().Close()
	two.NetConn().Close()
	require.NoError(t, e.Close())
}

// A rank that dies after rank 0 has listed it, when others have yet to meet it, is named by all at once: nobody waits for the
// timeout of the join. Rank 0 is there already and reports it with its first group.
func TestRankDiesWhileOthersMeet(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]int{"the rank to be dialled": 1, "the rank that would dial": 3, "rank 0": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cs := configs(t, 4)
			conf, err := tlsConfig(testSecret, "test")
			require.NoError(t, err)
			addr := ports.Silent(t) // where the rank that dies would be met
			began := time.Now()
			errs := make([]error, 4)
			var wg sync.WaitGroup
			for r := range cs {
				wg.Go(func() {
					if r == dies {
						playDeadRank(t, cs[r], conf, addr)
						return
					}
					e, err := Join(t.Context(), cs[r])
					if err == nil {
						be, oerr := e.Open(backend.Spec{ID: 1, Name: "world", Ranks: []int{0, 1, 2, 3}, Rank: r})
						require.NoError(t, oerr)
						err = do(be, &backend.Op{Kind: backend.Barrier, Seq: 1})
						e.Close()
					}
					errs[r] = err
				})
			}
			wg.Wait()
			for r, err := range errs {
				if r != dies {
					assert.Regexp(t, fmt.Sprintf(`(lost rank|rank) %d .*(lost|EOF|reset)`, dies), fmt.Sprint(err), "rank %d", r)
				}
			}
			assert.Less(t, time.Since(began), time.Second+reliability.Slack)
		})
	}
}

// playDeadRank joins, gets the table (rank 0: sends it) and is gone.
func playDeadRank(t *testing.T, c Config, conf *tls.Config, addr string) {
	if c.Rank == 0 {
		e, err := Join(t.Context(), c)
		require.NoError(t, err)
		kill(e)
		return
	}
	conn, _, err := dialOnce(t.Context(), conf, c.Addr, hello{member: member{Rank: c.Rank, Host: c.Host, Addr: addr}, Size: 4})
	if !assert.NoError(t, err) {
		return
	}
	var table []member
	assert.NoError(t, readJSON(conn, frameTable, &table))
	conn.NetConn().Close()
}

// Port scanners, browsers and thousands of silent connections do not keep the job from forming, nor take its memory.
func TestJobFormsAmongStrangers(t *testing.T) {
	log := captureLog(t)
	silent := 300
	if reliability.Long(t) {
		silent = 4000
	}
	cs := configs(t, 3)
	cmd := exec.Command(os.Args[0], "-test.run=TestHelperSilentConnections$")
	cmd.Env = append(os.Environ(), "RINGO_TEST_CONNECT="+cs[0].Addr, "RINGO_TEST_CONNECTIONS="+strconv.Itoa(silent))
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	first := joining(t, cs[0])
	require.NoError(t, cmd.Start())
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintln(silent, "open"), line)
	web, err := net.Dial("tcp", cs[0].Addr)
	require.NoError(t, err)
	defer web.Close()
	_, err = web.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	require.NoError(t, err)
	require.NoError(t, web.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = io.Copy(io.Discard, web) // until it is shown out, which is after it was logged
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	began := time.Now()
	engines, errs := joinAll(cs[1:])
	e0 := first()
	t.Logf("%d silent connections: job formed after %v", silent, time.Since(began))
	for _, err := range errs {
		require.NoError(t, err)
	}
	reliability.Took(t, 26, "tcp", 5*time.Second, time.Since(began))
	runtime.GC() // what the unauthenticated connections hold, not what they have left behind
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20))
	require.NoError(t, stdin.Close())
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	closeAll(append(engines, e0))
	assert.Equal(t, 1, strings.Count(log.String(), "does not speak TLS"))
}

func TestLongJobFormsAmongStrangers(t *testing.T) { reliability.AsLong(t, TestJobFormsAmongStrangers) }

// TestHelperSilentConnections is another process: it opens connections, says nothing, and ends with its standard input.
func TestHelperSilentConnections(t *testing.T) {
	addr := os.Getenv("RINGO_TEST_CONNECT")
	if addr == "" {
		return // run as a test of its own, there is nothing to do
	}
	n, err := strconv.Atoi(os.Getenv("RINGO_TEST_CONNECTIONS"))
	require.NoError(t, err)
	for range n {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
	}
	fmt.Println(n, "open")
	_, err = os.Stdin.Read(make([]byte, 1))
	assert.Error(t, err)
}

// What rank 0 sends first of all does not overtake the table of ranks.
func TestFirstMessageComesAfterTheTable(t *testing.T) {
	t.Parallel()
	for range rounds(t, 10, 20) {
		cs := configs(t, 2)
		x := [][]float32{{1, 2}, {0, 0}}
		errs := each(2, func(r int) error {
			e, err := Join(context.Background(), cs[r])
			if err != nil {
				return err
			}
			defer e.Close()
			be, err := e.Open(backend.Spec{ID: 1, Name: "pair", Ranks: []int{0, 1}, Rank: r})
			if err != nil {
				return err
			}
			return do(be, &backend.Op{Kind: backend.Send + backend.Kind(r), Seq: 1, Count: 2, Peer: 1 - r, Src: memOf(x[r]), Dst: memOf(x[r])})
		})
		for r, err := range errs {
			require.NoError(t, err, "rank %d", r)
		}
		require.Equal(t, x[0], x[1])
	}
}

func TestLongFirstMessageComesAfterTheTable(t *testing.T) {
	reliability.AsLong(t, TestFirstMessageComesAfterTheTable)
}

// A rank may be done and gone before another one, which it had met, notices its last connection.
func TestRankLeavesAtOnce(t *testing.T) {
	t.Parallel()
	for range rounds(t, 6, 30) {
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for r, c := range configs(t, len(errs)) {
			wg.Go(func() {
				e, err := Join(t.Context(), c)
				if err == nil {
					e.Finish()
					err = e.Close()
				}
				errs[r] = err
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
	}
}

func TestLongRankLeavesAtOnce(t *testing.T) { reliability.AsLong(t, TestRankLeavesAtOnce) }
