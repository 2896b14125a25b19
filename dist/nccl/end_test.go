package nccl_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
)

// end is a group of a test, with one element for its operations.
type end struct {
	backend.Backend
	r    *rank
	spec backend.Spec
	mem  backend.Mem
	seq  uint64
	left bool // this rank has closed it
}

func (r *rank) end(name string, timeout time.Duration) (*end, error) {
	return r.endOf(r.spec(name, timeout))
}

func (r *rank) endOf(s backend.Spec) (*end, error) {
	b, err := r.engine.Open(s)
	if err != nil {
		return nil, err
	}
	m, err := r.upload([]float32{1})
	return &end{Backend: b, r: r, spec: s, mem: m}, err
}

// issue begins to reduce the element.
func (g *end) issue() error {
	g.seq++
	op := backend.Op{Kind: backend.AllReduce, DType: tensor.Float32, Seq: g.seq, Count: 1, Shape: tensor.Shape{Dims: []int{1}},
		Src: g.mem, Dst: g.mem}
	return g.Issue(&op)
}

// wait waits until all is done, or the group has failed.
func (g *end) wait() error {
	return g.r.until(func() (bool, error) {
		done, err := g.Progress()
		return done == g.seq, err
	})
}

// failure waits until the group has failed.
func (g *end) failure() error {
	err := g.r.until(func() (bool, error) {
		_, err := g.Progress()
		return false, err
	})
	return err
}

func (g *end) close() error {
	return errors.Join(g.Backend.(backend.Closer).Close(), g.r.pool.Free(cuda.Ptr(uintptr(g.mem.Ptr))))
}

func (g *end) split(child uint64, color, key int) {
	g.Backend.(backend.Splitter).Split(child, color, key)
}

// together returns a function that waits for n calls of it.
func together(n int) func() {
	var all sync.WaitGroup
	all.Add(n)
	return func() {
		all.Done()
		all.Wait()
	}
}

// A split names the rank that does not come to it.
func TestSplitNamesTheMissingRank(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Only(t, "it takes several devices")
	wait := together(3)
	ranks(t, 3, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", time.Second)
		if err := errors.Join(err, g.issue(), g.wait()); err != nil {
			return err
		}
		wait()
		if r.me < 2 {
			g.split(77, -1, 0)
		}
		assert.Regexp(t, `^rank [01]: split of group parent: ncclCommSplit: rank 2 did not arrive within 1s$`, g.failure().Error())
		return g.close()
	})
}

// A rank that leaves the job during a split is named at once, not after the timeout.
func TestSplitWithoutARankThatLeft(t *testing.T) {
	emu.Only(t, "it takes several devices")
	wait, asked := together(3), together(3)
	ranks(t, 3, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", timeout)
		if err := errors.Join(err, g.issue(), g.wait()); err != nil {
			return err
		}
		wait()
		begin := time.Now()
		if r.me < 2 {
			g.split(77, -1, 0)
		}
		if asked(); r.me == 2 {
			r.engine.Finish()
		}
		assert.ErrorContains(t, g.failure(), "rank 2: barrier seq 1 of group splits of parent: has left the job")
		assert.Less(t, time.Since(begin), timeout/2)
		return g.close()
	})
}

// What NCCL says of a split is not said of an operation that was issued after it.
func TestSplitThatFails(t *testing.T) {
	emu.Only(t, "it takes several devices")
	emu.FailNCCL(1, -1, emu.FailingCall)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	wait := together(2)
	ranks(t, 2, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", timeout)
		if err := errors.Join(err, g.issue(), g.wait()); err != nil {
			return err
		}
		wait()
		g.split(77, -1, 0)
		_ = g.issue() // the group may have failed
		assert.EqualError(t, g.failure(), "rank 1: split of group parent: nccl: ncclCommSplit: unhandled system error (2); "+
			"last error of the process: a split that fails as the test asked for (NCCL_DEBUG=INFO tells more)")
		return g.close()
	})
}

// A group whose split is not done any more fails with the first cause of the group that was to be split.
func TestSplitOfAFailedGroup(t *testing.T) {
	emu.Only(t, "it takes several devices")
	emu.FailNCCL(1, 0, emu.HangingHost)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	wait := together(2)
	ranks(t, 2, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", timeout)
		if err := errors.Join(err, g.issue()); err != nil { // the communicator is never made
			return err
		}
		g.split(backend.HashString("child"), 0, r.me)
		child, err := r.end("child", timeout)
		if err := errors.Join(err, child.issue()); err != nil {
			return err
		}
		wait()
		_ = g.Abort(errors.New("the first cause"))
		assert.ErrorContains(t, child.failure(), "splitting the communicator of group parent: the first cause")
		return errors.Join(child.close(), g.close())
	})
}

// A communicator of a split is given back if its group cannot be opened, and if nobody opens it.
func TestSplitThatNobodyOpens(t *testing.T) {
	emu.Only(t, "it takes several devices")
	wait := together(2)
	ranks(t, 2, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", timeout)
		if err := errors.Join(err, g.issue(), g.wait()); err != nil {
			return err
		}
		r.control.refused = backend.HashString("refused")
		before := emu.CountNCCL().Splits
		g.split(r.control.refused, 0, r.me)
		_, err = r.open("refused", timeout)
		assert.ErrorContains(t, err, "the control engine refuses")
		for emu.CountNCCL().Splits < before+2 || emu.CountNCCL().Open > 2 {
			runtime.Gosched() // it is given back at once, not at the end
		}
		wait()
		g.split(backend.HashString("never opened"), 0, r.me)
		return errors.Join(g.issue(), g.wait(), g.close())
	})
}

