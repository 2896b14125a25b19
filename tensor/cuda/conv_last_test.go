package cuda_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// convCase is the sizes of a convolution, of all channels.
type convCase struct{ n, in, h, w, out, groups, kh, kw, sh, sw, ph, pw, dh, dw int }

func (c convCase) args() (a tensor.Args) {
	a.Dim = [6]int{c.n, c.in, c.h, c.w, c.out, c.groups}
	a.I = [8]int{c.kh, c.kw, c.sh, c.sw, c.ph, c.pw, c.dh, c.dw}
	return a
}

// few are those of the short runs: channels that are no multiple of 8, groups, strides, paddings, dilations, both tiles, several tiles and
// parts, and an empty batch.
var few = []convCase{
	{2, 34, 7, 9, 48, 2, 3, 2, 3, 2, 1, 1, 1, 2},
	{1, 17, 6, 4, 130, 1, 1, 1, 1, 1, 0, 0, 1, 1},
	{3, 16, 17, 12, 16, 1, 2, 3, 1, 1, 1, 1, 1, 1},
	{0, 16, 5, 5, 16, 1, 3, 3, 1, 1, 1, 1, 1, 1},
}

var many = []convCase{
	{2, 40, 13, 11, 17, 1, 7, 7, 2, 2, 3, 3, 1, 1},
	{2, 48, 8, 8, 80, 2, 3, 3, 1, 1, 1, 1, 1, 1},
	{1, 130, 5, 4, 70, 1, 1, 1, 1, 1, 0, 0, 1, 1},
	{5, 16, 12, 12, 24, 1, 3, 3, 3, 3, 0, 1, 1, 1},
	{3, 51, 9, 10, 120, 3, 3, 3, 1, 1, 2, 2, 2, 2},
	{1, 16, 3, 5, 16, 1, 1, 2, 4, 4, 0, 0, 1, 1}, // stride over the kernel: some pixels of x are not read
	{2, 16, 2, 9, 16, 1, 2, 1, 3, 1, 0, 0, 1, 1}, // more classes of rows than rows
	{9, 32, 14, 14, 64, 1, 3, 3, 1, 1, 1, 1, 1, 1},
	{2, 8, 6, 6, 4, 1, 7, 9, 1, 1, 4, 4, 1, 1}, // few channels, the largest kernel
}

// TestConvolutionsChannelsLast: 16-bit convolutions and their gradients by conv_last.cu are those of the CPU, and have the same bits again,
// for another number of multiprocessors.
func TestConvolutionsChannelsLast(t *testing.T) {
	convolutionsChannelsLast(t, few, []tensor.DType{tensor.BFloat16}, true)
}

func TestLongConvolutionsChannelsLast(t *testing.T) {
	reliability.SkipUnlessLong(t)
	both := []tensor.DType{tensor.BFloat16, tensor.Float16}
	convolutionsChannelsLast(t, append(many, few...), both, true)
	convolutionsChannelsLast(t, append(many, few...), both, false)
}

func convolutionsChannelsLast(t *testing.T, cases []convCase, types []tensor.DType, reverse bool) {
	emu.Start(t, emu.Config{Reverse: reverse, Banks: true})
	dev := open(t, 0)
	cuda.ChannelsLast(dev)
	host := cpu.New(1)
	defer host.Close()
	for i, c := range cases {
		all := c.args()
		set, o := func(a *tensor.Args) { a.Dim, a.I = all.Dim, all.I }, ops.ConvOf(&all)
		each(t, types, func(t *testing.T, d tensor.DType) {
			r := rng(7)
			x, w := random(r, d, c.n*c.in*c.h*c.w), random(r, d, c.out*c.in/c.groups*c.kh*c.kw)
			b, g, xb := random(r, d, c.out), random(r, d, c.n*c.out*o.OutH*o.OutW), random(r, d, c.in)
			launches := []launch{
				{op: ops.OpConv2d, x: []operand{stale(d, g.n()).shifted(i % 2), x, w, b}},
				{op: ops.OpConvTranspose2d, x: []operand{stale(d, x.n()), g, w, xb}},
				{op: ops.OpConv2dGradW, x: []operand{w, x, g.shifted(i % 2)}, group: 1},
			}
			if long(t) {
				launches = append(launches, launch{op: ops.OpConv2d, x: []operand{stale(d, g.n()), x.shifted(1), w}},
					launch{op: ops.OpConv2dGradX, x: []operand{stale(d, x.n()).shifted(1), g, w}},
					launch{op: ops.OpConv2dGradW, x: []operand{stale(d, w.n()), x, g}})
			}
			for _, l := range launches {
				l.d, l.outs, l.set = d, 1, set
				if l.group == 1 {
					l.set = func(a *tensor.Args) { set(a); a.F[0] = 1 }
				}
				want, got := l.exactly(t, host), l.on(t, dev)
				requireRounded(t, want[0], got[0], fmt.Sprintf("%v %v of %+v", l.op, d, c))
				cuda.SetMultiprocessors(dev, 1+i)
				require.Equal(t, got[0].bytes, l.on(t, dev)[0].bytes, "%v %v of %+v again", l.op, d, c)
			}
		})
	}
	for _, name := range cuda.Compiled(dev, "conv_") {
		require.Contains(t, name, "conv_last_", "what computed it")
	}
	require.NotEmpty(t, cuda.Compiled(dev, "conv_last_ends"))
}

