package measure

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// nowhere is a device that computes nothing and whose addresses cannot be accessed, so that a step of any size takes no time. Its table has
// the same entries as another device's.
type nowhere struct {
	table tensor.Table
	use   memory.Counter
	next  uintptr
}

func (d *nowhere) String() string { return "nowhere" }
func (d *nowhere) Host() bool     { return false }
func (d *nowhere) Alloc(n int) (tensor.Ptr, error) {
	p := d.next
	d.next += uintptr(n+511) &^ 255
	return unsafe.Add(tensor.Ptr(nil), p), nil
}
func (d *nowhere) Free(tensor.Ptr)                             {}
func (d *nowhere) Copy(_, _ tensor.Ptr, _ int, _ tensor.Queue) {}
func (d *nowhere) Queue(int) tensor.Queue                      { return idle{} }
func (d *nowhere) Kernels() *tensor.Table                      { return &d.table }
func (d *nowhere) Memory() *memory.Counter                     { return &d.use }

type idle struct{}

func (idle) Sync() error                  { return nil }
func (idle) Mark() tensor.Pending         { return tensor.Pending{} }
func (idle) After(p tensor.Pending) error { return p.Wait() }

func newNowhere(like *tensor.Table) *nowhere {
	d := &nowhere{next: 1 << 46}
	for op, row := range like {
		for dt, k := range row {
			if k != nil {
				d.table[op][dt] = func(tensor.Queue, *tensor.Args) {}
			}
		}
	}
	return d
}

// machine holds the peak rates of a GPU, per second, and the shares of them that are assumed to be reached.
type machine struct {
	name                        string
	bytes, flops, moved, solved float64
}

var machines = []machine{{"H100 SXM", 3.35e12, 800e12, .85, .80}, {"H200", 4.8e12, 800e12, .85, .80}}

// time is the modelled time of launches: that of the bytes or that of the operations, whichever is longer.
func (m machine) time(k *kind) float64 {
	return max(k.bytes/(m.bytes*m.moved), k.flops/(m.flops*m.solved))
}

// TestMeasureAccount measures operations by events, on the emulator's streams.
func TestMeasureAccount(t *testing.T) {
	emu.Start(t, emu.Config{})
	dev, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	m := &meter{dev: dev, section: "account", small: true}
	require.NoError(t, measureAccount(m))
	found := map[string]bool{}
	for _, r := range m.rows {
		assert.Positive(t, r.Median, r.What)
		found[strings.Fields(r.What)[2]] = true
	}
	for _, op := range append(fusions, tensor.OpAdam) {
		assert.True(t, found[op.String()], op.String())
	}
}

// TestAccount sums the bytes and operations of a step of GPT-2 124M in bfloat16, with 32 sequences of 1024 tokens, and the least time for
// it. A change that adds a pass over the activations makes it fail.
func TestAccount(t *testing.T) {
	emu.Start(t, emu.Config{})
	open, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	below := newNowhere(open.Kernels())
	dev := newAccount(below)
	m := &meter{dev: dev}
	config, batch := m.gpt2()
	step := m.gptOf(config, batch, tensor.BFloat16, func(model any) nn.Params {
		params := nn.ParamsOf(model)
		for _, p := range params {
			p.SetValue(tensor.NewFor(memory.Parameters, dev, tensor.BFloat16, p.Dims()...))
		}
		return params
	}).step
	require.NoError(t, step()) // allocates what is kept between steps
	dev.reset()
	require.NoError(t, step())

	var b strings.Builder
	var times [2]float64
	all := kind{name: "total"}
	moved := 0.0
	line := func(k *kind, times ...float64) {
		fmt.Fprintf(&b, "%5d × %-48s %9.3f GB %8.3f TFLOP %8.3f ms %8.3f ms\n",
			k.count, k.name, k.bytes/1e9, k.flops/1e12, times[0]*1e3, times[1]*1e3)
	}
	for _, k := range dev.sorted(machines[0].time) {
		line(k, machines[0].time(k), machines[1].time(k))
		for i, m := range machines {
			times[i] += m.time(k)
		}
		all.count, all.bytes, all.flops = all.count+k.count, all.bytes+k.bytes, all.flops+k.flops
		if k.flops == 0 {
			moved += k.bytes
		}
	}
	line(&all, times[:]...)
	t.Logf("%s and %s:\n%s%v", machines[0].name, machines[1].name, b.String(), &below.use)
	assert.Less(t, moved, 19e9, "bytes, besides those of products")
	assert.Less(t, all.count, 310)
	assert.Less(t, below.use.Total().Peak, 15<<30, "bytes of memory: 14.1 GiB, and 3.1 GiB more if logits and their gradient are apart")
}

// TestLaunches counts the launches of a step of the small network: on a GPU, a launch costs as much as its work.
func TestLaunches(t *testing.T) {
	emu.Start(t, emu.Config{})
	open, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	dev := newAccount(newNowhere(open.Kernels()))
	m := &meter{dev: dev}
	step := m.mlp(64).step
	for range 2 {
		dev.reset()
		require.NoError(t, step())
	}
	launches := 0
	for _, k := range dev.kinds {
		launches += k.count
	}
	assert.LessOrEqual(t, launches, 17, "three of them are for the norm of the gradients, which must be finite")
}

// TestLongSectionsOnGPU runs on the emulator, with small sizes, the measurements that need a GPU and that no other test runs.
func TestLongSectionsOnGPU(t *testing.T) {
	reliability.SkipUnlessLong(t)
	emu.Start(t, emu.Config{})
	dev, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	for _, s := range Sections {
		if slices.Contains([]string{"copy", "allreduce", NCCLPair, "account"}, s.Name) {
			continue
		}
		m := &meter{dev: dev, device: "cuda", section: s.Name, small: true}
		require.NoError(t, s.run(m), s.Name)
		assert.NotEmpty(t, m.rows, s.Name)
	}
}
