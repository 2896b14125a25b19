package launch

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Take returns the secret each time, and whoever looks into the environment after it finds none. Without a launcher it stays, for
// the jobs that this process may start.
func TestTake(t *testing.T) {
	const name = "RINGO_JOB_SECRET"
	defer func() { takenSecret.secret = "" }()
	t.Setenv(name, "the secret")
	e, err := Take("")
	require.NoError(t, err)
	require.Empty(t, e.Source)
	assert.Equal(t, "the secret", os.Getenv(name))
	for k, v := range vars("RINGO_RANK=1 RINGO_WORLD_SIZE=2 RINGO_MASTER=127.0.0.1:9") {
		t.Setenv(k, v)
	}
	for range 2 {
		e, err = Take("")
		require.NoError(t, err)
		assert.Equal(t, "the secret", e.Secret)
		_, there := os.LookupEnv(name)
		assert.False(t, there)
	}
	t.Setenv(name, "another job's")
	e, err = Take("")
	require.NoError(t, err)
	assert.Equal(t, "another job's", e.Secret)
}