// launches are y and the gradients of x and of w, which have fewer than 65 channels.
func (c convCase) launches(d tensor.DType) []launch {
	a, r := c.args(), rng(7)
	o, set := ops.ConvOf(&a), func(to *tensor.Args) { to.Dim, to.I = a.Dim, a.I }
	x, w, g := random(r, d, c.n*c.in*c.h*c.w), random(r, d, c.out*c.in/c.groups*c.kh*c.kw), random(r, d, c.n*c.out*o.OutH*o.OutW)
	return []launch{
		{op: ops.OpConv2d, d: d, outs: 1, x: []operand{stale(d, g.n()), x, w}, set: set},
		{op: ops.OpConv2dGradX, d: d, outs: 1, x: []operand{stale(d, x.n()), g, w}, set: set},
		{op: ops.OpConv2dGradW, d: d, outs: 1, x: []operand{stale(d, w.n()), x, g}, set: set},
	}
}

// wereLast says which of launches had channels last on a device that did nothing else.
func wereLast(t *testing.T, dev *cuda.Device) (are [3]bool) {
	compiled := cuda.Compiled(dev, "conv_")
	for i, name := range []string{"64", "grad_x_64", "grad_w_64"} {
		are[i] = slices.Contains(compiled, "conv_last_"+name)
		require.Equal(t, !are[i], slices.Contains(compiled, "conv_"+name), "%v", compiled)
	}
	return are
}

// What convolutions take for channels last is not half as much again.
func TestLargeScratch(t *testing.T) {
	dev := device(t)
	require.Equal(t, 1536, cuda.Scratch(dev, 1024))
	if !long(t) {
		return
	}
	require.Equal(t, 96<<20-6, cuda.Scratch(dev, 64<<20-4))
	require.Equal(t, 96<<20-6, cuda.Scratch(dev, 80<<20))
	require.Equal(t, 97<<20, cuda.Scratch(dev, 97<<20))
}

func TestLongLargeScratch(t *testing.T) { reliability.AsLong(t, TestLargeScratch) }

// TestLaunchesChannelsLast: what is launched over the least numbers has channels last, and what is under one of them has not.
func TestLaunchesChannelsLast(t *testing.T) {
	square := convCase{1, 32, 16, 16, 32, 1, 3, 3, 1, 1, 1, 1, 1, 1}
	const work = 16 * 16 * 32 * 32 * 9
	for _, x := range []struct {
		c                     convCase
		channels, reuse, work int
		want                  [3]bool
	}{
		{square, 32, 128, work, [3]bool{true, true, true}},
		{square, 33, 128, work, [3]bool{}},
		{square, 32, 128, work + 1, [3]bool{}},
		{square, 32, 9*32 + 1, work, [3]bool{}},
		// The first has few pixels, the second few channels, of one kind.
		{convCase{1, 24, 16, 24, 16, 1, 3, 3, 1, 1, 1, 1, 1, 1}, 16, 120, 0, [3]bool{false, true, false}},
		{convCase{1, 16, 16, 24, 24, 1, 3, 3, 1, 1, 1, 1, 1, 1}, 16, 120, 0, [3]bool{true, false, false}},
	} {
		dev := device(t)
		cuda.LastLeast(dev, x.channels, x.reuse, x.work)
		for _, l := range x.c.launches(tensor.BFloat16) {
			l.on(t, dev)
		}
		require.Equal(t, x.want, wereLast(t, dev), "%+v", x)
		a := x.c.args()
		require.Equal(t, x.want, cuda.PutsChannelsLast(dev, tensor.BFloat16, ops.ConvOf(&a)), "%+v", x)
	}
}

