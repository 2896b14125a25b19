package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/identity"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// joinByHand does what Join does on a rank, but what it makes of the table of ranks is up to then.
func joinByHand(t *testing.T, c Config, then func(ctx context.Context, m *rendezvous, zero *link, table []member) error) error {
	require.NoError(t, c.complete())
	conf, err := tlsConfig(c.Secret, c.Job)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), c.JoinTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	e := newEngine(c, member{Rank: c.Rank, Host: c.Host, Machine: "by hand"})
	m := &rendezvous{e: e, conf: conf, cancel: end, changed: make(chan struct{}, 1)}
	e.onLost, e.onReject = m.linkLost, m.fail
	conn, zero, err := dial(ctx, conf, c.Addr, member{}, m.hello(false))
	require.NoError(t, err)
	table, err := m.readTable(ctx, conn)
	require.NoError(t, err)
	err = then(ctx, m, m.addDialed(zero, conn), table)
	e.abandon(m.links(), err)
	return err
}

// Whoever is in the middle cannot read or write, but can lead connections astray: to another rank, which holds the secret too.
// Here rank 3's connections for ranks 1 and 2 end at each other. All ranks get an error, and nobody a rank that is another.
func TestRanksSwappedInTheMiddle(t *testing.T) {
	t.Parallel()
	cs := configs(t, 4)
	errs := make(chan []error, 1)
	go func() {
		engines, all := joinAll(cs[:3])
		for i, e := range engines {
			if e != nil { // it was there already: the first operation fails
				be, err := e.Open(backend.Spec{ID: 1, Name: "world", Ranks: []int{0, 1, 2, 3}, Rank: i})
				if err == nil {
					err = do(be, &backend.Op{Kind: backend.Barrier, Seq: 1})
				}
				all[i] = err
				e.Close()
			}
		}
		errs <- all
	}()
	began := time.Now()
	err := joinByHand(t, cs[3], func(ctx context.Context, m *rendezvous, zero *link, table []member) error {
		table[1].Addr, table[2].Addr = table[2].Addr, table[1].Addr
		return m.connect(ctx, zero, table)
	})
	assert.ErrorContains(t, err, "rank 3 dialed rank 1 (host h1")
	assert.ErrorContains(t, err, "but rank 2 (host h2")
	assert.ErrorContains(t, err, "redirected")
	for r, err := range <-errs {
		assert.ErrorContains(t, err, "rank 3", "rank %d", r)
	}
	assert.Less(t, time.Since(began), 3*time.Second+reliability.Slack)
}

// The others may miss a rank that was misrouted before it has said so itself.
func TestMisroutedAndMissed(t *testing.T) {
	m := &rendezvous{failed: errors.New("rank 3 was lost")}
	misrouted := fmt.Errorf("rank 3 dialed rank 1: %w", errMisrouted)
	assert.Equal(t, misrouted, m.firstFailure(misrouted))
	assert.Equal(t, m.failed, m.firstFailure(net.ErrClosed))
}

// Rank 0, and the far end of a data connection, are known by their rank as well.
func TestWelcomeOfAnotherRank(t *testing.T) {
	t.Parallel()
	conf, err := tlsConfig(testSecret, "test")
	require.NoError(t, err)
	for _, me := range []hello{{member: member{Rank: 3}, Size: 4}, {member: member{Rank: 3}, Size: 4, Data: 1}} {
		addr := welcomeAs(t, conf, 7)
		_, _, err = dial(t.Context(), conf, addr, member{}, me)
		assert.ErrorContains(t, err, "rank 3 dialed rank 0 at "+addr+", but rank 7 answered")
	}
}

// welcomeAs listens, and welcomes one connection as this rank.
func welcomeAs(t *testing.T, conf *tls.Config, rank int) string {
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		var h hello
		if readJSON(c, frameHello, &h) == nil {
			_ = writeJSON(c, frameWelcome, 0, hello{member: member{Rank: rank}, Size: 4})
		}
	}()
	return l.Addr().String()
}

// A rank of another version is told so, at once and on both sides, and nothing of a secret.
func TestAnotherVersion(t *testing.T) {
	log := captureLog(t)
	cs := configs(t, 2)
	joined := joining(t, cs[0])
	old, err := tlsConfig(testSecret, "test")
	require.NoError(t, err)
	old.NextProtos, old.VerifyConnection = []string{"ringo/1"}, nil
	_, _, err = dial(t.Context(), old, cs[0].Addr, member{}, hello{member: member{Rank: 1}, Size: 2})
	assert.ErrorIs(t, err, identity.ErrVersion)
	assert.NotErrorIs(t, err, identity.ErrSecret)
	assert.NotContains(t, err.Error(), "secret")
	e1, err := Join(t.Context(), cs[1])
	require.NoError(t, err)
	closeAll([]*Engine{joined(), e1})
	assert.Contains(t, log.String(), "unsupported application protocols")
	assert.NotContains(t, log.String(), "secret")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = tls.Server(c, old).Handshake()
			c.Close()
		}
	}()
	_, err = Join(t.Context(),
		Config{Rank: 1, Size: 2, Addr: l.Addr().String(), Secret: testSecret, Job: "test", JoinTimeout: 10 * time.Second})
	assert.ErrorIs(t, err, identity.ErrVersion)
	assert.NotContains(t, err.Error(), "secret")
}
