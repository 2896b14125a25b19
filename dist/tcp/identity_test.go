package tcp

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestSecret(t *testing.T) {
	s := NewSecret()
	b, err := ParseSecret(s)
	require.NoError(t, err)
	assert.Equal(t, s, hexOf(b))
	assert.NotEqual(t, s, NewSecret())
	for _, short := range []string{"hunter2", "00112233445566"} {
		_, err = ParseSecret(short)
		assert.ErrorContains(t, err, "7 bytes, need 32")
	}
	for _, n := range []int{32, 64} {
		_, err = ParseSecret(strings.Repeat("x", n))
		assert.ErrorContains(t, err, "not hexadecimal")
	}
	_, err = ParseSecret("")
	assert.ErrorContains(t, err, "0 bytes, need 32")
	_, err = tlsConfig([]byte("hunter2"), "job")
	assert.ErrorContains(t, err, "7 bytes, need 32")
}

func captureLog(t *testing.T) *reliability.Log {
	j, old := new(reliability.Log), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(j, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	return j
}

// unauthenticated are TLS settings that must not get in.
func unauthenticated(t *testing.T) map[string]*tls.Config {
	good, err := tlsConfig(testSecret, "test")
	require.NoError(t, err)
	bad, err := tlsConfig(bytes.Repeat([]byte{2}, SecretBytes), "test")
	require.NoError(t, err)
	job, err := tlsConfig(testSecret, "another job")
	require.NoError(t, err)
	change := func(c *tls.Config, f func(*tls.Config)) *tls.Config {
		c = c.Clone()
		c.VerifyConnection = nil // an unauthenticated connection does not care who we are
		f(c)
		return c
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return map[string]*tls.Config{
		"wrong secret": change(bad, func(*tls.Config) {}),
		"another job":  change(job, func(*tls.Config) {}),
		"no certificate": change(good, func(c *tls.Config) {
			c.Certificates = nil
		}),
		"TLS 1.2": change(good, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }),
		"no protocol": change(good, func(c *tls.Config) {
			c.NextProtos = nil
		}),
		"our certificate, another key": change(good, func(c *tls.Config) {
			c.Certificates = []tls.Certificate{{Certificate: good.Certificates[0].Certificate, PrivateKey: key}}
		}),
	}
}

// Unauthenticated connections are refused without a byte of payload, and logged; then the job forms.
func TestStrangersAreRefused(t *testing.T) {
	log := captureLog(t)
	cs := configs(t, 2)
	joined := joining(t, cs[0])
	for name, conf := range unauthenticated(t) {
		began := time.Now()
		raw, err := net.Dial("tcp", cs[0].Addr)
		require.NoError(t, err)
		raw.SetDeadline(time.Now().Add(5 * time.Second))
		c := tls.Client(raw, conf)
		payload := 0
		if err = c.Handshake(); err == nil { // in TLS 1.3 the client is done before the server has looked at it
			_ = writeJSON(c, frameHello, 0, hello{member: member{Rank: 1}, Size: 2}) // may be refused already
			payload, _ = c.Read(make([]byte, 1024))
		} else {
			assert.Contains(t, []string{"TLS 1.2", "no certificate", "no protocol", "our certificate, another key"}, name, "%v", err)
		}
		assert.Zero(t, payload, name)
		assert.Less(t, time.Since(began), reliability.Slack, name)
		raw.Close()
	}
	e1, err := Join(t.Context(), cs[1])
	require.NoError(t, err)
	closeAll([]*Engine{joined(), e1})
	assert.Contains(t, log.String(), "does not hold this job's secret")
	assert.Contains(t, log.String(), "address=127.0.0.1:")
	assert.Equal(t, 1, strings.Count(log.String(), "does not hold this job's secret"), "logged once per host and reason:\n%s", log)
}

// A rank with another secret says so at once, and does not disturb the job.
func TestRankWithWrongSecret(t *testing.T) {
	captureLog(t)
	cs := configs(t, 2)
	wrong := cs[1]
	wrong.Secret = bytes.Repeat([]byte{3}, SecretBytes)
	joined := joining(t, cs[0])
	began := time.Now()
	_, err := Join(t.Context(), wrong)
	assert.ErrorContains(t, err, "does not hold this job's secret")
	assert.ErrorContains(t, err, cs[0].Addr)
	reliability.Took(t, 25, "tcp", 50*time.Millisecond, time.Since(began))
	e1, err := Join(t.Context(), cs[1])
	require.NoError(t, err)
	closeAll([]*Engine{joined(), e1})
}

// An impostor that listens on rank 0's port gets nothing from a rank.
func TestImpostorListener(t *testing.T) {
	t.Parallel()
	for name, conf := range unauthenticated(t) {
		if name == "no certificate" {
			continue // a TLS server cannot be without
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			comesToImpostor(t, conf)
		})
	}
}

// comesToImpostor joins a job whose rank 0 is an impostor.
func comesToImpostor(t *testing.T, conf *tls.Config) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conf.ClientAuth = tls.NoClientCert
	got := make(chan int, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			got <- -1
			return
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(5 * time.Second))
		n, _ := tls.Server(raw, conf).Read(make([]byte, 1024))
		got <- n
	}()
	c := Config{Rank: 1, Size: 2, Addr: l.Addr().String(), Secret: testSecret, Job: "test", JoinTimeout: time.Second}
	_, err = Join(t.Context(), c)
	assert.Error(t, err)
	assert.Zero(t, <-got)
	l.Close()
}
