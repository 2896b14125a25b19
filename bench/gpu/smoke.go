package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// smoker tries the things that everything else needs, one after the other. Each step uses the results of the ones before.
type smoker struct {
	device string
	drv    *cuda.Driver
	dev    *cuda.Device
	s      *cuda.Stream
	pool   *cuda.Pool
}

// The name of a step is printed before it runs: if it crashes or hangs, it is the last one named. A step returns what it found.
var steps = []struct {
	name string
	try  func(*smoker) (string, error)
}{
	{"driver", (*smoker).driver},
	{"device and context", (*smoker).open},
	{"copies", (*smoker).copies},
	{"compiler", (*smoker).compiler},
	{"kernel", (*smoker).kernel},
	{"cuBLASLt", (*smoker).products},
	{"NCCL, one rank", (*smoker).nccl},
	{"training", (*smoker).training},
	{"captured training", (*smoker).captured},
}

// smoke runs all steps in a process of their own. If a step fails, crashes or hangs, another process runs the steps after it. there says
// whether there is a device.
func (o *options) smoke(out io.Writer) (there bool, failed error) {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	for left := names; len(left) > 0; {
		var text bytes.Buffer
		err := o.child(io.MultiWriter(out, &text), append([]string{"try"}, left...)...)
		if err == nil {
			return true, failed
		}
		last := -1
		for line := range strings.Lines(text.String()) {
			name, _, _ := strings.Cut(line, ":")
			last = max(last, slices.Index(left, name))
		}
		if last < 0 {
			return len(left) < len(names), errors.Join(failed, err)
		}
		fmt.Fprintln(out)
		failed = errors.Join(failed, fmt.Errorf("smoke: %s: %w", left[last], err))
		if slices.Contains([]string{"driver", "device and context"}, left[last]) {
			return false, failed
		}
		left = left[last+1:]
	}
	return true, failed
}

// try runs the steps with these names and prints the time of each, up to the first one that fails.
func try(device string, names []string, out io.Writer) error {
	m := &smoker{device: device}
	for i, step := range steps {
		if !slices.Contains(names, step.name) {
			if i < 2 { // all other steps need these
				if _, err := step.try(m); err != nil {
					return err
				}
			}
			continue
		}
		fmt.Fprintf(out, "%s: ", step.name)
		start := time.Now()
		var found string
		var err error
		if panicked := tensor.Try(func() { found, err = step.try(m) }); panicked != nil {
			err = panicked
		}
		if err != nil {
			fmt.Fprintf(out, "FAILED: %v\n", err)
			return fmt.Errorf("%s failed", step.name)
		}
		fmt.Fprintf(out, "%s, %.0f ms\n", found, 1e3*time.Since(start).Seconds())
	}
	return nil
}

