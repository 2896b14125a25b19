package main

import "fmt"

// Go's assembler does not have most of arm64's vector instructions on floats. The
// generator writes them as numbers, each with its text in the syntax of GNU's
// assembler. A test decodes them.

// neonWord is an instruction for vectors of 4 float32 or 8-bit elements: its number
// with all registers 0, and its text.
type neonWord struct {
	code   uint32
	text   string // with %d, %n and %m for the registers, and %t for the arrangement 4s or 2d
	double bool   // bit 22 chooses 2d
}

// neonWords are these instructions by their names in the generator.
var neonWords = map[string]neonWord{
	"fadd":  {0x4e20d400, "fadd %d.%t, %n.%t, %m.%t", true},
	"fsub":  {0x4ea0d400, "fsub %d.%t, %n.%t, %m.%t", true},
	"fmul":  {0x6e20dc00, "fmul %d.%t, %n.%t, %m.%t", true},
	"fdiv":  {0x6e20fc00, "fdiv %d.%t, %n.%t, %m.%t", true},
	"fmax":  {0x4e20f400, "fmax %d.%t, %n.%t, %m.%t", true},
	"fmin":  {0x4ea0f400, "fmin %d.%t, %n.%t, %m.%t", true},
	"fmls":  {0x4ea0cc00, "fmls %d.%t, %n.%t, %m.%t", true},
	"fmla":  {0x4e20cc00, "fmla %d.%t, %n.%t, %m.%t", true},
	"fcmeq": {0x4e20e400, "fcmeq %d.%t, %n.%t, %m.%t", true},
	"fcmge": {0x6e20e400, "fcmge %d.%t, %n.%t, %m.%t", true},
	"fcmgt": {0x6ea0e400, "fcmgt %d.%t, %n.%t, %m.%t", true},
	"fsqrt": {0x6ea1f800, "fsqrt %d.%t, %n.%t", true},
	"bic":   {0x4e601c00, "bic %d.16b, %n.16b, %m.16b", false},
	// Between sizes: the lower half of the register, and the upper one.
	"fcvtl":  {0x0e617800, "fcvtl %d.2d, %n.2s", false},
	"fcvtl2": {0x4e617800, "fcvtl2 %d.2d, %n.4s", false},
	"fcvtn":  {0x0e616800, "fcvtn %d.2s, %n.2d", false},
	"halfl":  {0x0e217800, "fcvtl %d.4s, %n.4h", false},
	"halfn":  {0x0e216800, "fcvtn %d.4h, %n.4s", false},
	"shll":   {0x2e613800, "shll %d.4s, %n.4h, #16", false},
	"xtn":    {0x0e612800, "xtn %d.4h, %n.4s", false},
}

// word is the line of an instruction for elements of size bytes: registers d, n and m.
func word(name string, size, d, n, m int) string {
	w, ok := neonWords[name]
	if !ok {
		panic("no instruction " + name)
	}
	code, arrangement := w.code|uint32(m)<<16|uint32(n)<<5|uint32(d), "4s"
	if w.double && size == 8 {
		code, arrangement = code|1<<22, "2d"
	}
	return wordLine(code, expand(w.text, arrangement, d, n, m))
}

func wordLine(code uint32, text string) string { return fmt.Sprintf("WORD $%#08x // %s", code, text) }

func expand(text, arrangement string, d, n, m int) string {
	var b []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b = append(b, text[i])
			continue
		}
		i++
		switch text[i] {
		case 't':
			b = append(b, arrangement...)
		case 'd':
			b = fmt.Appendf(b, "v%d", d)
		case 'n':
			b = fmt.Appendf(b, "v%d", n)
		case 'm':
			b = fmt.Appendf(b, "v%d", m)
		}
	}
	return string(b)
}

// byElement is the line for d += n * m[i] or, if add is not set, d = n * m[i], for
// elements of size bytes.
func byElement(add bool, size, d, n, m, i int) string {
	code, name := uint32(0x4f809000), "fmul"
	if add {
		code, name = 0x4f801000, "fmla"
	}
	arrangement, lane := "4s", "s"
	if size == 8 {
		code, arrangement, lane = code|1<<22|uint32(i)<<11, "2d", "d"
	} else {
		code |= uint32(i&1)<<21 | uint32(i>>1)<<11
	}
	code |= uint32(m)<<16 | uint32(n)<<5 | uint32(d)
	return wordLine(code, fmt.Sprintf("%s v%d.%s, v%d.%s, v%d.%s[%d]", name, d, arrangement, n, arrangement, m, lane, i))
}
