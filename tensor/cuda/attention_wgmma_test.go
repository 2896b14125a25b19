package cuda_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// crossArgs are those of a launch of OpCrossAttention: 3 sequences of 130 queries with 6 heads of 80 features, and 200 keys with 2 heads.
func crossArgs(drop float64) *tensor.Args {
	a := &tensor.Args{Op: ops.OpCrossAttention, DType: tensor.BFloat16, Dim: [6]int{3, 130, 480, 200, 160}, Key: 1 << 40,
		I: [8]int{80, 1, 8, 12, 3 * 6 * 130 * 200, 0, 0, -20}, F: [8]float64{0.125, drop}}
	return a
}

// Kernels for compute capability 9.0 see what the launcher gives them: struct Params has the same fields in Go and in C.
func TestParamsOfHopper(t *testing.T) {
	emu.Only(t, "a GPU shows it by its results")
	dev := device(t)
	file, err := os.ReadFile("kernels/attention_wgmma.cuh")
	require.NoError(t, err)
	text := regexp.MustCompile(`(?s)struct Params \{.*?\n\};`).FindString(string(file))
	require.NotEmpty(t, text)
	names := []string{"steps", "keys", "heads", "kv", "causal", "offset", "tiles", "works", "group", "all_heads", "padded", "hd", "op",
		"qstep", "kstep", "key", "limit", "first", "stride", "elems"}
	var body strings.Builder
	for i, name := range names {
		fmt.Fprintf(&body, "  y[%d] = (i64)p.%s;\n", i, name)
	}
	n := len(names)
	fmt.Fprintf(&body, "  y[%d] = (i64)(p.scale * 1000), y[%d] = (i64)(p.keep * 1000), y[%d] = sizeof(Params);\n", n, n+1, n+2)
	source := text + "\nextern \"C\" __global__ void read(i64* y, Params p) {\n" + body.String() + "}\n"
	for ofKeys, want := range map[bool][]int{
		false: {130, 200, 6, 2, 1, -20, 2, 36, 18, 18, 192, 80, 7, 480, 160, 1 << 40, 1 << 30, 8, 12, 3 * 6 * 130 * 200, 125, 1333},
		true:  {130, 200, 6, 2, 1, -20, 2, 12, 6, 6, 192, 80, 7, 480, 160, 1 << 40, 1 << 30, 8, 12, 3 * 6 * 130 * 200, 125, 1333},
	} {
		params := cuda.HopperParams(dev, crossArgs(0.25), ofKeys)
		y := blank(tensor.Int64, len(names)+3)
		require.NoError(t, dev.Bind())
		f, err := cuda.Header(dev, "mma.cuh", source, "bf16", "read")
		require.NoError(t, err)
		launchOn(t, dev, f, 1, 0, []operand{y}, func(a *gpu.Args) { a.Struct(unsafe.Pointer(&params[0]), len(params)) })
		for i, w := range append(want, len(params)) {
			name := append(names, "scale", "keep", "sizeof")[i]
			if name == "op" {
				w = int(ops.OpCrossAttention)
			}
			require.EqualValues(t, w, y.at(i), "%s, of keys: %v", name, ofKeys)
		}
	}
}