// TestChannelsLastWithoutMemory: where the device has no memory for channels last, conv.cu computes it. Later, too.
func TestChannelsLastWithoutMemory(t *testing.T) {
	emu.Only(t, "a GPU has too much memory")
	for i, l := range (convCase{1, 16, 64, 64, 16, 1, 1, 1, 1, 1, 0, 0, 1, 1}).launches(tensor.BFloat16) {
		emu.Start(t, emu.Config{Memory: 8 << 20})
		dev := open(t, 0)
		cuda.ChannelsLast(dev)
		var all []tensor.Ptr
		for {
			p, err := dev.Alloc(16 << 10)
			if err != nil {
				break
			}
			all = append(all, p)
		}
		free := func(bytes int) {
			for ; bytes > 0; bytes -= 16 << 10 {
				dev.Free(all[0])
				all = all[1:]
			}
		}
		free(64 << 10) // more than other kernels need
		for _, x := range l.x {
			free(len(x.bytes) + 1<<10)
		}
		host := cpu.New(1)
		want := l.exactly(t, host)
		host.Close()
		got := l.on(t, dev)
		requireRounded(t, want[0], got[0], fmt.Sprint(l.op))
		free(len(all) << 14)
		require.Equal(t, got[0].bytes, l.on(t, dev)[0].bytes, "%v", l.op)
		compiled := cuda.Compiled(dev, "conv_")
		require.Contains(t, compiled, []string{"conv_64", "conv_grad_x_64", "conv_grad_w_64"}[i])
		require.NotContains(t, strings.Join(compiled, " "), "last")
	}
}

// requireRounded wants each element to be a neighbour, among the numbers of 16 bits, of what it should be, apart from the order of sums.
func requireRounded(t *testing.T, want, got operand, what string) {
	t.Helper()
	most, eps := 0.0, map[tensor.DType]float64{tensor.BFloat16: 0x1p-7, tensor.Float16: 0x1p-10}[want.d]
	for i := range want.n() {
		most = max(most, math.Abs(want.at(i)))
	}
	for i := range want.n() {
		if v := want.at(i); !(math.Abs(v-got.at(i)) <= eps*math.Abs(v)+1e-5*most) {
			t.Fatalf("%s: element %d of %d is %v, want %v", what, i, want.n(), got.at(i), v)
		}
	}
}

// Channels come last where the study says that it is faster, and memory for it is small.
func TestWhereChannelsAreLast(t *testing.T) {
	dev := device(t)
	for _, c := range []struct {
		what string
		d    tensor.DType
		c    convCase
		want [3]bool // forward, the gradients of x and of w
	}{
		{"the study's", tensor.BFloat16, convCase{128, 64, 32, 32, 128, 1, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{true, true, true}},
		{"float16", tensor.Float16, convCase{64, 128, 28, 28, 128, 1, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{true, true, true}},
		{"float32", tensor.Float32, convCase{128, 64, 32, 32, 128, 1, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{}},
		{"groups of 16", tensor.BFloat16, convCase{64, 64, 56, 56, 64, 4, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{true, true, false}},
		{"groups of 15", tensor.BFloat16, convCase{64, 60, 56, 56, 64, 4, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{}},
		{"1x1 to few channels", tensor.BFloat16, convCase{64, 256, 56, 56, 64, 1, 1, 1, 1, 1, 0, 0, 1, 1}, [3]bool{}},
		{"1x1 to 192 channels", tensor.BFloat16, convCase{64, 256, 56, 56, 192, 1, 1, 1, 1, 1, 0, 0, 1, 1}, [3]bool{true, true, false}},
		{"MNIST's second layer", tensor.BFloat16, convCase{128, 32, 14, 14, 64, 1, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{}},
		{"one small picture", tensor.BFloat16, convCase{1, 64, 7, 7, 64, 1, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{}},
		{"63 taps", tensor.BFloat16, convCase{32, 16, 64, 64, 16, 1, 9, 7, 1, 1, 4, 3, 1, 1}, [3]bool{true, true, true}},
		{"64 taps", tensor.BFloat16, convCase{32, 16, 64, 64, 16, 1, 8, 8, 1, 1, 4, 4, 1, 1}, [3]bool{}},
		{"2^16 groups of pictures", tensor.BFloat16, convCase{1 << 15, 64, 4, 4, 64, 2, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{}},
		{"more than 1 GiB of x", tensor.BFloat16, convCase{512, 128, 96, 96, 16, 1, 3, 3, 1, 1, 1, 1, 1, 1}, [3]bool{false, true, false}},
	} {
		a := c.c.args()
		require.Equal(t, c.want, cuda.PutsChannelsLast(dev, c.d, ops.ConvOf(&a)), c.what)
	}
}
