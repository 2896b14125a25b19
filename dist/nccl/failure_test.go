package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// failures runs fn on n ranks and returns what each of them got, and the job, and how long it took from the first rank's call
// of begin.
func failures(t *testing.T, n int, timeout time.Duration, fn func(r *dist.Rank, begin func()) error) ([]error, time.Duration) {
	t.Helper()
	machine(t)
	var mu sync.Mutex
	var began time.Time
	var took time.Duration
	errs := make([]error, n)
	begin := func() {
		mu.Lock()
		defer mu.Unlock()
		if began.IsZero() {
			began = time.Now()
		}
	}
	err := start(t, n, dist.Config{Threads: 1, Timeout: timeout, Log: t.Output()}, func(r *dist.Rank) error {
		err := fn(r, begin)
		mu.Lock()
		defer mu.Unlock()
		errs[r.World.Rank()], took = err, max(took, time.Since(began))
		return err
	})
	require.Error(t, err)
	return append(errs, err), took
}

// reduce sums count elements, and waits on the host.
func reduce(r *dist.Rank, count int, op dist.Reduction) error {
	return r.World.AllReduce(tensor.New(r.Device, tensor.Float32, count), op).WaitHost(context.Background())
}

// The ninth operation differs, and hangs on the devices. Both ranks get both descriptors, and the communicators are aborted.
func TestDifferentOperations(t *testing.T) {
	before := emu.CountNCCL().Aborts
	errs, took := failures(t, 2, time.Minute, func(r *dist.Rank, begin func()) error {
		for range 8 {
			if err := reduce(r, 10, dist.Sum); err != nil {
				return err
			}
		}
		begin()
		return reduce(r, 10+2*r.World.Rank(), dist.Sum)
	})
	for rank, err := range errs {
		assert.ErrorContains(t, err, "allreduce seq 9 of group world: count 10 (rank 0) vs 12 (rank 1), shapes float32[10] and float32[12]",
			"rank %d", rank)
	}
	assert.Equal(t, before+2, emu.CountNCCL().Aborts)
	reliability.Took(t, 41, "nccl", 500*time.Millisecond, took)
}

// So it is when no host waits: the device waits for an operation that hangs, until the engine aborts it. The error comes with
// the next operation, or at the end.
func TestDifferentOperationsThatNobodyWaitsFor(t *testing.T) {
	errs, took := failures(t, 2, time.Minute, func(r *dist.Rank, begin func()) error {
		begin()
		x := tensor.New(r.Device, tensor.Float32, 4)
		op := []dist.Reduction{dist.Sum, dist.Max}[r.World.Rank()]
		if err := r.World.AllReduce(x, op).Wait(); err != nil {
			return err
		}
		return errors.Join(tensor.Try(func() { tensor.Floats(x) }), r.World.Barrier().Wait())
	})
	for _, err := range errs {
		assert.ErrorContains(t, err, "allreduce seq 1 of group world: op sum (rank 0) vs max (rank 1)")
	}
	assert.Less(t, took, 500*time.Millisecond+reliability.Slack)
}

// A rank that does not come is named after the timeout, also when the hosts wait for their devices alone.
func TestTimeout(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	over := make(chan struct{})
	errs, took := failures(t, 3, time.Second, func(r *dist.Rank, begin func()) error {
		begin()
		if r.World.Rank() == 2 {
			<-over
			return r.World.Err()
		}
		x := tensor.New(r.Device, tensor.Float32, 4)
		err := r.World.AllReduce(x, dist.Sum).Wait()
		if err == nil {
			err = tensor.Try(func() { tensor.Floats(x) })
		}
		if err == nil {
			err = r.World.Err()
		}
		if r.World.Rank() == 0 {
			close(over)
		}
		return err
	})
	for rank, err := range errs {
		assert.ErrorContains(t, err, "allreduce seq 1 of group world: rank 2 did not arrive within 1s", "rank %d", rank)
	}
	assert.Less(t, took, 1200*time.Millisecond+reliability.Slack)
}

// A call that hangs on the device of one rank, though all ranks have made it.
func TestHangingDevice(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.FailNCCL(1, 3, emu.HangingCall)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	errs, _ := failures(t, 2, time.Second, func(r *dist.Rank, begin func()) error {
		begin()
		for range 5 {
			if err := reduce(r, 10, dist.Sum); err != nil {
				return err
			}
		}
		return errors.New("nothing hung")
	})
	for rank, err := range errs {
		assert.ErrorContains(t, err, "allreduce seq 3 of group world: no progress within 1s", "rank %d", rank)
	}
}

// A call that hangs on the host of one rank: as it makes the communicator, and later. The others hang in it too, until the
// watcher aborts all communicators from another thread.
func TestHangingHost(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Only(t, "it takes several devices")
	defer emu.FailNCCL(0, 0, emu.NoFault)
	for call, want := range map[int]string{
		0: "allreduce seq 1 of group world: no progress within 1s: in ncclCommInitRankConfig, shape float32[10]",
		1: "allreduce seq 1 of group world: no progress within 1s: (in a call of NCCL, or of the driver|on the device), shape float32[10]",
		3: "allreduce seq 3 of group world: no progress within 1s: (in a call of NCCL, or of the driver|on the device), shape float32[10]",
	} {
		before := emu.CountNCCL().Aborts
		emu.FailNCCL(1, call, emu.HangingHost)
		errs, took := failures(t, 3, time.Second, func(r *dist.Rank, begin func()) error {
			for i := range 5 {
				if i == max(call, 1)-1 {
					begin()
				}
				if err := reduce(r, 10, dist.Sum); err != nil {
					return err
				}
			}
			return errors.New("nothing hung")
		})
		for rank, err := range errs {
			assert.Regexp(t, "^rank [0-2]: "+strings.NewReplacer("[", `\[`, "]", `\]`).Replace(want), err.Error(), "rank %d", rank)
		}
		assert.Equal(t, before+3, emu.CountNCCL().Aborts)
		assert.Less(t, took, 1200*time.Millisecond+reliability.Slack)
	}
}