// What the kernels for compute capability 9.0 cannot do is left to the others.
func TestHopperOrNot(t *testing.T) {
	dev := device(t)
	for what, c := range map[string]struct {
		change func(a *tensor.Args)
		want   string
	}{
		"plain":                  {func(a *tensor.Args) { a.F[1] = 0 }, "-DHD=128 -DWGS=2 -DBLOCK_N=128 -DDOCS=0 -DDROP=0"},
		"dropout":                {func(*tensor.Args) {}, "-DHD=128 -DWGS=2 -DBLOCK_N=128 -DDOCS=0 -DDROP=1"},
		"heads of 64":            {func(a *tensor.Args) { a.I[0], a.F[1] = 64, 0 }, "-DHD=64 -DWGS=3 -DBLOCK_N=128 -DDOCS=0 -DDROP=0"},
		"heads of 48":            {func(a *tensor.Args) { a.I[0] = 48 }, "-DHD=64 -DWGS=2 -DBLOCK_N=128 -DDOCS=0 -DDROP=1"},
		"heads of 32":            {func(a *tensor.Args) { a.I[0], a.F[1] = 32, 0 }, ""},
		"no queries":             {func(a *tensor.Args) { a.Dim[1] = 0 }, ""},
		"dropout of odd rows":    {func(a *tensor.Args) { a.Dim[3], a.I[4] = 202, 3*6*130*202 }, ""},
		"dropout from element 2": {func(a *tensor.Args) { a.I[2] = 2 }, ""},
		"dropout by parts":       {func(a *tensor.Args) { a.I[4] = 130 * 100 }, ""},
		"dropout of all":         {func(a *tensor.Args) { a.F[1] = 1 - 0x1p-33 }, ""},
		"dropout of almost all":  {func(a *tensor.Args) { a.F[1] = 1 - 0x1p-32 }, "-DHD=128 -DWGS=2 -DBLOCK_N=128 -DDOCS=0 -DDROP=1"},
	} {
		a := crossArgs(0.25)
		c.change(a)
		require.Equal(t, c.want, cuda.HopperKernel(dev, a), what)
	}
	for drop, want := range map[float64]string{0: "-DHD=128 -DWGS=2 -DBLOCK_N=128 -DDOCS=1 -DDROP=0", 0.25: ""} {
		a, x := crossArgs(drop), tensor.New(dev, tensor.Int64, 600)
		a.X[6], a.X[7] = x.Ptr(), x.Ptr()
		require.Equal(t, want, cuda.HopperKernel(dev, a), "documents")
	}
}

// TestWrongConstantsInAttentionOnHopper plants mistakes in the kernels for compute capability 9.0. The short runs on the emulator only find
// their places.
func TestWrongConstantsInAttentionOnHopper(t *testing.T) {
	plain, wide, dropped := heads{2, 260, 2, 64, true, 0}, heads{1, 200, 2, 128, false, 0}, heads{2, 132, 1, 64, true, 0.3}
	narrow, filled := heads{1, 150, 2, 48, true, 0}, heads{1, 150, 2, 80, false, 0}
	for _, c := range []struct {
		file, from, to string
		h              heads
	}{
		{"attention_wgmma.cu", "limit = min(limit, row0 + 8 * h + 1 + p.offset)", "limit = min(limit, row0 + 8 * h + 2 + p.offset)", plain},
		{"attention_wgmma.cu", "o[i] *= rescale[i / 2 & 1]", "o[i] *= rescale[i & 1]", plain},
		{"attention_wgmma.cu", "log2_(total) * 0.69314718f", "log2_(total)", wide},
		{"attention_wgmma.cu", "(k / 4 * A_ROWS * 128 + k % 4 * 32)", "(k / 4 * A_ROWS * 128 + k % 4 * 16)", wide},
		{"attention_wgmma.cu", "8 * c < p.hd", "8 * c < p.hd - 8", narrow},
		{"attention_wgmma.cu", "8 * c < p.hd", "8 * c < p.hd - 8", filled},
		{"attention_wgmma_q.cu", "8 * (4 * c + t) < p.hd", "8 * (4 * c + t) < p.hd - 8", filled},
		{"attention_wgmma_kv.cu", "8 * c < p.hd", "8 * c < p.hd - 8", filled},
		{"attention_wgmma.cu", "drop0 >>= 2, drop1 >>= 2;", "drop0 >>= 2, drop1 >>= 1;", dropped},
		{"attention_wgmma_q.cu", "s[i] = pr * (dp[i] - delta[i / 2 & 1]);", "s[i] = pr * dp[i];", plain},
		{"attention_wgmma_q.cu", "lse2[h] = l * LOG2E", "lse2[h] = l", wide},
		{"attention_wgmma_kv.cu", "least = p.causal ? row - p.offset : 0", "least = p.causal ? row + 1 - p.offset : 0", plain},
		{"attention_wgmma_kv.cu", "v[e % 2 * 2 + 1]", "v[e % 2 * 2]", wide},
		{"attention_wgmma_kv.cu", "first_of_dropout(p, head) + (u64)(i * BN) * p.keys", "first_of_dropout(p, head)", dropped},
	} {
		dev, a := hopper(t, emu.Config{}), &tensor.Args{Op: ops.OpAttention, DType: tensor.BFloat16}
		c.h.set(a)
		require.NotEmpty(t, cuda.HopperKernel(dev, a), "%+v is left to the kernels of other devices", c.h)
		if !long(t) {
			require.NoError(t, cuda.Alter(dev, c.file, c.from, c.to))
			continue
		}
		want := c.h.run(t, dev, tensor.BFloat16, nil)
		require.NoError(t, cuda.Alter(dev, c.file, c.from, c.to))
		require.NotEqual(t, want, c.h.run(t, dev, tensor.BFloat16, nil), "nobody noticed %s", c.to)
	}
}

