package kernel

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// caseBF16 is a product whose buffers have guards.
type caseBF16 struct {
	g          GemmBF16
	rng        *rand.Rand
	a, b, h    []BF16
	c          []float32
	wantsFloat bool
}

// newBF16 makes a product of the numbers that value returns, in float32 (into C) or
// bfloat16 (into H).
func newBF16(seed uint64, ta, tb bool, m, n, k, pad int, float bool, value func(r *rand.Rand) float32) *caseBF16 {
	c := &caseBF16{rng: rand.New(rand.NewPCG(seed, 1)), wantsFloat: float}
	matrix := func(trans bool, rows, cols int) (buf, x []BF16, ld int) {
		if trans {
			rows, cols = cols, rows
		}
		ld = cols + pad
		buf = make([]BF16, max(0, (rows-1)*ld+cols)+2*guard)
		for i := range buf {
			buf[i] = ToBF16(value(c.rng))
		}
		return buf, inner(buf), ld
	}
	g := &c.g
	*g = GemmBF16{TransA: ta, TransB: tb, M: m, N: n, K: k, Alpha: 1}
	c.a, g.A, g.LDA = matrix(ta, m, k)
	c.b, g.B, g.LDB = matrix(tb, k, n)
	c.h, g.H, g.LDC = matrix(false, m, n)
	if c.c = make([]float32, len(c.h)); float {
		BF16ToF32(c.c, c.h)
		g.H, g.C = nil, inner(c.c)
	}
	return c
}

func smallInt(r *rand.Rand) float32   { return float32(r.IntN(9) - 4) }
func realNumber(r *rand.Rand) float32 { return 2*r.Float32() - 1 }

// withBias adds a bias of other numbers.
func (c *caseBF16) withBias(value func(r *rand.Rand) float32) *caseBF16 {
	if !c.wantsFloat {
		c.g.Bias = make([]BF16, c.g.N)
		for i := range c.g.Bias {
			c.g.Bias[i] = ToBF16(value(c.rng))
		}
	}
	return c
}

// result returns the result with its guards, in float32, after f.
func (c *caseBF16) result(f func(g *GemmBF16)) []float32 {
	g := c.g
	if c.wantsFloat {
		buf := append([]float32(nil), c.c...)
		g.C = inner(buf)
		f(&g)
		return buf
	}
	buf := append([]BF16(nil), c.h...)
	g.H = inner(buf)
	f(&g)
	wide := make([]float32, len(buf))
	BF16ToF32(wide, buf)
	return wide
}

func (c *caseBF16) reference() []float32 {
	return remembered(c.String(), func() []float32 { return c.result(RefGemmBF16) },
		bytesOf(c.a), bytesOf(c.b), bytesOf(c.h), bytesOf(c.c), bytesOf(c.g.Bias))
}

// run returns the result of e in one block, in a workspace with guards.
func (c *caseBF16) run(t *testing.T, e *engineBF16) []float32 {
	t.Helper()
	ws, done := workspaceBF16(e)
	defer done()
	a, b := append([]BF16(nil), c.a...), append([]BF16(nil), c.b...)
	got := c.result(func(g *GemmBF16) { e.block(g, inner(ws), 0, g.M, 0, g.N) })
	require.True(t, slices.Equal(a, c.a) && slices.Equal(b, c.b), "wrote into an operand")
	for i := range guard {
		if !isNaN(ws[i]) || !isNaN(ws[len(ws)-1-i]) {
			require.Fail(t, "wrote outside the workspace")
		}
	}
	return got
}

var workspacesBF16 sync.Map // of *sync.Pool, by length

// workspaceBF16 returns a workspace with guards. It is not aligned, and full of NaN
// at first. After done it can be used again.
func workspaceBF16(e *engineBF16) (ws []float32, done func()) {
	n := e.workspace()
	pool, _ := workspacesBF16.LoadOrStore(n, &sync.Pool{New: func() any {
		ws := filled(n+2*guard+1, float32(math.NaN()))[1:]
		return &ws
	}})
	kept := pool.(*sync.Pool).Get().(*[]float32)
	return *kept, func() { pool.(*sync.Pool).Put(kept) }
}