// A rank fails while the others make the communicator with it, and its own NCCL hangs: they end at once, with its error.
func TestPeerFailsDuringInit(t *testing.T) {
	emu.Only(t, "it takes several devices")
	emu.FailNCCL(2, 0, emu.HangingHost)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	errs, took := failures(t, 3, time.Minute, func(r *dist.Rank, begin func()) error {
		begin()
		x := tensor.New(r.Device, tensor.Float32, 10)
		w := r.World.AllReduce(x, dist.Sum)
		if r.World.Rank() != 2 {
			return w.WaitHost(context.Background())
		}
		for emu.CountNCCL().Open < 3 { // all ranks are in NCCL
			_ = w.Done() // the host helps to bring the id
			runtime.Gosched()
		}
		return errors.New("rank 2 has had enough")
	})
	for rank, err := range errs {
		assert.ErrorContains(t, err, "rank 2 has had enough", "rank %d", rank)
	}
	assert.Less(t, took, time.Second+reliability.Slack)
}

// What NCCL notices by itself, and what it refuses, fails the group on all ranks at once.
func TestErrorsOfNCCL(t *testing.T) {
	defer emu.FailNCCL(0, 0, emu.NoFault)
	for fault, want := range map[emu.NCCLFault]string{
		emu.AsyncError: "rank 1: allreduce seq 3 of group world: nccl: ncclCommGetAsyncError: " +
			"remote process exited or there was a network error (6)",
		emu.FailingCall: "rank 1: allreduce seq 3 of group world: nccl: ncclAllReduce: unhandled system error (2); last error of the process: " +
			"a failure that the test asked for",
	} {
		emu.FailNCCL(1, 3, fault)
		errs, took := failures(t, 2, time.Minute, func(r *dist.Rank, begin func()) error {
			begin()
			for range 5 {
				if err := reduce(r, 10, dist.Sum); err != nil {
					return err
				}
			}
			return errors.New("nothing failed")
		})
		for rank, err := range errs {
			assert.ErrorContains(t, err, want, "rank %d", rank)
		}
		assert.Less(t, took, time.Second+reliability.Slack)
	}
}

// What NCCL does not have, the control engine does on copies in host memory, between operations that NCCL does.
func TestNotInNCCL(t *testing.T) {
	machine(t)
	require.NoError(t, start(t, 2, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		x := tensor.FromSlice([]int32{1, 2, 6}, 3)
		if r.World.Rank() == 1 {
			x = tensor.FromSlice([]int32{3, 5, 6}, 3)
		}
		y := tensor.New(r.Device, tensor.Int32, 3)
		tensor.Copy(y, x)
		for _, op := range []dist.Reduction{dist.BXor, dist.Sum, dist.BOr} {
			disttest.OK(r.World.AllReduce(y, op).Wait())
		}
		assert.Equal(t, []float64{4, 14, 0}, tensor.Floats(y))
		assert.Contains(t, r.World.Stats().Calls, "allreduce")
		return nil
	}))
}

// Variables of NCCL with which results could be wrong are refused: if a call returned before its operation is queued, an event would be
// recorded too early; and an abort of one group must not end the operations of another.
func TestRefusedVariables(t *testing.T) {
	machine(t)
	for variable, want := range map[string]string{
		"NCCL_COMM_BLOCKING=0":              "NCCL_COMM_BLOCKING=0 makes calls return before an operation is queued",
		"NCCL_COMM_SPLIT_SHARE_RESOURCES=1": "with NCCL_COMM_SPLIT_SHARE_RESOURCES=1 an abort of one group also ends",
	} {
		t.Run(variable, func(t *testing.T) {
			name, value, _ := strings.Cut(variable, "=")
			t.Setenv(name, value)
			_, err := nccl.New(nccl.Config{})
			assert.ErrorContains(t, err, want)
		})
	}
}

// Ranks leave while NCCL is busy with a call, when it refuses to destroy the communicator, or while the call runs, when it
// would wait for a rank that has left: it is given back all the same.
func TestCloseDuringACall(t *testing.T) {
	const busy = 3 // the emulated NCCL is busy for one look more with each call, up to this
	ranks(t, 2, emu.Config{}, func(r *rank) error {
		for i := range busy {
			for which, looks := range []int{0, busy * r.me, busy * (1 - r.me)} { // none, those of one rank, those of the other
				if err := r.leave(fmt.Sprint("group ", i, " ", which), i, looks); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// leave closes a group on the device after some operations, and some looks behind the last one.
func (r *rank) leave(name string, operations, looks int) error {
	group, err := r.open(name, timeout)
	if err != nil {
		return err
	}
	m, err := r.upload([]float32{1})
	if err != nil {
		return err
	}
	op := backend.Op{Kind: backend.AllReduce, DType: tensor.Float32, Count: 1, Src: m, Dst: m}
	for range 1 + operations {
		op.Seq++
		err = errors.Join(err, group.Issue(&op), r.until(func() (bool, error) {
			done, err := group.Progress()
			return done == op.Seq, err
		}))
	}
	barrier := backend.Op{Kind: backend.Barrier, Seq: op.Seq + 1}
	err = errors.Join(err, group.Issue(&barrier))
	for range looks {
		if _, e := group.Progress(); e != nil {
			return errors.Join(err, e)
		}
	}
	return errors.Join(err, group.(backend.Closer).Close(), r.pool.Free(cuda.Ptr(uintptr(m.Ptr))))
}
