package acceptor

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/identity"
	"github.com/ringo-ml/ringo/internal/reliability"
)

func conf(t *testing.T, secret byte) *tls.Config {
	c, err := identity.TLS(bytes.Repeat([]byte{secret}, identity.SecretBytes), "test", "test/1")
	require.NoError(t, err)
	return c
}

// start accepts on 127.0.0.1. A connection sends one byte: with 'y' it enters, with any other it is refused.
func start(t *testing.T, change func(l *net.Listener, c *Config)) (a *Acceptor, entered chan *tls.Conn, log *reliability.Log) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	log, entered = new(reliability.Log), make(chan *tls.Conn, 8)
	c := Config{TLS: conf(t, 1), Where: "in a test", Files: "two", Log: slog.New(slog.NewTextHandler(log, nil)),
		Hello: func(c *tls.Conn) (func(), error) {
			b := make([]byte, 1)
			if _, err := io.ReadFull(c, b); err != nil {
				return nil, err
			}
			if b[0] != 'y' {
				return nil, errors.New("said no hello")
			}
			return func() { entered <- c }, nil
		}}
	if change != nil {
		change(&l, &c)
	}
	a = New(l, c)
	t.Cleanup(a.Close)
	return a, entered, log
}

func dial(t *testing.T, a *Acceptor) net.Conn {
	c, err := net.Dial("tcp", a.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Each kind of refusal is logged once for each address, with its reason. A member of the job enters, and its connection stays.
func TestRefusals(t *testing.T) {
	a, entered, log := start(t, func(_ *net.Listener, c *Config) {
		c.Below = func(c net.Conn) net.Conn { return struct{ net.Conn }{c} } // TLS runs over this connection
	})
	attacks := map[string]func(raw net.Conn){
		"does not speak TLS": func(raw net.Conn) {
			_, err := raw.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			require.NoError(t, err)
		},
		"hung up": func(raw net.Conn) { require.NoError(t, raw.(*net.TCPConn).CloseWrite()) },
		"does not hold this job's secret": func(raw net.Conn) {
			c := tls.Client(raw, conf(t, 2))
			_ = c.Handshake() // either side may notice first
		},
		"said no hello": func(raw net.Conn) {
			_, err := tls.Client(raw, conf(t, 1)).Write([]byte("n"))
			require.NoError(t, err)
		},
	}
	for reason, attack := range attacks {
		for range 2 {
			raw := dial(t, a)
			attack(raw)
			_, _ = io.Copy(io.Discard, raw) // read until it is closed
		}
		require.Eventually(t, func() bool { return strings.Contains(log.String(), reason) }, 10*time.Second, time.Millisecond, reason)
	}
	_, err := tls.Client(dial(t, a), conf(t, 1)).Write([]byte("y"))
	require.NoError(t, err)
	c := <-entered
	assert.IsType(t, struct{ net.Conn }{}, c.NetConn())
	a.Close()
	for reason := range attacks {
		assert.Equal(t, 1, strings.Count(log.String(), reason), "%s", log)
	}
	assert.Equal(t, len(attacks), strings.Count(log.String(), "refused a connection in a test"), "%s", log)
	_, err = c.Write([]byte("z"))
	assert.NoError(t, err, "Close leaves it open")
	require.NoError(t, c.Close())
}

// At most MaxPending connections are unauthenticated; if there are more, the oldest are closed.
func TestPending(t *testing.T) {
	a, _, log := start(t, nil)
	var pending []net.Conn
	for range MaxPending + 3 {
		pending = append(pending, dial(t, a))
	}
	for _, c := range pending[:3] {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(HandshakeTime/2)))
		_, err := c.Read(make([]byte, 1))
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	for _, c := range pending[3:] {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond))) // if it were closed, that would be known by now
		_, err := c.Read(make([]byte, 1))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "was one of more than 64 that sent nothing") }, 10*time.Second,
		time.Millisecond)
}