func TestLongWrongConstantsInAttentionOnHopper(t *testing.T) {
	reliability.AsLong(t, TestWrongConstantsInAttentionOnHopper)
}

// hopper is a device with kernels for compute capability 9.0, or the test is skipped.
func hopper(t *testing.T, c emu.Config) *cuda.Device {
	t.Helper()
	t.Setenv("RINGO_HOPPER", "1")
	emu.Start(t, c)
	dev := open(t, 0)
	if !cuda.Hopper(dev, true) {
		require.True(t, emu.Real(), "the emulator has compute capability 9.0")
		t.Skip("the GPU has not compute capability 9.0")
	}
	return dev
}

// hopperCrossed are cases of cross-attention: heads of 48 to 128 features, of which several share their keys, offsets that hide all keys
// from some queries, or none, lengths, documents and dropout, with tiles that are full, empty and between.
func hopperCrossed(t *testing.T) (cases []crossed) {
	cases = []crossed{
		{shape: shape{batch: 1, tq: 70, tk: 150, heads: 2, kv: 1, hd: 64, offset: 80, causal: true}},
		{shape: shape{batch: 1, tq: 70, tk: 92, heads: 2, kv: 1, hd: 128, offset: -20, causal: true, drop: 0.3}},
	}
	if !long(t) {
		return cases
	}
	lengths := ints(4, func(b int) int { return []int{33, 0, 200, 64}[b] })
	qdocs, kdocs := ints(4*150, func(i int) int { return i%150/41 + i/150 }), ints(4*200, func(j int) int { return j%200/60 + j/200 })
	for _, s := range []shape{
		{batch: 1, tq: 1, tk: 65, heads: 2, kv: 2, hd: 64, offset: 64, causal: true},
		{batch: 2, tq: 3, tk: 130, heads: 4, kv: 2, hd: 48, offset: 127, causal: true},
		{batch: 1, tq: 330, tk: 33, heads: 3, kv: 1, hd: 80, offset: -297, causal: true},
		{batch: 1, tq: 70, tk: 70, heads: 2, kv: 2, hd: 64, offset: -200, causal: true},
		{batch: 1, tq: 5, tk: 70, heads: 2, kv: 1, hd: 96, offset: 1000, causal: true},
		{batch: 2, tq: 265, tk: 529, heads: 6, kv: 2, hd: 64, offset: 264, causal: true},
		{batch: 1, tq: 400, tk: 192, heads: 2, kv: 1, hd: 128, offset: 5, causal: true},
		{batch: 1, tq: 63, tk: 300, heads: 2, kv: 1, hd: 112},
		{batch: 1, tq: 384, tk: 384, heads: 2, kv: 2, hd: 64, causal: true},
		{batch: 2, tq: 267, tk: 140, heads: 4, kv: 1, hd: 64, drop: 0.3},
		{batch: 1, tq: 167, tk: 260, heads: 2, kv: 1, hd: 48, offset: 93, causal: true, drop: 0.3},
		{batch: 1, tq: 270, tk: 268, heads: 2, kv: 2, hd: 96, causal: true, drop: 0.1},
	} {
		cases = append(cases, crossed{shape: s})
	}
	for i, c := range []crossed{{lengths: lengths}, {qdocs: qdocs, kdocs: kdocs}, {lengths: lengths, qdocs: qdocs, kdocs: kdocs}} {
		for j, hd := range []int{48, 64, 80, 128} {
			c.shape = shape{batch: 4, tq: 150, tk: 200, heads: 2, kv: 1, hd: hd, offset: 50 - 70*(j%2), causal: (i+j)%2 == 0}
			if i == 0 {
				c.drop = 0.3 * float64(j/2)
			}
			cases = append(cases, c)
		}
	}
	return cases
}

