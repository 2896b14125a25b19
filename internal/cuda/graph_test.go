package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

const stepSource = `
extern "C" __global__ void addto(float* y, const float* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] += x[i];
}`

// record captures y += x on a second stream and z += y on the first.
func (r *rig) record(x, y, z cuda.Ptr, wait bool) (*cuda.Graph, error) {
	side, begun, done := r.stream(), r.event(), r.event()
	f := r.kernel(stepSource, "addto")
	args := cuda.NewArgs()
	require.NoError(r, r.s.Sync())
	require.NoError(r, r.s.BeginCapture())
	require.NoError(r, begun.Record(r.s))
	require.NoError(r, side.Wait(begun))
	require.NoError(r, side.Launch(f, dim(1), dim(32), 0, args.Reset().Ptr(y).Ptr(x).I32(100)))
	require.NoError(r, done.Record(side))
	if wait {
		require.NoError(r, r.s.Wait(done))
	}
	require.NoError(r, r.s.Launch(f, dim(1), dim(32), 0, args.Reset().Ptr(z).Ptr(y).I32(100)))
	require.NoError(r, r.s.Wait(done))
	return r.s.EndCapture()
}

func TestGraph(t *testing.T) {
	r := newRig(t, emu.Config{})
	ones := make([]float32, 100)
	for i := range ones {
		ones[i] = 1
	}
	x, y, z := r.put(ones), r.put(make([]float32, 100)), r.put(make([]float32, 100))
	g, err := r.record(x, y, z, true)
	require.NoError(t, err)
	defer g.Close()
	require.Equal(t, 2, g.Nodes)
	require.Equal(t, float32(0), get[float32](r, r.s, z, 1)[0], "recorded, not run")
	for range 10 {
		require.NoError(t, g.Launch(r.s))
	}
	require.Equal(t, []float32{10}, get[float32](r, r.s, y, 1))
	require.Equal(t, []float32{55}, get[float32](r, r.s, z, 1))
	if !reliability.Racing { // there, sync.Pool drops values
		require.Zero(t, testing.AllocsPerRun(10, func() { require.NoError(t, g.Launch(r.s)) }))
	}
}

// Without the wait, the graph runs its nodes in the wrong order.
func TestGraphWithoutWaitShows(t *testing.T) {
	emu.Only(t, "a GPU may be right by chance")
	r := newRig(t, emu.Config{})
	ones := []float32{1}
	x, y, z := r.put(append(ones, make([]float32, 99)...)), r.put(make([]float32, 100)), r.put(make([]float32, 100))
	g, err := r.record(x, y, z, false)
	require.NoError(t, err)
	defer g.Close()
	for range 10 {
		require.NoError(t, g.Launch(r.s))
	}
	require.NotEqual(t, []float32{55}, get[float32](r, r.s, z, 1))
}

func TestCaptureEndsOnItsThread(t *testing.T) {
	r := newRig(t, emu.Config{})
	p := r.alloc(512)
	require.NoError(t, r.s.BeginCapture())
	require.NoError(t, r.s.Fill(p, 0, 512))
	ended := make(chan error)
	go func() {
		if err := r.dev.Lock(); err != nil {
			ended <- err
			return
		}
		defer r.dev.Unlock()
		_, err := r.s.EndCapture()
		ended <- err
	}()
	require.ErrorContains(t, <-ended, "STREAM_CAPTURE_WRONG_THREAD (908)")
	_, err := r.s.EndCapture()
	require.ErrorContains(t, err, "ILLEGAL_STATE (401)", "the other thread ended it")
	if emu.OnGPU() {
		return // what a driver leaves of the stream is not documented
	}
	require.NoError(t, r.s.BeginCapture())
	require.NoError(t, r.s.Fill(p, 0, 512))
	g, err := r.s.EndCapture()
	require.NoError(t, err)
	require.Equal(t, 1, g.Nodes, "of the second recording")
	require.NoError(t, g.Close())
}