// Close closes the connections that have not sent their hello, and logs nothing about them.
func TestCloseEndsPending(t *testing.T) {
	reading, ended := make(chan struct{}), make(chan error, 1)
	a, _, log := start(t, func(_ *net.Listener, c *Config) {
		c.Hello = func(c *tls.Conn) (func(), error) {
			close(reading)
			_, err := c.Read(make([]byte, 1))
			ended <- err
			return nil, err
		}
	})
	require.NoError(t, tls.Client(dial(t, a), conf(t, 1)).Handshake())
	<-reading
	a.Close()
	assert.ErrorIs(t, <-ended, net.ErrClosed)
	assert.Empty(t, log.String())
}

// A connection that was refused before Close is logged.
func TestCloseLogsRefusals(t *testing.T) {
	reading, closing := make(chan struct{}), make(chan struct{})
	a, _, log := start(t, func(_ *net.Listener, c *Config) {
		c.Hello = func(c *tls.Conn) (func(), error) {
			close(reading)
			_, _ = c.Read(make([]byte, 1)) // until Close
			<-closing
			return nil, errors.New("said no hello")
		}
	})
	require.NoError(t, tls.Client(dial(t, a), conf(t, 1)).Handshake())
	<-reading
	time.AfterFunc(time.Millisecond, func() { close(closing) })
	a.Close()
	assert.Contains(t, log.String(), "said no hello")
}

// Members that have entered no longer count as pending.
func TestEnteredAreNotPending(t *testing.T) {
	a, entered, log := start(t, nil)
	for range MaxPending + 3 {
		c := tls.Client(dial(t, a), conf(t, 1))
		_, err := c.Write([]byte("y"))
		require.NoError(t, err)
		s := <-entered
		_, err = s.Write([]byte("x"))
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err)
	}
	a.mu.Lock()
	assert.Empty(t, a.pending)
	a.mu.Unlock()
	assert.Empty(t, log.String())
}

// full is a listener of a process that has no descriptors left while it is set.
type full struct {
	net.Listener
	set   atomic.Bool
	calls atomic.Int32
}

func (f *full) Accept() (net.Conn, error) {
	if f.calls.Add(1); f.set.Load() {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: f.Addr(), Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return f.Listener.Accept()
}

// A process without descriptors logs this once, with the limit, and Err returns it as long as it lasts. It accepts again when it has
// descriptors, and ends if it never has any.
func TestOutOfDescriptors(t *testing.T) {
	f := &full{}
	f.set.Store(true)
	a, entered, log := start(t, func(l *net.Listener, _ *Config) { f.Listener, *l = *l, f })
	require.Eventually(t, func() bool { return f.calls.Load() > 3 }, 10*time.Second, time.Millisecond)
	assert.ErrorIs(t, a.Err(), syscall.EMFILE)
	assert.ErrorContains(t, a.Err(), "needed are two")
	f.set.Store(false)
	_, err := tls.Client(dial(t, a), conf(t, 1)).Write([]byte("y"))
	require.NoError(t, err)
	<-entered
	assert.NoError(t, a.Err())
	f.set.Store(true)
	dial(t, a) // ends the waiting call of Accept
	calls := f.calls.Load()
	require.Eventually(t, func() bool { return f.calls.Load() > calls+1 }, 10*time.Second, time.Millisecond)
	a.Close()
	assert.Equal(t, 1, strings.Count(log.String(), "no connection can be accepted in a test"), "%s", log)
}

// Close waits for the functions of connections after their hello.
func TestCloseWaits(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var done atomic.Bool
	a, _, _ := start(t, func(_ *net.Listener, c *Config) {
		c.Hello = func(*tls.Conn) (func(), error) {
			return func() {
				close(began)
				<-goOn
				done.Store(true)
			}, nil
		}
	})
	require.NoError(t, tls.Client(dial(t, a), conf(t, 1)).Handshake())
	<-began
	time.AfterFunc(time.Millisecond, func() { close(goOn) })
	a.Close()
	assert.True(t, done.Load())
}