func (c *caseBF16) String() string {
	g := c.g
	return fmt.Sprintf("%s %dx%dx%d alpha %v beta %v strides %d %d %d float32 %v bias %v",
		transName(g.TransA, g.TransB), g.M, g.N, g.K, g.Alpha, g.Beta, g.LDA, g.LDB, g.LDC, c.wantsFloat, g.Bias != nil)
}

// String says what the engine multiplies.
func (e *engineBF16) String() string {
	switch {
	case e.tiles != nil:
		return "tiles"
	case e.pair == 2:
		return "pairs"
	}
	return "widened"
}

// onEveryBF16 runs a test for each engine of each instruction set, and for the Go
// engines that emulate AVX512-BF16 and AMX: in the short form, for what the CPU has
// not. exact says that the bits must be those of RefGemmBF16.
func onEveryBF16(t *testing.T, f func(t *testing.T, e *engineBF16, exact bool)) {
	t.Helper()
	onBF16(t, reliability.Long(t), f)
}

func onBF16(t *testing.T, emulateAll bool, f func(t *testing.T, e *engineBF16, exact bool)) {
	t.Helper()
	for _, s := range isas {
		for _, e := range s.bf16 {
			t.Run(fmt.Sprintf("%s/%s", s.name, e), func(t *testing.T) {
				withISA(s, func() { f(t, e, e.pair == 2 && e.tiles == nil) })
			})
		}
	}
	for name, e := range map[string]*engineBF16{"emulated": emulatedDot(), "emulated AMX": emulatedAMX()} {
		if emulateAll || !hasReal(e) {
			t.Run(name, func(t *testing.T) { f(t, e, e.tiles == nil) })
		}
	}
}

func TestLongBF16(t *testing.T) {
	reliability.SkipUnlessLong(t)
	for name, test := range map[string]func(t *testing.T){
		"Exact": TestGemmBF16Exact, "EveryTile": TestGemmBF16EveryTile, "Blocks": TestGemmBF16Blocks, "Rounding": TestGemmBF16Rounding,
		"AnyBits": TestGemmBF16AnyBits, "Denormal": TestGemmBF16Denormal, "Cuts": TestGemmBF16Cuts, "FewRows": TestFewRowsBF16,
		"IgnoresResult": TestGemmBF16IgnoresResultWithBetaZero, "Rows": TestRowsHaveTheBitsOfTheBatchBF16,
		"Tiles": TestTilesHaveTheBitsOfTheirDefinition, "Accurate": TestAttentionBF16IsAccurate,
		"Attention": TestAttentionBF16, "Masks": TestAttentionMasksBF16, "Windows": TestAttentionWindowsBF16,
	} {
		t.Run(name, test)
	}
}

// Integers are exact in every order of summation.
func TestGemmBF16Exact(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		rng := rand.New(rand.NewPCG(7, 7))
		size := func() int { return 1 + rng.IntN(70) }
		scale := []float32{0, 1, 0.5}
		for i := range many(t, 72, 144) {
			tr := transposes[i%4]
			c := newBF16(uint64(i), tr[0], tr[1], size(), size(), size(), i%3*5, i%2 == 0, smallInt)
			if c.g.Alpha, c.g.Beta = scale[i/4%3], scale[i/12%3]; i%5 == 0 {
				c.withBias(smallInt)
			}
			requireSameBits(t, c.reference(), c.run(t, e), c)
		}
	})
}

// Every height and width of a micro-tile, with one and several turns of k.
func TestGemmBF16EveryTile(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		for m := 1; m <= e.rows; m++ {
			step := 1
			if e.tiles != nil {
				step = 5 // kernels of tiles differ only in their rows
			}
			for n := 1; n <= e.cols; n += step {
				c := newBF16(uint64(m*100+n), m%2 == 0, n%2 == 0, m, n, 1+(5*m+n)%39, n%3, n%4 < 2, smallInt)
				c.g.Beta = float32(m % 2)
				requireSameBits(t, c.reference(), c.run(t, e), c)
			}
		}
	})
}

