package cuda_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/bench/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// ledger is a device that computes nothing: it has the cells of the CUDA table, and notes what each launch would read, write
// and multiply.
type ledger struct {
	table tensor.Table
	use   tensor.Memory
	next  uintptr
	work  map[string]*entry
}

// entry is what launches of one kind did.
type entry struct {
	what         string
	count        int
	bytes, flops float64
}

func newLedger() *ledger {
	d := &ledger{next: 1 << 46, work: map[string]*entry{}}
	for op, row := range cuda.Table {
		for dt, k := range row {
			if k != nil {
				d.table[op][dt] = func(_ tensor.Queue, a *tensor.Args) { d.note(a) }
			}
		}
	}
	return d
}

func (d *ledger) String() string { return "ledger" }
func (d *ledger) Host() bool     { return false }
func (d *ledger) Alloc(n int) (tensor.Ptr, error) {
	p := d.next
	d.next += uintptr(n+511) &^ 255
	return unsafe.Add(tensor.Ptr(nil), p), nil
}
func (d *ledger) Free(tensor.Ptr)                             {}
func (d *ledger) Copy(_, _ tensor.Ptr, n int, _ tensor.Queue) { d.add("copy", 2*float64(n), 0) }
func (d *ledger) Queue(int) tensor.Queue                      { return nowhere{} }
func (d *ledger) Kernels() *tensor.Table                      { return &d.table }
func (d *ledger) Memory() *tensor.Memory                      { return &d.use }

type nowhere struct{}

func (nowhere) Sync() error                  { return nil }
func (nowhere) Mark() tensor.Pending         { return tensor.Pending{} }
func (nowhere) After(p tensor.Pending) error { return p.Wait() }

func (d *ledger) add(what string, bytes, flops float64) {
	e := d.work[what]
	if e == nil {
		e = &entry{what: what}
		d.work[what] = e
	}
	e.count++
	e.bytes += bytes
	e.flops += flops
}

// note counts every operand once, and outputs that are added to twice; of tables, only the rows that are used.
func (d *ledger) note(a *tensor.Args) {
	name, bytes, flops := fmt.Sprintf("%v %v", a.Op, a.DType), 0.0, 0.0
	size := func(i int) float64 {
		if a.X[i] == nil {
			return 0
		}
		return float64(a.Len[i] * a.DT[i].Size())
	}
	for i := range a.N {
		bytes += size(i)
	}
	switch a.Op {
	case tensor.OpMatMul, tensor.OpLinearAct, tensor.OpLinearGradX, tensor.OpLinearGradW:
		m, n, k := a.Dim[1], a.Dim[2], a.Dim[3]
		flops = 2 * float64(a.Dim[0]) * float64(m) * float64(n) * float64(k)
		name += fmt.Sprintf(" %dx%dx%d", m, n, k)
		bytes += min(a.F[0], 1) * size(0)
	case tensor.OpAttention, tensor.OpAttentionGrad: // causal: half of the products, 2 forward and 5 backward
		products := map[tensor.Op]float64{tensor.OpAttention: 2, tensor.OpAttentionGrad: 5}[a.Op]
		flops = products * float64(a.Dim[0]) * float64(a.Dim[1]) * float64(a.Dim[1]) * float64(a.Dim[2]/3)
	case tensor.OpEmbedding:
		bytes = 2*size(0) + size(2)
	case tensor.OpEmbeddingGrad:
		bytes = 3*size(1) + size(2)
	case tensor.OpAddTo:
		bytes += size(0)
	case tensor.OpColSum, tensor.OpLayerNormGradX, tensor.OpLayerNormGradW, tensor.OpLayerNormGrad:
		bytes += min(a.F[0], 1) * size(0)
		name += fmt.Sprint(" ", a.Dim[:2])
	case tensor.OpAdam:
		for _, n := range a.ListLen {
			bytes += float64(n) * (2*12 + 2 + 2)
		}
	case tensor.OpSumSquares:
		bytes = 0
		for _, n := range a.ListLen {
			bytes += float64(n * a.DType.Size())
		}
	default:
		name += fmt.Sprintf(" %.1f MB", bytes/1e6)
	}
	d.add(name, bytes, flops)
}

// limits is what a device does at best, with the shares of it that are taken to be reached.
type limits struct {
	name          string
	bytes, flops  float64 // a second
	moved, solved float64
}

var machines = []limits{{"H100 SXM", 3.35e12, 800e12, .85, .80}, {"H200", 4.8e12, 800e12, .85, .80}}

// time is how long the entry takes on a device: the longer of moving and multiplying.
func (e *entry) time(g limits) float64 {
	return max(e.bytes/(g.bytes*g.moved), e.flops/(g.flops*g.solved))
}

func (d *ledger) report() string {
	var b strings.Builder
	var all []*entry
	for _, e := range d.work {
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y *entry) int { return cmp.Compare(y.time(machines[0]), x.time(machines[0])) })
	total := entry{what: "total"}
	var times [2]float64
	for _, e := range append(all, &total) {
		fmt.Fprintf(&b, "%5d × %-48s %9.3f GB %8.3f TFLOP", e.count, e.what, e.bytes/1e9, e.flops/1e12)
		for i, g := range machines {
			t := e.time(g)
			if e == &total {
				t = times[i]
			}
			times[i] += t
			fmt.Fprintf(&b, " %8.3f ms", t*1e3)
		}
		b.WriteByte('\n')
		total.count, total.bytes, total.flops = total.count+e.count, total.bytes+e.bytes, total.flops+e.flops
	}
	return b.String()
}

// TestAccount adds up what a step of GPT-2 124M in bfloat16 moves and multiplies, at 32 sequences of 1024 tokens. A change that
// brings back a pass over the activations fails.
func TestAccount(t *testing.T) {
	dev := newLedger()
	net := gpt.New(gpt.Config{Vocab: 50304, Length: 1024, Width: 768, Layers: 12, Heads: 12})
	net.Head.W = net.Tok.W
	params := nn.ParamsOf(net)
	for _, p := range params {
		p.SetValue(tensor.NewFor(tensor.Parameters, dev, tensor.BFloat16, p.Dims()...))
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4, WeightDecay: 0.1, Clip: 1})
	tape := tensor.NewTape(dev)
	ids := tensor.New(dev, tensor.Int64, 32, 1024)
	for range 2 { // the first step makes what stays
		clear(dev.work)
		tape.Backward(nn.CrossEntropy(net.Forward(tape.Input(ids)), ids))
		require.NoError(t, opt.Step())
		tape.Reset()
	}
	t.Logf("\n%s%v", dev.report(), &dev.use)
	var moved float64
	for _, e := range dev.work {
		if e.flops == 0 {
			moved += e.bytes
		}
	}
	assert.Less(t, moved, 30e9)
	assert.Less(t, float64(dev.next-1<<46), 78e9, "bytes")
}
