package shm

import (
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// doorOf returns the door of rank 1 of 3.
func doorOf(t *testing.T, change func(c *Config)) *Door {
	c := Config{Rank: 1, Size: 3, Secret: []byte("secret"), Job: "test", Gen: 4}
	if change != nil {
		change(&c)
	}
	d, err := Listen(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// tryHello says at d's door to be a rank, and returns how many bytes the door says: a greeting, then its proof if it lets the rank
// in.
func tryHello(t *testing.T, d *Door, rank int) int {
	raw, err := net.Dial("unix", d.Name())
	require.NoError(t, err)
	defer raw.Close()
	require.NoError(t, raw.SetDeadline(time.Now().Add(10*time.Second)))
	if rank >= 0 {
		me := Door{c: d.c}
		me.c.Rank = rank
		_, err = me.sendHello(raw, true)
		require.NoError(t, err)
	}
	b := make([]byte, 1000)
	n, _ := io.ReadAtLeast(raw, b, helloBytes+32)
	return n
}

// A door is for the higher ranks of the job.
func TestDoorKnowsRanks(t *testing.T) {
	d := doorOf(t, nil)
	for _, rank := range []int{0, 1, 3, 1 << 30} {
		assert.Equal(t, helloBytes, tryHello(t, d, rank), "rank %d", rank)
	}
	assert.Equal(t, helloBytes+32, tryHello(t, d, 2), "else it is let in, as far as its proof")
}

// Who comes to a rank's door and finds another one goes away.
func TestDoorOfAnotherRank(t *testing.T) {
	d := doorOf(t, nil)
	two := doorOf(t, func(c *Config) { c.Rank = 2 })
	_, err := two.Meet(t.Context(), map[int]string{0: d.Name()})
	assert.EqualError(t, err, "shm: rank 0: is rank 1")
}

// The proof covers the secret, the job, its size and its generation.
func TestDoorOfAnotherJob(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, change := range map[string]func(c *Config){
		"secret":     func(c *Config) { c.Secret = []byte("another") },
		"job":        func(c *Config) { c.Job = "another" },
		"size":       func(c *Config) { c.Size = 4 },
		"generation": func(c *Config) { c.Gen = 5 },
	} {
		d := doorOf(t, nil)
		two := doorOf(t, func(c *Config) { c.Rank = 2; change(c) })
		_, err := two.Meet(ctx, map[int]string{1: d.Name()})
		assert.ErrorIs(t, err, errSecret, name)
	}
	d, two := doorOf(t, nil), doorOf(t, func(c *Config) { c.Rank = 2 })
	_, err := two.Meet(ctx, map[int]string{1: d.Name()})
	assert.NoError(t, err, "the same job")
}

// A process of another user gets not even a greeting.
func TestDoorOfAnotherUser(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs to be root, to be somebody else for a moment")
	}
	d := doorOf(t, nil)
	said := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		const same, nobody = ^uintptr(0), 65534
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, nobody, same); e != 0 { // of this thread only
			said <- -1
			return
		}
		said <- tryHello(t, d, -1)
	}()
	assert.Zero(t, <-said)
	assert.Equal(t, helloBytes, tryHello(t, d, 0), "this user gets one")
}