func (m *smoker) driver() (found string, err error) {
	if m.drv, err = cuda.Load(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s (%s)", m.drv.Lib.Version, m.drv.Lib.Path), nil
}

// open binds this goroutine to its thread until the process ends.
func (m *smoker) open() (found string, err error) {
	if m.dev, err = m.drv.Open(0); err != nil {
		return "", err
	}
	if err = m.dev.Lock(); err != nil {
		return "", err
	}
	if m.s, err = m.dev.NewStream("smoke", 0); err != nil {
		return "", err
	}
	m.pool = m.dev.NewPool("smoke")
	found = fmt.Sprintf("%s %s", m.dev.Name, m.dev.Arch())
	for _, a := range []struct {
		name string
		of   cuda.Attribute
	}{{"multiprocessors", cuda.Multiprocessors}, {"bytes of L2", cuda.L2CacheSize},
		{"bytes of shared memory a block", cuda.MaxSharedPerBlockMax}} {
		v, err := m.dev.Attribute(a.of)
		if err != nil {
			return "", err
		}
		found += fmt.Sprintf(", %d %s", v, a.name)
	}
	return found, nil
}

// copies copies to the device and back: through ordinary memory, which is changed as soon as the call returns, and through page-locked
// memory.
func (m *smoker) copies() (string, error) {
	const n = 8 << 20
	p, err := m.pool.Alloc(m.s, n)
	if err != nil {
		return "", err
	}
	h, err := m.dev.NewHost(n)
	if err != nil {
		return "", err
	}
	x := make([]byte, n)
	for _, size := range []int{1, 1000, 64 << 10, 1 << 20, n} {
		for i := range x {
			x[i] = byte(i % 251)
		}
		err := errors.Join(m.s.Fill(p, 7, n), m.s.Upload(p, x[:size]))
		clear(x)
		err = errors.Join(err, m.s.Download(h.Bytes()[:size], p), m.s.Download(x[:size], p), m.s.Sync())
		if err != nil {
			return "", err
		}
		for i := range size {
			if x[i] != byte(i%251) || h.Bytes()[i] != x[i] {
				return "", fmt.Errorf("byte %d of %d came back as %d and %d instead of %d", i, size, x[i], h.Bytes()[i], i%251)
			}
		}
	}
	return "ordinary and page-locked memory", errors.Join(h.Close(), m.pool.Free(p))
}

func (m *smoker) compiler() (string, error) {
	c, err := cuda.LoadCompiler()
	if err != nil {
		return "", err
	}
	code, err := c.Compile(cuda.Source{Name: "smoke.cu", Text: smokeSource}, m.dev.Arch())
	return fmt.Sprintf("%s (%s), %d bytes of code", c.Lib.Version, c.Lib.Path, len(code)), err
}

// smokeSource has parameters of every kind, and uses all the shared memory that a block can have.
const smokeSource = `
struct Two { int n; float* p; };
extern "C" __global__ void smoke(float* y, const float* x, int n, long long add, float a, double b, const __grid_constant__ Two two) {
  extern __shared__ float s[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[two.n + t] = i < n ? x[i] : 0;
  __syncthreads();
  float sum = warp_sum(1.f);
  if (i < n) y[i] = a * s[two.n + (t ^ 1)] + (float)b + (float)add + two.p[0] + to_float(from_float<bf16>(sum)) + to_float(from_float<f16>(sum));
}`

func (m *smoker) kernel() (string, error) {
	mod, err := m.dev.Module(cuda.Source{Name: "smoke.cu", Text: smokeSource})
	if err != nil {
		return "", err
	}
	f, err := mod.Func("smoke")
	if err != nil {
		return "", err
	}
	shared, err := m.dev.Attribute(cuda.MaxSharedPerBlockMax)
	if err != nil {
		return "", err
	}
	const n = 1024
	x, y := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = float32(i)
	}
	p, err := m.pool.Alloc(m.s, 8*n)
	if err != nil {
		return "", err
	}
	two := struct {
		n int32
		p cuda.Ptr
	}{int32(shared/4 - n), p + 4*n}
	args := cuda.NewArgs().Ptr(p).Ptr(p).I32(n).I64(-3).F32(2).F64(0.5).Struct(unsafe.Pointer(&two), int(unsafe.Sizeof(two)))
	err = errors.Join(f.SetShared(shared), m.s.Upload(p, bytesOf(x)), m.s.Fill32(two.p, math.Float32bits(100), n),
		m.s.Launch(f, cuda.Dim{X: 1}, cuda.Dim{X: n}, shared, args), m.s.Download(bytesOf(y), p), m.pool.Free(p))
	if err != nil {
		return "", err
	}
	for i := range y {
		if want := 2*x[i^1] + 0.5 - 3 + 100 + 64; y[i] != want {
			return "", fmt.Errorf("element %d is %v instead of %v", i, y[i], want)
		}
	}
	return fmt.Sprintf("%d threads, %d bytes of shared memory", n, shared), nil
}

