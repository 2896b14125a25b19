package main

import "github.com/mmcloughlin/avo/operand"

// pixels are the kernels for decoded pictures.
func pixels() []*spec {
	return []*spec{
		{name: "addScaled", params: parse("dst, x []T, a T"), sizes: singleOnly, doc: "computes dst += a*x.",
			body: func(g *gen) {
				f := g.fp(4)
				a := f.reg(f.arg("a"))
				g.loop(func() {
					g.vectors(4, func(i int) { f.store(f.add(f.mul(f.load("x", i), a), f.at("dst", i)), "dst", i) })
				})
			}},
		{name: "unit", params: parse("dst, x []T"), sizes: singleOnly, doc: "computes dst = min(x/255, 1).",
			body: elementwise("dst", func(f fp, i int) value { return f.least(f.div(f.load("x", i), f.c(255)), f.c(1)) })},
		{name: "smoothChroma", params: parse("near, far []byte, to []uint16, left, right uint32"), amd64: true,
			doc:  "writes two pixels for each sample. It reads the samples before and after those of near and far, too.",
			body: smoothChroma},
		jpegColors.spec("colors", "is color.YCbCrToRGB."),
		webpColors.spec("studioColors", "converts colors of lossy WebP."),
	}
}

func smoothChroma(g *gen) {
	f := g.fp(4)
	left, right := f.reg(f.arg("left")), f.reg(f.arg("right"))
	threefold := func(x value) value { return f.addInt(x, f.addInt(x, x)) }
	column := func(i int) value { return f.addInt(threefold(f.loadByte("near", i)), f.loadByte("far", i)) }
	g.loop(func() {
		g.vectors(4, func(i int) {
			most := threefold(column(i))
			first := f.shiftRight(f.addInt(f.addInt(most, left), column(i-1)), 4)
			second := f.shiftRight(f.addInt(f.addInt(most, right), column(i+1)), 4)
			f.storeWords(f.or(first, f.shiftLeft(second, 8)), "to", i)
		})
	})
}

// colors say how Y, Cb and Cr become red, green and blue: a sum of products, each without its last bits, and of a constant.
type colors struct {
	luma, redCr, greenCb, greenCr, blueCb int
	red, green, blue                      int // the constants
	each, all                             uint64
}

var (
	jpegColors = colors{0x10101, 91881, 22554, 46802, 116130, -91881 * 128, (22554 + 46802) * 128, -116130 * 128, 0, 16}
	webpColors = colors{19077, 26149, 6419, 13320, 33050, -14234, 8708, -17685, 8, 6}
)

func (c colors) spec(name, doc string) *spec {
	return &spec{name: name, params: parse("red, green, blue []float32, y, cb, cr []byte"), amd64: true, doc: doc, body: words(c.convert)}
}

func (c colors) convert(g *gen, i int) {
	f := g.fp(4)
	whole := func(n int) scalar { return f.bits(uint64(uint32(int32(n)))) }
	product := func(x value, n int) value {
		p := f.two("", x, whole(n), four{f.VPMULLD, nil, f.VPMULLD_BCST, nil})
		if c.each > 0 {
			p = f.shiftRight(p, c.each)
		}
		return p
	}
	store := func(sum value, constant int, to string) {
		sum = f.one(f.addInt(sum, whole(constant)), func(a, to operand.Op) { f.VPSRAD(operand.Imm(c.all), a, to) })
		sum = f.two("", sum, whole(0), four{f.VPMAXSD, nil, f.VPMAXSD_BCST, nil})
		sum = f.two("", sum, whole(255), four{f.VPMINSD, nil, f.VPMINSD_BCST, nil})
		f.store(f.one(sum, func(a, to operand.Op) { f.VCVTDQ2PS(a, to) }), to, i)
	}
	luma, cb, cr := product(f.loadByte("y", i), c.luma), f.loadByte("cb", i), f.loadByte("cr", i)
	store(f.addInt(luma, product(cr, c.redCr)), c.red, "red")
	store(f.subInt(f.subInt(luma, product(cb, c.greenCb)), product(cr, c.greenCr)), c.green, "green")
	store(f.addInt(luma, product(cb, c.blueCb)), c.blue, "blue")
}

// loadByte reads a vector of bytes from element i of slice name as integers of 32 bits.
func (f fp) loadByte(name string, i int) value {
	x := f.tmp()
	f.VPMOVZXBD(f.gen.at(name, i), x)
	return x
}
