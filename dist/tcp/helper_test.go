package tcp

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

var testSecret = []byte("0123456789abcdef0123456789abcdef")

// sharing makes configs offer shared memory: see TestSharedFailures.
var sharing bool

// configs returns the configurations of n ranks that meet on a port of 127.0.0.1.
func configs(t testing.TB, n int) []Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	out := make([]Config, n)
	for r := range out {
		out[r] = Config{Rank: r, Size: n, Addr: l.Addr().String(), Secret: testSecret, Job: "test", Host: "h" + string(rune('0'+r)),
			Timeout: 20 * time.Second, NoShared: !sharing}
	}
	out[0].Listener = l
	return out
}

// joinAll joins all ranks at once and returns what each got.
func joinAll(cs []Config) ([]*Engine, []error) {
	engines, errs := make([]*Engine, len(cs)), make([]error, len(cs))
	var wg sync.WaitGroup
	for i, c := range cs {
		wg.Go(func() { engines[i], errs[i] = Join(context.Background(), c) })
	}
	wg.Wait()
	return engines, errs
}

// joining starts to join a rank, which waits for others; joined waits for it.
func joining(t testing.TB, c Config) (joined func() *Engine) {
	type end struct {
		e   *Engine
		err error
	}
	ended := make(chan end, 1)
	go func() {
		e, err := Join(t.Context(), c)
		ended <- end{e, err}
	}()
	return func() *Engine {
		t.Helper()
		x := <-ended
		require.NoError(t, x.err)
		return x.e
	}
}

// start joins n ranks; they are closed at the end of the test.
func start(t testing.TB, n int, change func(*Config)) []*Engine {
	t.Helper()
	cs := configs(t, n)
	for i := range cs {
		if change != nil {
			change(&cs[i])
		}
	}
	engines, errs := joinAll(cs)
	for _, err := range errs {
		require.NoError(t, err)
	}
	t.Cleanup(func() { closeAll(engines) })
	return engines
}

func closeAll(engines []*Engine) {
	var wg sync.WaitGroup
	for _, e := range engines {
		wg.Go(func() { e.Close() })
	}
	wg.Wait()
}

// open opens a group of all ranks.
func open(t testing.TB, engines []*Engine, name string) []backend.Backend {
	t.Helper()
	ranks := make([]int, len(engines))
	for i := range ranks {
		ranks[i] = i
	}
	out := make([]backend.Backend, len(engines))
	for i, e := range engines {
		be, err := e.Open(backend.Spec{ID: backend.HashString(name), Name: name, Ranks: ranks, Rank: i})
		require.NoError(t, err)
		out[i] = be
	}
	return out
}

// each runs fn for every rank at once and returns the errors.
func each(n int, fn func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = fn(r) })
	}
	wg.Wait()
	return errs
}

// do runs one operation to its end.
func do(be backend.Backend, op *backend.Op) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := be.Issue(op); err != nil {
		return err
	}
	return wait(ctx, be, op.Seq)
}

func wait(ctx context.Context, be backend.Backend, seq uint64) error {
	for {
		done, err := be.Progress()
		if done >= seq {
			return nil
		}
		if err != nil {
			return err
		}
		if err := be.Park(ctx, seq); err != nil {
			return err
		}
	}
}

func memOf[T tensor.Elem](x []T) backend.Mem {
	var z T
	return backend.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Bytes: len(x) * int(unsafe.Sizeof(z))}
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }
