package measure

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// account is a device that records, for each launch, the bytes it reads and writes, its floating-point operations, and its time.
type account struct {
	tensor.Device
	table  tensor.Table
	kinds  map[string]*kind
	spans  []launched
	events []*gpu.Event // a pair for each launch
}

// kind sums the launches of one operation and size.
type kind struct {
	name         string
	count        int
	bytes, flops float64
	seconds      float64
}

// launched is a launch on a GPU.
type launched struct{ of *kind }

func newAccount(dev tensor.Device) *account {
	d := &account{Device: dev, kinds: map[string]*kind{}}
	for op, row := range dev.Kernels() {
		for dt, k := range row {
			if k != nil {
				d.table[op][dt] = func(q tensor.Queue, a *tensor.Args) { d.launch(k, q, a) }
			}
		}
	}
	return d
}

// Kernels returns the kernels of the device below, with recording.
func (d *account) Kernels() *tensor.Table { return &d.table }

func (d *account) launch(k tensor.Kernel, queue tensor.Queue, a *tensor.Args) {
	name, bytes, flops := cost(a)
	e := d.kinds[name]
	if e == nil {
		e = &kind{name: name}
		d.kinds[name] = e
	}
	e.count, e.bytes, e.flops = e.count+1, e.bytes+bytes, e.flops+flops
	q, ok := queue.(*cuda.Queue)
	if !ok {
		start := time.Now()
		k(queue, a)
		e.seconds += time.Since(start).Seconds()
		return
	}
	from, to := d.pair(q)
	must(from.Record(q.Stream()))
	k(queue, a)
	must(to.Record(q.Stream()))
	d.spans = append(d.spans, launched{e})
}

// pair returns the events of the next launch.
func (d *account) pair(q *cuda.Queue) (from, to *gpu.Event) {
	n := 2 * len(d.spans)
	for len(d.events) < n+2 {
		e, err := q.Device().GPU().NewEvent(true)
		must(err)
		d.events = append(d.events, e)
	}
	return d.events[n], d.events[n+1]
}

// settle waits for the launches and adds their times.
func (d *account) settle() error {
	err := d.Queue(0).Sync()
	for i, s := range d.spans {
		ms, e := d.events[2*i+1].Elapsed(d.events[2*i])
		err = errors.Join(err, e)
		s.of.seconds += float64(ms) / 1e3
	}
	d.spans = d.spans[:0]
	return err
}

func (d *account) reset() { clear(d.kinds) }

func (d *account) close() (err error) {
	for _, e := range d.events {
		err = errors.Join(err, e.Close())
	}
	return err
}

// sorted returns the kinds that move any bytes, the longest first.
func (d *account) sorted(seconds func(*kind) float64) []*kind {
	return slices.SortedFunc(maps.Values(d.kinds), func(x, y *kind) int {
		if a, b := seconds(x), seconds(y); a != b {
			return map[bool]int{true: -1, false: 1}[a > b]
		}
		return map[bool]int{true: -1, false: 1}[x.name < y.name]
	})
}

// cost returns the name of a launch, and the least bytes and floating-point operations that it needs: every operand once, outputs that are
// added to twice, and only the used rows of tables.
func cost(a *tensor.Args) (name string, bytes, flops float64) {
	size := func(i int) float64 {
		if a.X[i] == nil {
			return 0
		}
		return float64(a.Len[i] * a.DT[i].Size())
	}
	for i := range a.N {
		bytes += size(i)
	}
	dims := a.Dim[:2]
	switch a.Op {
	case tensor.OpMatMul, tensor.OpLinears, tensor.OpLinearAct, tensor.OpLinearAdd, tensor.OpLinearGradX, tensor.OpLinearGradW:
		dims = a.Dim[1:4]
		flops = 2 * float64(a.Dim[0]) * float64(dims[0]) * float64(dims[1]) * float64(dims[2])
		if a.Dim[0] > 1 {
			dims = a.Dim[:4]
		}
		bytes += min(a.F[0], 1) * size(0)
	case ops.OpCrossAttention, ops.OpCrossAttentionGrad: // causal: half of 2 products forward, of 5 backward
		dims = a.Dim[:5]
		flops = map[tensor.Op]float64{ops.OpCrossAttention: 2, ops.OpCrossAttentionGrad: 5}[a.Op] *
			float64(dims[0]) * float64(dims[1]) * float64(dims[3]) * float64(dims[2])
	case ops.OpEmbedding:
		bytes = 2*size(0) + size(2)
	case ops.OpEmbeddingGrad:
		bytes = 3*size(1) + size(2)
	case tensor.OpAddTo:
		bytes, dims = bytes+size(0), a.Len[:1]
	case tensor.OpColSum, ops.OpLayerNormGradX, ops.OpLayerNormGradW, ops.OpLayerNormGrad, ops.OpRMSNormGrad:
		bytes += min(a.F[0], 1) * size(0)
	case tensor.OpAdam: // value, moments and gradient; for a 16-bit gradient, also the 16-bit value
		dims = nil
		for _, n := range a.ListLen {
			bytes += float64(n) * (2*3*float64(max(a.DType.Size(), 4)) + float64(a.DType.Size()))
			if a.DType.IsHalf() {
				bytes += float64(n * a.DType.Size())
			}
		}
	case tensor.OpSumSquares:
		dims = nil
		for _, n := range a.ListLen {
			bytes += float64(n * a.DType.Size())
		}
	default:
		dims = a.Len[:1]
	}
	return fmt.Sprintf("%v %v %v", a.Op, a.DType, dims), bytes, flops
}

// measureAccount measures each operation of a step of GPT-2: products in floating-point operations, others in bytes.
func measureAccount(m *meter) error {
	if d, ok := m.dev.(*cuda.Device); ok { // events need the thread's context, which the first launch would set
		if err := d.Bind(); err != nil {
			return err
		}
		defer d.Unbind()
	}
	dev := newAccount(m.dev)
	on := *m
	on.dev = dev
	config, batch := on.gpt2()
	t := on.gpt(config, batch, tensor.BFloat16)
	const steps = 3
	err := tensor.Try(func() {
		must(t.learnt(config))
		must(dev.settle())
		for range 2 {
			must(t.step())
			must(dev.settle())
		}
		dev.reset()
		for range steps {
			must(t.step())
			must(dev.settle())
		}
	})
	if err != nil {
		return errors.Join(err, dev.close())
	}
	for _, k := range dev.sorted(func(k *kind) float64 { return k.seconds }) {
		work, unit := 1e-9*k.bytes, "GB/s"
		if k.flops > 0 {
			work, unit = 1e-12*k.flops, "TFLOP/s"
		}
		if rate := work / k.seconds; rate > 0 && k.seconds > 0 {
			what := fmt.Sprintf("%d × %s, %.3f ms a step", k.count/steps, k.name, 1e3*k.seconds/steps)
			m.ours(what, unit, []float64{rate})
		}
	}
	return dev.close()
}

// fusions are operations that do several operations in one launch; without them, the tape launches the single ones.
var fusions = []tensor.Op{tensor.OpLinearAct, tensor.OpLinearAdd, tensor.OpLinearGradX, tensor.OpLinearGradW, tensor.OpLinears,
	ops.OpLayerNormGrad, ops.OpCrossEntropyBoth}

// choosy is a device without some operations.
type choosy struct {
	tensor.Device
	table tensor.Table
}

// Kernels returns the kernels that are left.
func (d *choosy) Kernels() *tensor.Table { return &d.table }

// measureFusions measures a step of GPT-2 with all fusions, and without each of them.
func measureFusions(m *meter) error {
	dev := &choosy{Device: m.dev, table: *m.dev.Kernels()}
	on := *m
	on.dev = dev
	config, batch := on.gpt2()
	t := on.gpt(config, batch, tensor.BFloat16)
	check := func() error { return t.learnt(config) }
	measure := func(what string) error {
		return on.add(what, "tokens/s", float64(batch*config.Positions), check, func() { must(t.step()) })
	}
	failed := measure("all")
	for _, op := range fusions {
		row := dev.table[op]
		dev.table[op] = [tensor.NumDTypes]tensor.Kernel{}
		failed = errors.Join(failed, measure(fmt.Sprint("without ", op)))
		dev.table[op] = row
	}
	m.rows = on.rows
	return failed
}
