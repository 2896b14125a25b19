package cuda

import (
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

//go:embed kernels
var sources embed.FS

// kernel is a function in a .cu file, compiled for an element type.
type kernel struct {
	file, name string
	elem       string // the C++ type that the file calls T
	number     int
	shared     int       // dynamic shared memory of a launch, if it needs more than 48 KiB
	defines    []string  // of a file with variants
	text       string    // of a registered kernel
	specific   bool      // for sm_90a alone
	soon       []*kernel // that are mostly needed some time after this one
}

// kernels are all kernels of the process. A device keeps its compiled ones by their index in it.
var kernels []*kernel

// newKernel returns the kernel of this name in a file, for a C++ element type.
func newKernel(file, name, elem string) *kernel {
	k := &kernel{file: file, name: name, elem: elem, number: len(kernels)}
	kernels = append(kernels, k)
	return k
}

// options are the compiler options. A product is rounded before it is added (no fused multiply-add), as on the CPU.
func (k *kernel) options() []string {
	return append([]string{"-DELEM=" + k.elem, "--fmad=false"}, k.defines...)
}

// elems are the C++ types of the element types.
var elems = [tensor.NumDTypes]string{"float", "double", "bf16", "f16", "int", "i64", "u8", "bool"}

// source returns the text of a file, after the text that all files share.
func source(file string) (cuda.Source, error) {
	shared, err := included("tensor.cuh")
	if err != nil {
		return cuda.Source{}, err
	}
	text, err := included(file)
	return cuda.Source{Name: file, Text: shared + text}, err
}

func (k *kernel) source() (cuda.Source, error) {
	if k.text == "" {
		src, err := source(k.file)
		src.Specific = k.specific
		return src, err
	}
	shared, err := included("tensor.cuh")
	return cuda.Source{Name: k.file, Text: fmt.Sprintf("%s#line 1 %q\n%s\n", shared, k.file, k.text)}, err
}

// included returns the text of a file, after the files that its first lines include.
func included(file string) (string, error) {
	text, err := sources.ReadFile("kernels/" + file)
	if err != nil {
		return "", err
	}
	before, rest, line := "", string(text), 1
	for strings.HasPrefix(rest, "#include ") {
		var name string
		name, rest, _ = strings.Cut(strings.TrimPrefix(rest, "#include "), "\n")
		header, err := included(strings.Trim(name, `"`))
		if err != nil {
			return "", err
		}
		before += header
		line++
	}
	return fmt.Sprintf("%s#line %d %q\n%s\n", before, line, file, rest), nil
}

// compile returns the function of a kernel.
func (d *Device) compile(k *kernel) (f *cuda.Func, err error) {
	d.compileSoon(k)
	src, err := k.source()
	if err != nil {
		return nil, err
	}
	err = d.locked(func() error {
		m, err := d.gpu.Module(src, k.options()...)
		if err == nil {
			f, err = m.Func(k.name)
		}
		if err == nil && k.shared > 0 {
			err = f.SetShared(k.shared)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("kernel %s of %s: %w", k.name, k.file, err)
	}
	d.funcs[k.number] = f
	return f, nil
}

// launcher sets q.args and launches k.
type launcher func(q *Queue, k *kernel, a *tensor.Args)

// cell makes an entry of the table.
func cell(k *kernel, launch launcher) tensor.Kernel {
	return func(queue tensor.Queue, a *tensor.Args) {
		q := queue.(*Queue)
		q.op = a.Op
		q.args.Reset()
		launch(q, k, a)
	}
}

// These functions make rows of the table, with a kernel of the same name for each type.

func row(file, name string, launch launcher, types []tensor.DType) (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range types {
		r[t] = cell(newKernel(file, name, elems[t]), launch)
	}
	return r
}

var (
	floatTypes  = []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16}
	numberTypes = []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16, tensor.Int32, tensor.Int64, tensor.Uint8}
)

func floats(file, name string, launch launcher) [tensor.NumDTypes]tensor.Kernel {
	return row(file, name, launch, floatTypes)
}

func numbers(file, name string, launch launcher) [tensor.NumDTypes]tensor.Kernel {
	return row(file, name, launch, numberTypes)
}

// ptr adds operand i of a to the parameters.
func (q *Queue) ptr(a *tensor.Args, i int) *Queue {
	q.args.Ptr(devPtr(a.X[i]))
	return q
}

// ptrs adds the first n operands.
func (q *Queue) ptrs(a *tensor.Args, n int) *Queue {
	for i := range n {
		q.ptr(a, i)
	}
	return q
}

// i64 adds a long long.
func (q *Queue) i64(v int) *Queue {
	q.args.I64(int64(v))
	return q
}

// wide adds a float in the type in which elements of type d are computed.
func (q *Queue) wide(d tensor.DType, v float64) *Queue {
	if d == tensor.Float64 {
		q.args.F64(v)
	} else {
		q.args.F32(float32(v))
	}
	return q
}

// check adds the parameters of check_index: the word in which to report an index out of range, and the operation.
func (q *Queue) check() *Queue {
	q.args.Ptr(badAddress(q.dev)).U32(uint32(q.op))
	return q
}

// threads is the block size of kernels with a grid-stride loop over elements.
const threads = 256

// spread launches k with enough threads for n items, but limits the blocks to many times what the device runs at a time. Then it is mostly
// busy while the last blocks run.
func (q *Queue) spread(k *kernel, n int) {
	if n > 0 {
		q.run(k, cuda.Dim{X: min((n+threads-1)/threads, q.dev.sms*64)}, cuda.Dim{X: threads}, 0)
	}
}

// cover launches k with exactly the blocks that n threads need.
func (q *Queue) cover(k *kernel, n int) {
	if n > 0 {
		q.run(k, cuda.Dim{X: (n + threads - 1) / threads}, cuda.Dim{X: threads}, 0)
	}
}

// run launches k with the parameters in q.args.
func (q *Queue) run(k *kernel, grid, block cuda.Dim, shared int) {
	q.checkFailed()
	f := q.dev.funcs[k.number]
	if f == nil {
		f = q.mustCompile(k)
	}
	if q.varying != nil && q.varying.set {
		q.varying.update(q, f, grid, block, shared)
		return
	}
	if err := q.stream.Launch(f, grid, block, shared, &q.args); err != nil {
		q.retry(err, func() error { return q.stream.Launch(f, grid, block, shared, &q.args) })
	}
	if q.varying != nil {
		if err := q.varying.record(q.stream); err != nil {
			panic(q.dev.fail(q.op.String(), err))
		}
	}
}

// checkFailed panics if the device failed.
func (q *Queue) checkFailed() {
	if f := q.dev.failed.Load(); f != nil {
		panic(f)
	}
}

func (q *Queue) mustCompile(k *kernel) *cuda.Func {
	if err := q.refuse(q.op.String(), "compiles a kernel that the runs before did not need"); err != nil {
		panic(err)
	}
	f, err := q.dev.compile(k)
	if err != nil {
		panic(&tensor.Failure{Op: q.op.String(), Err: fmt.Errorf("%v: %w", q.dev, err)})
	}
	return f
}

// retry launches once more, bound to the thread, if the context was not current. For other errors it panics.
func (q *Queue) retry(err error, launch func() error) {
	if wrongContext(err) {
		if err = q.dev.Bind(); err == nil {
			err = launch()
		}
	}
	if err != nil {
		panic(q.dev.fail(q.op.String(), err))
	}
}

// wrongContext reports whether a launch failed because the thread has no context, or another device's.
func wrongContext(err error) bool {
	const invalidContext, invalidHandle = 201, 400
	var e *cuda.Error
	return errors.As(err, &e) && (e.Code == invalidContext || e.Code == invalidHandle)
}