func bytesOf[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// products multiplies matrices of ones.
func (m *smoker) products() (string, error) {
	lib, err := blas.Load()
	if err != nil {
		return "", err
	}
	h, err := lib.New(m.dev, m.pool)
	if err != nil {
		return "", err
	}
	const n = 256
	for _, t := range []struct {
		of   blas.Type
		size int
		one  uint64
	}{{blas.Float32, 4, 0x3f800000}, {blas.Float64, 8, math.Float64bits(1)}, {blas.BFloat16, 2, 0x3f80}, {blas.Float16, 2, 0x3c00}} {
		ones := make([]byte, n*n*t.size)
		for i := range ones {
			ones[i] = byte(t.one >> (8 * (i % t.size)))
		}
		in, err := m.pool.Alloc(m.s, len(ones))
		if err != nil {
			return "", err
		}
		out, err := m.pool.Alloc(m.s, len(ones))
		if err != nil {
			return "", err
		}
		g := &blas.Gemm{Type: t.of, TransB: true, M: n, N: n, K: n, Alpha: 1.0 / n, LDA: n, LDB: n, LDC: n, A: in, B: in, C: out}
		got := make([]byte, len(ones))
		err = errors.Join(m.s.Upload(in, ones), h.MatMul(m.s, g), m.s.Download(got, out), m.pool.Free(in), m.pool.Free(out))
		if err != nil {
			return "", err
		}
		if string(got) != string(ones) {
			return "", fmt.Errorf("%v of ones gave other numbers", g)
		}
	}
	return fmt.Sprintf("%s (%s)", lib.Lib.Version, lib.Lib.Path), h.Close()
}

// nccl does a sum over one rank. Training in one process does not need NCCL.
func (m *smoker) nccl() (string, error) {
	lib, err := nccl.Load()
	if err != nil {
		return err.Error(), nil
	}
	id, err := lib.UniqueID()
	if err != nil {
		return "", err
	}
	c := lib.NewComm()
	if err := lib.Err("ncclCommInitRankConfig", c.Init(1, &id, 0)); err != nil {
		return "", err
	}
	p, err := m.pool.Alloc(m.s, 4)
	if err != nil {
		return "", err
	}
	x := []float32{3}
	err = m.s.Upload(p, bytesOf(x))
	r := c.AllReduce(p, p, 1, nccl.Float32, nccl.Sum, m.s.Handle())
	err = errors.Join(err, lib.Err("ncclAllReduce", r), m.s.Download(bytesOf(x), p), m.pool.Free(p))
	if err == nil && x[0] != 3 {
		err = fmt.Errorf("the sum of 3 is %v", x[0])
	}
	return lib.String(), errors.Join(err, lib.Err("ncclCommDestroy", c.Destroy()))
}

// training does ten steps on the device and on the CPU, and compares the losses.
func (m *smoker) training() (string, error) {
	want, err := losses("cpu", false)
	if err != nil {
		return "", err
	}
	got, err := losses(m.device, false)
	if err != nil {
		return "", err
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-3*want[i]) {
			return "", fmt.Errorf("the losses are %v, on the CPU %v", got, want)
		}
	}
	return fmt.Sprintf("losses from %.4f to %.4f", got[0], got[9]), nil
}

// captured does the same steps as replays of a graph.
func (m *smoker) captured() (string, error) {
	want, err := losses(m.device, false)
	if err != nil {
		return "", err
	}
	got, err := losses(m.device, true)
	if err == nil && !slices.Equal(want, got) {
		err = fmt.Errorf("the losses are %v, of steps that are not captured %v", got, want)
	}
	return "the same losses", err
}

// losses returns the losses of ten training steps.
func losses(device string, captured bool) (all []float64, err error) {
	dev, closer, err := openDevice(device)
	if err != nil {
		return nil, err
	}
	defer closer()
	net := nn.Sequential{nn.NewLinear(20, 64), nn.NewLayerNorm(64), nn.GELU, nn.NewLinear(64, 5)}
	opt := optim.NewAdamW(nn.Init(net, dev, tensor.Float32, 1), optim.AdamWConfig{LR: 1e-2, Clip: 1})
	tape, last := tensor.NewTape(dev), tensor.New(dev, tensor.Float32)
	on := &meter{dev: dev, block: map[tensor.DType]tensor.Tensor{}}
	x, y := on.random(tensor.Float32, 32, 20), on.whole(2, 5, 32)
	step := func(...tensor.Tensor) error {
		loss := nn.CrossEntropy(net.Forward(tape.Input(x)), y)
		tensor.Copy(last, loss)
		tape.Backward(loss)
		err := opt.Step()
		tape.Reset()
		return err
	}
	if captured {
		step = tensor.Capture(dev, step).Run
	}
	for range 10 {
		if err := step(); err != nil {
			return nil, err
		}
		all = append(all, last.Item())
	}
	return all, nil
}