// TestCrossAttentionOnHopper compares with the CPU, and two runs. Threads in the other order give the same bits.
func TestCrossAttentionOnHopper(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	var wants, gots [][]operand
	for _, reverse := range []bool{false, true} {
		dev := hopper(t, emu.Config{Reverse: reverse, Banks: true})
		for i, c := range hopperCrossed(t) {
			d := []tensor.DType{tensor.BFloat16, tensor.Float16}[i%2]
			name := fmt.Sprintf("%v %+v", d, c.shape)
			if !reverse {
				wants = append(wants, c.run(t, host, d, nil))
			}
			got := c.run(t, dev, d, wants[i])
			requireNear(t, wants[i], got, c.tolerance(), name)
			if reverse {
				require.Equal(t, gots[i], got, name)
			}
			gots = append(gots, got)
		}
		for _, name := range cuda.Compiled(dev, "attention") {
			require.Contains(t, name, "wgmma")
		}
	}
}

func TestLongCrossAttentionOnHopper(t *testing.T) { reliability.AsLong(t, TestCrossAttentionOnHopper) }

// Sums keep their scale over 64 tiles and more whose maximum is that of the first one: of equal keys with values 1, then -1, they are 0.
func TestSumsKeepTheirScale(t *testing.T) {
	const keys, hd = 8192, 64
	c, d := crossed{shape: shape{batch: 1, tq: 1, tk: keys, heads: 1, kv: 1, hd: hd}}, tensor.BFloat16
	equal := func(n int, v float64) operand { return values(d, n, func(int) float64 { return v }) }
	x := []operand{stale(d, hd), stale(tensor.Float32, 1), equal(hd, 1.1), equal(keys*hd, -1.3),
		values(d, keys*hd, func(i int) float64 { return float64(1 - 2*(i/(keys*hd/2))) }), {}, {}, {}}
	l := launch{op: ops.OpCrossAttention, d: d, outs: 2, x: x, set: c.set}
	host := cpu.New(1)
	defer host.Close()
	want := l.exactly(t, host)[1].at(0)
	check := func(kernel string, dev *cuda.Device) {
		got := l.on(t, dev)
		require.Zero(t, got[0].at(0), kernel)
		require.InEpsilon(t, want, got[1].at(0), 1e-6, kernel)
		require.Equal(t, []string{kernel}, cuda.Compiled(dev, "attention"))
	}
	check("attention_mma", device(t))
	check("attention_wgmma", hopper(t, emu.Config{}))
}

// noticed reports whether run gives other results, or an error, on a device whose kernels of a file have `to` in place of `from`.
func noticed(t *testing.T, file, from, to string, reverse bool, run func(dev *cuda.Device) []operand) bool {
	t.Helper()
	t.Setenv("RINGO_HOPPER", "1")
	emu.Start(t, emu.Config{Reverse: reverse})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() {
		emu.Heal()
		_ = dev.Close() // it tells of the failure
	}()
	want := run(dev)
	got := want
	require.NoError(t, cuda.Alter(dev, file, from, to))
	err = tensor.Try(func() { got = run(dev) })
	return err != nil || !assert.ObjectsAreEqual(want, got)
}

