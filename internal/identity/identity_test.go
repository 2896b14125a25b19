package identity

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// handshake does a TLS handshake between two members, and returns the errors of both.
func handshake(t *testing.T, server, client *tls.Config) error {
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	defer l.Close()
	refused := make(chan error, 1)
	go func() {
		c, err := tls.Dial("tcp", l.Addr().String(), client)
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // the server's alert
			c.Close()
		}
		refused <- err
	}()
	c, err := l.Accept()
	require.NoError(t, err)
	err = c.(*tls.Conn).Handshake()
	if err == nil {
		_, err = c.Write([]byte{1})
	}
	c.Close()
	return errors.Join(err, <-refused)
}

func TestTLS(t *testing.T) {
	secret := bytes.Repeat([]byte{1}, SecretBytes)
	conf := func(secret []byte, job, protocol string) *tls.Config {
		c, err := TLS(secret, job, protocol)
		require.NoError(t, err)
		return c
	}
	member := conf(secret, "job", "p")
	assert.NoError(t, handshake(t, member, conf(secret, "job", "p")))
	assert.ErrorIs(t, handshake(t, member, conf(bytes.Repeat([]byte{2}, SecretBytes), "job", "p")), ErrSecret)
	assert.ErrorIs(t, handshake(t, member, conf(secret, "another", "p")), ErrSecret)
	other := handshake(t, member, conf(secret, "job", "q"))
	assert.ErrorContains(t, other, "protocol")
	assert.NotErrorIs(t, other, ErrSecret)
	silent := conf(secret, "job", "p")
	silent.NextProtos = nil
	other = handshake(t, member, silent)
	assert.ErrorIs(t, other, ErrVersion)
	assert.NotErrorIs(t, other, ErrSecret)
	nobody := conf(secret, "job", "p")
	nobody.Certificates = nil
	assert.Error(t, handshake(t, member, nobody))
	_, err := TLS(secret[1:], "job", "p")
	assert.ErrorContains(t, err, "31 bytes, need 32")
}

func TestSecret(t *testing.T) {
	s := NewSecret()
	b, err := ParseSecret(s)
	require.NoError(t, err)
	assert.Len(t, b, SecretBytes)
	assert.NotEqual(t, s, NewSecret())
	for bad, want := range map[string]string{"hunter2": "7 bytes, need 32", "": "0 bytes", s[2:]: "31 bytes", "x" + s[1:]: "not hexadecimal"} {
		_, err := ParseSecret(bad)
		assert.ErrorContains(t, err, want)
	}
}

// If the server refuses, the client gets an alert. The error is the same on both sides.
func TestExplain(t *testing.T) {
	secret := bytes.Repeat([]byte{1}, SecretBytes)
	for want, client := range map[error][2]string{ErrSecret: {"another", "p"}, ErrVersion: {"job", "q"}} {
		server, err := TLS(secret, "job", "p")
		require.NoError(t, err)
		conf, err := TLS(secret, client[0], client[1])
		require.NoError(t, err)
		conf.VerifyConnection = nil // otherwise the client notices first
		l, err := tls.Listen("tcp", "127.0.0.1:0", server)
		require.NoError(t, err)
		go func() {
			if c, err := l.Accept(); err == nil {
				_ = c.(*tls.Conn).Handshake()
				c.Close()
			}
		}()
		c, err := tls.Dial("tcp", l.Addr().String(), conf)
		if err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		l.Close()
		assert.NotErrorIs(t, err, want)
		assert.ErrorIs(t, Explain(err), want, "%v", err)
		assert.True(t, Refused(Explain(err)))
	}
	assert.False(t, Refused(Explain(io.EOF)))
	assert.Equal(t, io.EOF, Explain(io.EOF))
}