func TestCaptureErrors(t *testing.T) {
	r := newRig(t, emu.Config{})
	side, e, before := r.stream(), r.event(), r.event()
	p := r.alloc(512)
	require.NoError(t, before.Record(r.s))
	capture := func(during func()) error {
		require.NoError(t, r.s.BeginCapture())
		require.NoError(t, r.s.Fill(p, 0, 512))
		during()
		g, err := r.s.EndCapture()
		if err == nil {
			require.NoError(t, g.Close())
		}
		return err
	}
	for _, c := range []struct {
		name   string
		during func()
		want   string
	}{
		{"synchronize", func() { require.ErrorContains(t, r.s.Sync(), "not permitted when stream is capturing") }, "CAPTURE_INVALIDATED"},
		{"ask for an event", func() {
			_, err := before.Done()
			if emu.OnGPU() {
				err = r.s.Sync() // drivers may have an answer
			}
			require.ErrorContains(t, err, "STREAM_CAPTURE_UNSUPPORTED")
		}, "CAPTURE_INVALIDATED"},
		{"synchronize another stream", func() {
			other := side
			if emu.OnGPU() {
				other = r.s // drivers may allow it
			}
			require.ErrorContains(t, other.Sync(), "STREAM_CAPTURE_UNSUPPORTED")
		}, "CAPTURE_INVALIDATED"},
		{"allocate", func() {
			_, err := r.pool.Alloc(r.s, 1<<20)
			require.ErrorContains(t, err, "1.0 MiB more are asked for while stream")
		}, ""},
		{"wait for something outside", func() {
			require.ErrorContains(t, r.s.Wait(before), "STREAM_CAPTURE_ISOLATION")
		}, "CAPTURE_INVALIDATED"},
		{"never join", func() {
			require.NoError(t, e.Record(r.s))
			require.NoError(t, side.Wait(e))
			require.NoError(t, side.Fill(p, 0, 512))
		}, "CAPTURE_UNJOINED"},
		{"ordinary host memory", func() {
			require.ErrorContains(t, r.s.Upload(p, make([]byte, 8)), "only pinned memory stays")
			require.ErrorContains(t, r.s.Download(make([]byte, 8), p), "only pinned memory stays")
		}, ""},
	} {
		err := capture(c.during)
		require.Equal(t, c.want == "", err == nil, c.name)
		if err != nil {
			require.ErrorContains(t, err, c.want, c.name)
		}
		require.NoError(t, r.s.Sync(), "%s: the stream is as before", c.name)
	}
	require.ErrorContains(t, side.Wait(e), "INVALID_VALUE", "its recording ended")
}

// A queued launch keeps its parameters when they change: the host may be several
// launches ahead.
func TestParamsOfGraphs(t *testing.T) {
	r := newRig(t, emu.Config{Lazy: true})
	f, args := r.kernel(stepSource, "addto"), cuda.NewArgs()
	x, y := r.put([]float32{1, 10, 100}), r.put(make([]float32, 3))
	require.NoError(t, r.s.Sync())
	_, err := r.s.Captured()
	require.ErrorContains(t, err, "records nothing")
	require.NoError(t, r.s.BeginCapture())
	require.NoError(t, r.s.Launch(f, dim(1), dim(32), 0, args.Reset().Ptr(y).Ptr(x).I32(1)))
	node, err := r.s.Captured()
	require.NoError(t, err)
	require.NoError(t, r.s.Fill(y+4, 0, 4))
	g, err := r.s.EndCapture()
	require.NoError(t, err)
	require.NoError(t, g.Launch(r.s))
	for i := range 3 {
		args.Reset().Ptr(y).Ptr(x + cuda.Ptr(4*i)).I32(1)
		require.NoError(t, g.SetParams(node, f, dim(1), dim(32), 0, args))
		require.NoError(t, g.Launch(r.s))
	}
	if !reliability.Racing {
		require.Zero(t, testing.AllocsPerRun(10, func() { require.NoError(t, g.SetParams(node, f, dim(1), dim(32), 0, args)) }))
	}
	require.Equal(t, []float32{112, 0}, get[float32](r, r.s, y, 2))
	if !emu.OnGPU() { // where these are addresses
		require.ErrorContains(t, g.SetParams(node+1, f, dim(1), dim(32), 0, args), "INVALID_VALUE", "a fill")
	}
	require.NoError(t, g.Close())
	if !emu.OnGPU() {
		require.Error(t, g.SetParams(node, f, dim(1), dim(32), 0, args))
	}
}