// TestLongDeletedWaitsOnHopper takes barriers, waits and fences out of the kernels for compute capability 9.0, or gives stages back before
// they are read.
func TestLongDeletedWaitsOnHopper(t *testing.T) {
	reliability.SkipUnlessLong(t)
	emu.Only(t, "a GPU may be right by chance")
	g := grouped{264, 328, []int{0, 257, 65, 1, 130}, true, 0}
	shared := crossed{shape: shape{batch: 2, tq: 330, tk: 400, heads: 2, kv: 1, hd: 64, offset: 70, causal: true},
		lengths: ints(2, func(b int) int { return 395 - 100*b })}
	product := func(l launch) func(t *testing.T, dev *cuda.Device) []operand {
		return func(t *testing.T, dev *cuda.Device) []operand { return l.on(t, dev)[:1] }
	}
	unseen := crossed{shape: shape{batch: 1, tq: 700, tk: 100, heads: 2, kv: 1, hd: 64, offset: -600, causal: true}} // tiles without a key
	of := func(c crossed) func(t *testing.T, dev *cuda.Device) []operand {
		return func(t *testing.T, dev *cuda.Device) []operand { return c.run(t, dev, tensor.BFloat16, nil) }
	}
	attention := of(shared)
	ring := ringed{d: tensor.BFloat16, rows: 9, cols: 16392}.both()
	loss := func(t *testing.T, dev *cuda.Device) []operand { return ring.on(t, dev)[:3] }
	for _, c := range []struct {
		file, from, to string
		run            func(t *testing.T, dev *cuda.Device) []operand
	}{
		{"grouped_wgmma.cu", "barrier_wait(full + 8 * ring.slot, ring.phase);", "", product(g.forward(tensor.BFloat16))},
		{"grouped_wgmma.cu", "barrier_wait(empty + 8 * ring.slot, ring.phase ^ 1);", "", product(g.forward(tensor.BFloat16))},
		{"grouped_wgmma.cu", "wgmma_fence();\n#pragma", "\n#pragma", product(g.forward(tensor.BFloat16))},
		{"grouped_wgmma.cu", "wgmma_wait<1>();  // the", "wgmma_wait<2>();  // the", product(g.forward(tensor.BFloat16))},
		{"grouped_wgmma.cu", "wgmma_wait<0>();", "", product(g.forward(tensor.BFloat16))},
		{"grouped_wgmma.cu", "  barriers_ready();", "", product(g.forward(tensor.BFloat16))},
		{"grouped_wgmma.cu", "  __syncthreads();", "", product(g.forward(tensor.BFloat16))},
		{"grouped_wgmma.cu", "  see_stores();", "", product(g.grad(tensor.BFloat16))},
		{"grouped_wgmma.cu", "group_barrier(role + 1);", "", product(g.grad(tensor.BFloat16))},
		{"grouped_wgmma.cu", "barrier_expect(full + 8 * ring.slot, STAGE);", "barrier_expect(full + 8 * ring.slot, STAGE - 16);",
			product(g.forward(tensor.BFloat16))},
		{"attention_wgmma.cu", "wgmma_wait<1>();", "", attention},
		{"attention_wgmma.cu", "barrier_wait(q_empty + 8 * s, (nq / OWN & 1) ^ 1);", "", of(unseen)},
		{"attention_wgmma.cu", "barrier_wait(v_full + 8 * (nv % STAGES), nv / STAGES & 1);\n        if", "if", attention},
		{"attention_wgmma.cu", "release(k_empty + 8 * ks);\n          if", "if", attention},
		{"attention_wgmma.cu", "  last_turn(wg);", "", attention},
		{"attention_wgmma_q.cu", "wgmma_wait<1>();", "", attention},
		{"attention_wgmma_q.cu", "barrier_wait(q_empty + 8 * s, (nq / OWN & 1) ^ 1);", "", of(unseen)},
		{"attention_wgmma_q.cu", "    see_stores();", "", attention},
		{"attention_wgmma_kv.cu", "barrier_wait(do_full + 8 * st, nq / STAGES & 1);", "", attention},
		{"attention_wgmma_kv.cu", "TILE_BYTES + STAT_BYTES);", "TILE_BYTES);", attention},
		{"attention_wgmma_kv.cu", "    see_stores();", "", attention},
		{"attention_wgmma_kv.cu", "release(own_empty + 8 * os);", "", attention},
		{"cross_entropy_ring.cu", "  threads_wait<LANES>(1);", "", loss},
		{"cross_entropy_ring.cu", "    barriers_ready();", "", loss},
		{"cross_entropy_ring.cu", "  __syncthreads();", "", loss},
		{"cross_entropy_ring.cu", "barrier_init(empty + 8 * i, WARPS)", "barrier_init(empty + 8 * i, 1)", loss},
	} {
		seen := false
		for _, reverse := range []bool{false, true} {
			seen = seen || noticed(t, c.file, c.from, c.to, reverse, func(dev *cuda.Device) []operand { return c.run(t, dev) })
		}
		assert.True(t, seen, "nobody noticed that %s has %q in place of %q", c.file, c.to, c.from)
	}
}