// Shapes that are larger than the blocks of K, of rows and of columns.
func TestGemmBF16Blocks(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		kc := e.pair * e.kc
		for i, s := range [][3]int{
			{e.mc + 21, 67, 30}, {29, sumColumns + 35, 33}, {31, 45, 2*kc + 7}, {e.mc + 1, 3, kc + 1}, {3, sumColumns + 3, kc + 2}, {e.rows, 5, kc},
		} {
			if later(t, i, 2) {
				continue
			}
			tr := transposes[i*3/2%4]
			c := newBF16(uint64(i), tr[0], tr[1], s[0], s[1], s[2], 3, i%3 == 0, smallInt).withBias(smallInt)
			c.g.Alpha, c.g.Beta = 0.5, float32(i/2%2)
			requireSameBits(t, c.reference(), c.run(t, e), c)
		}
	})
}

// Engines that sum pairs have the bits of the reference. For the others, the
// difference from the reference is at most twice the rounding of each of k
// additions, and the rounding of the result.
func TestGemmBF16Rounding(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, exact bool) {
		for i, k := range []int{1, 2, 17, 100, 431, 2*e.pair*e.kc + 30} {
			for j, tr := range transposes {
				if later(t, i+j/2, 2) {
					continue
				}
				c := newBF16(uint64(i), tr[0], tr[1], 15, 37, k, i, j%2 == 0, realNumber).withBias(realNumber)
				c.g.Alpha, c.g.Beta = 0.3, 0.7
				want, got := c.reference(), c.run(t, e)
				if exact {
					requireSameBits(t, want, got, c)
					continue
				}
				for p := range want {
					tol := 4*0x1p-24*float64(k+4)*math.Sqrt(float64(k+4)) + 0x1p-8*math.Abs(float64(want[p]))
					require.InDelta(t, want[p], got[p], tol, c)
				}
			}
		}
	})
}

// Any bits: NaN, infinite, subnormal, overflowing.
func TestGemmBF16AnyBits(t *testing.T) {
	anything := func(r *rand.Rand) float32 { return BF16(r.Uint32()).Float32() }
	onEveryBF16(t, func(t *testing.T, e *engineBF16, exact bool) {
		for i := range 100 {
			tr := transposes[i%4]
			c := newBF16(uint64(i), tr[0], tr[1], 1+i%17, 1+i%37, 1+i%5, 1, i%3 == 0, anything).withBias(anything)
			want, got := c.reference(), c.run(t, e)
			if exact {
				requireSameBits(t, want, got, c)
			}
			require.Equal(t, countNonFinite(want) > 0, countNonFinite(got) > 0, c)
		}
	})
}

// Numbers near the smallest ones: results are correct to 2**-120.
func TestGemmBF16Denormal(t *testing.T) {
	tiny := func(r *rand.Rand) float32 { return BF16(r.Uint32() & 0xa0ff).Float32() } // below 2**-61
	onEveryBF16(t, func(t *testing.T, e *engineBF16, exact bool) {
		for i := range 60 {
			tr := transposes[i%4]
			c := newBF16(uint64(i), tr[0], tr[1], 1+i%17, 1+i%37, 1+i%5, 1, i%3 == 0, tiny)
			want, got := c.reference(), c.run(t, e)
			if exact {
				requireSameBits(t, want, got, c)
			}
			for p := range want {
				require.InDelta(t, want[p], got[p], 0x1p-120+0x1p-7*math.Abs(float64(want[p])), c)
			}
		}
	})
}

// The bits do not depend on how the result is cut.
func TestGemmBF16Cuts(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		ws := make([]float32, e.workspace())
		for i, tr := range transposes {
			c := newBF16(uint64(i), tr[0], tr[1], 35, 40, e.pair*e.kc+5, 2, i%2 == 0, realNumber).withBias(realNumber)
			c.g.Beta = float32(i / 2)
			got := c.result(func(g *GemmBF16) {
				for r := range 2 {
					for col := range 3 {
						i0, i1 := GemmPart(g.M, 2, r)
						j0, j1 := GemmPart(g.N, 3, col)
						e.block(g, ws, i0, i1, j0, j1)
					}
				}
			})
			requireSameBits(t, c.run(t, e), got, c)
		}
	})
}

