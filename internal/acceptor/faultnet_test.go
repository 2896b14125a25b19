package acceptor_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/faultnet"
)

// through writes three words into a connection with a fault and returns what comes out.
func through(t *testing.T, kind faultnet.Kind, at int) (string, error) {
	a, b := faultnet.Pair(faultnet.Plan{Seed: 3, Fault: &faultnet.Fault{Kind: kind, At: at}}, faultnet.Plan{})
	for _, word := range []string{"one ", "two ", "three"} {
		if _, err := a.Write([]byte(word)); err != nil {
			require.Equal(t, faultnet.Cut, kind)
		}
	}
	a.Close()
	require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Hour)))
	out, err := io.ReadAll(b)
	b.Close()
	return string(out), err
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		kind faultnet.Kind
		want string
		err  error
	}{
		{faultnet.Drop, "one three", nil},
		{faultnet.Duplicate, "one two two three", nil},
		{faultnet.Swap, "one threetwo ", nil},
		{faultnet.Cut, "", syscall.ECONNRESET},
		{faultnet.Mute, "one ", os.ErrDeadlineExceeded},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := through(t, c.kind, 1)
				assert.Equal(t, c.want, got)
				assert.ErrorIs(t, err, c.err)
			})
		})
	}
	first, err := through(t, faultnet.Corrupt, 1)
	require.NoError(t, err)
	again, _ := through(t, faultnet.Corrupt, 1)
	assert.Equal(t, first, again, "the same seed")
	assert.NotEqual(t, "one two three", first)
	assert.Len(t, first, len("one two three"))
}

// A full buffer holds the writer up; delays keep the order and take the time they say.
func TestBufferAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := faultnet.Pair(faultnet.Plan{Seed: 1, Delay: time.Second, Buffer: 10}, faultnet.Plan{})
		began := time.Now()
		go func() {
			for i := range byte(100) {
				_, _ = a.Write([]byte{i, i, i, i})
			}
			a.Close()
		}()
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		var want []byte
		for i := range byte(100) {
			want = append(want, i, i, i, i)
		}
		assert.True(t, bytes.Equal(want, got))
		took := time.Since(began)
		assert.Greater(t, took, 2*time.Second, "a dozen delays, three at a time at most")
		assert.Less(t, took, 30*time.Second)
		require.NoError(t, a.SetDeadline(time.Now()))
		_, err = a.Write(nil)
		assert.ErrorIs(t, err, net.ErrClosed)
	})
}

// Closing with something unread takes from the peer what it has not read.
func TestResetLosesData(t *testing.T) {
	a, b := faultnet.Pair(faultnet.Plan{}, faultnet.Plan{})
	_, err := a.Write([]byte("last words"))
	require.NoError(t, err)
	_, err = b.Write([]byte("unread"))
	require.NoError(t, err)
	require.NoError(t, a.Close())
	_, err = b.Read(make([]byte, 10))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = b.Write([]byte("x"))
	assert.Error(t, err)
}