// A group is closed while its split waits for another rank, which aborts the group: it is told, and so is the group of the split.
func TestSplitOfAClosedGroup(t *testing.T) {
	emu.Only(t, "it takes several devices")
	emu.FailNCCL(1, -1, emu.HangingHost)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	closed := together(3)
	ranks(t, 3, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", timeout)
		if err := errors.Join(err, g.issue(), g.wait()); err != nil {
			return err
		}
		g.split(backend.HashString("child"), 0, r.me)
		child, err := r.end("child", timeout)
		if err := errors.Join(err, child.issue()); err != nil {
			return err
		}
		if r.me != 1 {
			err = g.close()
		}
		closed()
		begin := time.Now()
		if r.me == 1 {
			err = errors.Join(g.Abort(errors.New("enough")), g.close())
		}
		assert.ErrorContains(t, child.failure(), "enough")
		err = errors.Join(err, child.close(), r.engine.Close())
		assert.Less(t, time.Since(begin), timeout/2)
		return err
	})
}

// A rank asks for splits and leaves the job: the others do the splits with it, also the one that it has not begun.
func TestSplitBeforeLeaving(t *testing.T) {
	emu.Only(t, "it takes several devices")
	before, gone := emu.CountNCCL().Splits, together(3)
	ranks(t, 3, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", timeout)
		if err := errors.Join(err, g.issue(), g.wait()); err != nil {
			return err
		}
		split := func() {
			g.split(77, -1, 0)
			g.split(78, -1, 0)
		}
		if r.me == 0 {
			split()
			r.engine.Finish()
		}
		if gone(); r.me != 0 {
			split()
		}
		return g.close()
	})
	assert.Equal(t, before+2*3, emu.CountNCCL().Splits)
}

// A rank's engine is closed while its split waits for another rank, which hangs: Close says so, and the others are told.
func TestCloseDuringSplit(t *testing.T) {
	emu.Only(t, "it takes several devices")
	defer nccl.SetBounds(100 * time.Millisecond)()
	emu.FailNCCL(1, -1, emu.HangingHost)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	wait := together(2)
	hangingRanks(t, 2, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", timeout)
		if err := errors.Join(err, g.issue(), g.wait()); err != nil {
			return err
		}
		wait()
		g.split(77, -1, 0)
		const want = "nccl: a call of the driver or of NCCL does not end within 100ms"
		if r.me == 0 {
			assert.ErrorContains(t, r.engine.Close(), want)
		} else {
			assert.ErrorContains(t, g.failure(), "rank 0: split of group parent: "+want)
		}
		return g.close()
	})
	nothingLeftSoon(t)
}

// A group that is to be split is closed while it waits for the id of its communicator: nothing waits for what will not come.
func TestSplitOfAGroupWithoutID(t *testing.T) {
	emu.Only(t, "it takes several devices")
	asked, wait := together(2), together(2)
	ranks(t, 2, emu.Config{}, func(r *rank) error {
		g, err := r.end("parent", timeout)
		if err != nil {
			return err
		}
		if r.me == 1 { // the first rank makes no id
			err = g.issue()
			g.split(77, -1, 0)
		}
		asked() // when the first has closed the group, no operation begins
		begin := time.Now()
		err = errors.Join(err, g.close(), r.engine.Close())
		assert.Less(t, time.Since(begin), 5*time.Second)
		wait()
		return err
	})
}

// A closed end touches neither its events nor its communicator.
func TestClosedEnd(t *testing.T) {
	ranks(t, 1, emu.Config{}, func(r *rank) error {
		g, err := r.end("closed", timeout)
		if err := errors.Join(err, g.issue(), g.wait(), g.close()); err != nil {
			return err
		}
		assert.False(t, g.Backend.(backend.DeviceUser).Order(1))
		err = g.issue()
		assert.ErrorIs(t, err, backend.ErrClosed)
		assert.ErrorContains(t, err, "rank 0: allreduce seq 2 of group closed")
		return nil
	})
}

// A group fails, or is closed, while its host issues and orders: nothing is used after it was given back.
func TestEndDuringCalls(t *testing.T) {
	for i := range 30 {
		ranks(t, 1, emu.Config{Seed: uint64(i + 1)}, func(r *rank) error {
			g, err := r.end(fmt.Sprint("group ", i), timeout)
			if err := errors.Join(err, g.issue()); err != nil {
				return err
			}
			var wg sync.WaitGroup
			var over atomic.Bool
			wg.Go(func() {
				defer over.Store(true)
				for range i {
					runtime.Gosched()
				}
				if i%2 == 0 {
					_ = g.Abort(errors.New("enough"))
				} else {
					_ = g.Backend.(backend.Closer).Close()
				}
			})
			for err == nil {
				var done uint64
				switch done, err = g.Progress(); {
				case err != nil:
				case done+backend.Depth/2 > g.seq:
					err = g.issue()
					g.Backend.(backend.DeviceUser).Order(g.seq)
				case over.Load(): // a closed group makes no progress
					err = backend.ErrClosed
				}
			}
			wg.Wait()
			return g.close()
		})
	}
}