func TestGemmBF16IgnoresResultWithBetaZero(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		for i, s := range [][3]int{{1, 1, 1}, {17, 35, 9}, {30, 70, 2*e.pair*e.kc + 1}, {5, 7, 0}} {
			c := newBF16(uint64(i), false, true, s[0], s[1], s[2], 0, i%2 == 0, smallInt)
			want := c.reference()
			copy(c.g.C, filled(len(c.g.C), float32(math.NaN())))
			for p := range c.g.H {
				c.g.H[p] = ToBF16(float32(math.NaN()))
			}
			requireSameBits(t, want, c.run(t, e), c)
		}
	})
}

func TestGemmBF16RefusesWrongSlices(t *testing.T) {
	ws := make([]float32, GemmBF16Workspace())
	for name, change := range map[string]func(g *GemmBF16){
		"A is 3 x 5":                  func(g *GemmBF16) { g.A = g.A[:14] },
		"B is 5 x 4":                  func(g *GemmBF16) { g.B = nil },
		"H is 3 x 4":                  func(g *GemmBF16) { g.H = g.H[1:] },
		"C is 3 x 4":                  func(g *GemmBF16) { g.H = nil },
		"both C and H":                func(g *GemmBF16) { g.C = make([]float32, 12) },
		"a bias of 3 elements for 4 ": func(g *GemmBF16) { g.Bias = g.A[:3] },
	} {
		g := newBF16(1, false, false, 3, 4, 5, 0, false, smallInt).g
		change(&g)
		assert.Contains(t, panicText(func() { GemmBF16Block(&g, ws, 0, 3, 0, 4) }), name)
		assert.Contains(t, panicText(func() { RefGemmBF16(&g) }), name)
	}
	g := newBF16(1, false, false, 3, 4, 5, 0, false, smallInt).g
	assert.Contains(t, panicText(func() { GemmBF16Block(&g, ws[1:], 0, 3, 0, 4) }), "workspace of")
	assert.Contains(t, panicText(func() { GemmBF16Block(&g, ws, 0, 4, 0, 4) }), "rows [0, 4)")
	assert.Zero(t, testing.AllocsPerRun(20, func() { GemmBF16Block(&g, ws, 0, 3, 0, 4) }))
}

// The state of a call of the engine of tiles stays on the stack, also in the
// emulation.
func TestTilesAllocateNothing(t *testing.T) {
	e := emulatedAMX()
	ws := make([]float32, e.workspace())
	for i, rows := range []int{3, 19, 40, 40} { // one tile, two below each other, and more
		g := newBF16(1, i%2 == 0, i%2 == 1, rows, 40, 70, 0, i == 3, smallInt).g
		assert.Zero(t, testing.AllocsPerRun(5, func() { e.block(&g, ws, 0, rows, 0, 40) }), rows)
	}
}

// DotBF16 rounds like an exact computation.
func TestDotBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 100000 {
		a, b, c := BF16(r.Uint32()), BF16(r.Uint32()), math.Float32frombits(r.Uint32())
		if r.IntN(2) == 0 { // similar exponents
			c = a.Float32() * b.Float32() * (1 + 4*r.Float32())
		}
		want := daz(fma32Big(daz(a.Float32()), daz(b.Float32()), daz(c)))
		got := DotBF16(c, [2]BF16{0, a}, [2]BF16{0, b})
		if want != got && !(isNaN(want) && isNaN(got)) {
			require.Equal(t, want, got, "%v*%v + %v", a.Float32(), b.Float32(), c)
		}
	}
	assert.Equal(t, float32(-1), DotBF16(0x1p100, [2]BF16{ToBF16(-1), ToBF16(-0x1p100)}, [2]BF16{ToBF16(1), ToBF16(1)}),
		"the odd element first")
}

// fma32Big is a*b + c in exact arithmetic, rounded once.
func fma32Big(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	if s := p + float64(c); math.IsInf(s, 0) || math.IsNaN(s) || s == 0 {
		return float32(s)
	}
	sum := new(big.Float).SetPrec(2000).SetFloat64(p)
	f, _ := sum.Add(sum, new(big.Float).SetFloat64(float64(c))).Float32()
	return f
}
