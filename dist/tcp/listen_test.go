package tcp

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/ports"
)

// Ranks listen within the range, beside ports that others have; when it is used up, the error names it.
func TestPortRange(t *testing.T) {
	t.Parallel()
	lo := ports.Free(t, 3)
	busy, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lo+1))
	require.NoError(t, err)
	defer busy.Close()
	var addrs []string
	for range 2 {
		c := Config{Rank: 1, Size: 4, Bind: "127.0.0.1", Ports: [2]int{lo, lo + 2}}
		l, err := c.listenAny()
		require.NoError(t, err)
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	assert.Equal(t, []string{fmt.Sprintf("127.0.0.1:%d", lo), fmt.Sprintf("127.0.0.1:%d", lo+2)}, addrs)
	cs := configs(t, 2)
	cs[1].Ports, cs[1].JoinTimeout, cs[0].JoinTimeout = [2]int{lo, lo + 2}, time.Second, 200*time.Millisecond
	_, errs := joinAll(cs)
	assert.ErrorContains(t, errs[1], fmt.Sprintf("rank 1: no free port from %d to %d, widen RINGO_PORTS", lo, lo+2))
}

// The interface towards rank 0, over IPv4 and IPv6; nobody hears of an address that means all of them.
func TestBind(t *testing.T) {
	for _, c := range []struct{ bind, addr, want string }{
		{"", "127.0.0.1:1", "127.0.0.1"}, {"", "[::1]:1", "::1"}, {"", "10.1.2.3:1", "127.0.0.1"}, {"auto", "127.0.0.5:1", "127.0.0.1"},
		{"auto", "[::1]:1", "::1"}, {"10.9.8.7", "127.0.0.1:1", "10.9.8.7"},
	} {
		cfg := Config{Bind: c.bind, Addr: c.addr}
		if err := cfg.bind(); c.want == "::1" && err != nil {
			t.Log("no IPv6 here:", err)
			continue
		}
		assert.Equal(t, c.want, cfg.Bind, "%v", c)
	}
	cfg := Config{Rank: 3, Bind: "auto", Addr: "no such host:1"}
	assert.ErrorContains(t, cfg.bind(), "rank 3 finds no interface towards rank 0 at no such host:1")
	for _, any := range []string{"0.0.0.0", "::"} {
		engines := start(t, 3, func(c *Config) { c.Bind = any })
		for _, l := range engines[2].links[:2] {
			if l.peer.Rank == 0 {
				continue
			}
			host, _, err := net.SplitHostPort(l.peer.Addr)
			require.NoError(t, err)
			assert.False(t, net.ParseIP(host).IsUnspecified(), "rank 2 was told to dial %s", l.peer.Addr)
		}
	}
}

// A job over several hosts in which rank 0 listens for its own host only: rank 0 says so at once where its name tells, and who waits
// in vain hears what to set.
func TestBindByName(t *testing.T) {
	t.Parallel()
	hosts := map[string][]string{"node0": {"10.1.2.3"}, "debian": {"127.0.1.1"}}
	zero := Config{Size: 2, Secret: testSecret, Job: "test", JoinTimeout: 500 * time.Millisecond, NoShared: true,
		lookup: func(_ context.Context, host string) ([]string, error) {
			if a := hosts[host]; a != nil {
				return a, nil
			}
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}}
	for host, want := range map[string]string{
		"node0":     "tcp: rank 0 is to be reached at node0:%d, but listens on 127.0.0.1 only: set RINGO_BIND",
		"debian":    "waiting for rank 1 of 2: rank 0 listens on 127.0.0.1 only, though it is to be reached at debian:%d: set RINGO_BIND on it if",
		"unknown":   "though it is to be reached at unknown:%d: set RINGO_BIND",
		"localhost": "waiting for rank 1 of 2", "127.0.0.1": "waiting for rank 1 of 2",
	} {
		port := ports.Free(t, 1)
		c := zero
		c.Addr = net.JoinHostPort(host, strconv.Itoa(port))
		_, err := Join(t.Context(), c)
		if strings.Contains(want, "%d") {
			want = fmt.Sprintf(want, port)
		} else {
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "RINGO_BIND")
		}
		assert.ErrorContains(t, err, want)
	}
}

// What a rank that dialed in vain is told.
func TestUnreached(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	me, other, near := member{Rank: 2, Machine: "a"}, member{Rank: 1, Machine: "b"}, member{Rank: 1, Machine: "a"}
	const bind, zero = "it listens for its own host only, which is another one: set RINGO_BIND=auto on it",
		"without RINGO_BIND=auto, rank 0 listens for its own host only"
	for _, c := range []struct {
		err  error
		to   member
		addr string
		want string
	}{
		{refused, member{}, "host0:29400", zero}, {refused, member{}, "10.1.2.3:29400", zero}, {refused, member{}, "localhost:29400", ""},
		{refused, member{}, "127.0.0.1:29400", ""}, {net.ErrClosed, member{}, "host0:29400", ""},
		{refused, other, "127.0.0.1:5", bind}, {refused, other, "[::1]:5", bind}, {refused, near, "127.0.0.1:5", ""},
		{refused, other, "10.1.2.3:5", ""},
	} {
		err := explainUnreached(c.err, me, c.to, c.addr)
		assert.ErrorIs(t, err, c.err)
		assert.Equal(t, c.want, strings.TrimPrefix(strings.TrimPrefix(err.Error(), c.err.Error()), ": "), "%v", c)
	}
}

func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here: ", err)
	}
	cs := configs(t, 3)
	for r := range cs {
		cs[r].Addr = l.Addr().String()
	}
	cs[0].Listener = l
	engines, errs := joinAll(cs)
	for _, err := range errs {
		require.NoError(t, err)
	}
	defer closeAll(engines)
	be := open(t, engines, "world")
	for r, err := range each(3, func(r int) error { return do(be[r], &backend.Op{Kind: backend.Barrier, Seq: 1}) }) {
		require.NoError(t, err, "rank %d", r)
	}
	assert.Contains(t, engines[2].links[1].peer.Addr, "[::1]:")
}

// Ranks that disagree about encryption say so.
func TestEncryptionMustAgree(t *testing.T) {
	cs := configs(t, 2)
	cs[1].Plain = true
	_, errs := joinAll(cs)
	for r, err := range errs {
		assert.ErrorContains(t, err, "ranks disagree about encryption: on (rank 0", "rank %d", r)
		assert.ErrorContains(t, err, "vs off (rank 1", "rank %d", r)
		assert.ErrorContains(t, err, "RINGO_ENCRYPT", "rank %d", r)
	}
}
