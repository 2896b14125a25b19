package memnet_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo/memnet"
	"github.com/ringo-ml/ringo/dist/backend"
)

var _ backend.Transport = (*memnet.Rank)(nil)

// Step counts what a sender had received, and what it had sent to the same rank, but not to others. Messages with another tag wait.
func TestTagsAndSteps(t *testing.T) {
	var seen [3][]memnet.Message
	net := memnet.New(3, func(m *memnet.Message) { seen[m.From] = append(seen[m.From], *m) })
	require.NoError(t, net.Run(t.Context(), func(r *memnet.Rank) error {
		b := make([]byte, 4)
		switch r.Rank() {
		case 0:
			return errors.Join(r.Send(2, 5, nil), r.Send(1, 0, []byte("abcd")), r.Recv(2, 0, b))
		case 1:
			return errors.Join(r.Recv(0, 0, b), r.Send(2, 0, b), r.Send(2, 1, nil))
		}
		err := errors.Join(r.Recv(1, 0, b), r.Send(0, 0, b), r.Recv(0, 5, nil), r.Recv(1, 1, nil))
		assert.Equal(t, "abcd", string(b))
		return err
	}))
	require.NoError(t, net.Drained())
	step := func(m memnet.Message) [3]int { return [3]int{m.From, m.To, m.Step} }
	assert.Equal(t, [3]int{0, 2, 1}, step(seen[0][0]))
	assert.Equal(t, [3]int{0, 1, 1}, step(seen[0][1]), "a second message that waits for nothing is in step 1 too")
	assert.Equal(t, [3]int{1, 2, 2}, step(seen[1][0]))
	assert.Equal(t, [3]int{1, 2, 3}, step(seen[1][1]), "one message a step between two ranks")
	assert.Equal(t, [3]int{2, 0, 3}, step(seen[2][0]))
}

// A large Send ends with its Recv, a small one at once. After that, the sent bytes may be written again.
func TestMemoryIsReused(t *testing.T) {
	for _, size := range []int{1, 64 << 10, 64<<10 + 1, 1 << 20} {
		net := memnet.New(2, nil)
		require.NoError(t, net.Run(t.Context(), func(r *memnet.Rank) error {
			b := make([]byte, size)
			for i := range 50 {
				if r.Rank() == 0 {
					b[0], b[size-1] = byte(i), byte(i)
				}
				if r.Rank() == 0 {
					if err := r.Send(1, 0, b); err != nil {
						return err
					}
					continue
				}
				if err := r.Recv(0, 0, b); err != nil {
					return err
				}
				assert.Equal(t, [2]byte{byte(i), byte(i)}, [2]byte{b[0], b[size-1]})
			}
			return nil
		}))
	}
}

// The observer may replace a payload.
func TestObserverChangesBytes(t *testing.T) {
	net := memnet.New(2, func(m *memnet.Message) { m.Bytes = bytes.Repeat([]byte{9}, len(m.Bytes)) })
	require.NoError(t, net.Run(t.Context(), func(r *memnet.Rank) error {
		in := make([]byte, 3)
		err := r.SendRecv(1-r.Rank(), []byte{1, 2, 3}, 1-r.Rank(), in, 0)
		assert.Equal(t, []byte{9, 9, 9}, in)
		return err
	}))
}

// Nothing hangs: an error of one rank, or the end of ctx, ends all ranks, whatever they wait for.
func TestFailure(t *testing.T) {
	boom := errors.New("boom")
	wait := []func(r *memnet.Rank) error{
		func(r *memnet.Rank) error { return r.Recv(0, 0, nil) },
		func(r *memnet.Rank) error { return r.Send(0, 0, make([]byte, 1<<20)) },
		func(r *memnet.Rank) error { return r.SendRecv(2, make([]byte, 1<<20), 0, nil, 0) },
		func(r *memnet.Rank) error {
			for {
				if err := r.Send(2, 0, nil); err != nil {
					return err
				}
			}
		},
	}
	for _, w := range wait {
		synctest.Test(t, func(t *testing.T) {
			err := memnet.New(3, nil).Run(t.Context(), func(r *memnet.Rank) error {
				if r.Rank() == 0 {
					return boom
				}
				return w(r)
			})
			require.ErrorIs(t, err, boom)
			require.EqualError(t, err, "rank 0: boom")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err = memnet.New(3, nil).Run(ctx, func(r *memnet.Rank) error {
				if r.Rank() == 0 {
					return r.Recv(1, 99, nil)
				}
				return w(r)
			})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	err := memnet.New(2, nil).Run(t.Context(), func(r *memnet.Rank) error {
		if r.Rank() == 0 {
			return r.Send(1, 0, make([]byte, 5))
		}
		return r.Recv(0, 0, make([]byte, 4))
	})
	require.EqualError(t, err, "rank 1: rank 0 sends 5 bytes, rank 1 wants 4")
}

// A rank may send and receive at the same time; if one fails, the other ends.
func TestTakeWhileSending(t *testing.T) {
	const size = 1 << 20
	for _, wrong := range []int{0, 1} {
		err := memnet.New(2, nil).Run(t.Context(), func(r *memnet.Rank) error {
			sent := make(chan error, 1)
			go func() {
				out := bytes.Repeat([]byte{byte(r.Rank())}, size)
				sent <- errors.Join(r.Send(1-r.Rank(), 0, out), r.Send(1-r.Rank(), 0, out))
			}()
			for range 2 {
				b, err := r.Take(1-r.Rank(), 0, size-wrong)
				if err != nil {
					return errors.Join(err, <-sent)
				}
				assert.Equal(t, bytes.Repeat([]byte{byte(1 - r.Rank())}, size), b)
			}
			return <-sent
		})
		if wrong == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "sends 1048576 bytes, rank")
		}
	}
}
