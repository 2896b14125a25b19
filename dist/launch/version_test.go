//go:build linux || darwin

package launch

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/identity"
)

// A node of another version is told so at once, not that its secret is wrong.
func TestNodeOfAnotherVersion(t *testing.T) {
	t.Setenv("RINGO_JOB_SECRET", identity.NewSecret())
	old, err := agentTLS()
	require.NoError(t, err)
	old.NextProtos, old.VerifyConnection = []string{"ringo-agent/0"}, nil
	l, err := tls.Listen("tcp", "127.0.0.1:0", old)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.(*tls.Conn).Handshake()
			c.Close()
		}
	}()
	c := Config{Rendezvous: l.Addr().String(), JoinTimeout: 10 * time.Second}
	_, _, err = dial(t.Context(), &c, hello{Node: 1})
	assert.ErrorIs(t, err, identity.ErrVersion)
	assert.NotContains(t, err.Error(), "secret")
	assert.NotContains(t, err.Error(), "cannot join within", "it did not try again")
}
