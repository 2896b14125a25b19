package zeropp

import (
	_ "embed"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

//go:embed quant.cu
var text string

func init() {
	each := func(op tensor.Op, kernel string, launch func(l cuda.Launch, a *tensor.Args)) {
		cuda.Register(op, cuda.Source{File: "quant.cu", Text: text, Kernel: kernel, Types: []tensor.DType{tensor.Float32, tensor.Float64},
			Launch: launch})
	}
	encode := func(l cuda.Launch, a *tensor.Args) {
		l.Operands(a, 2).Int(a.Len[1]).Grid(blocks(a.Len[1]), blockLen, 0)
	}
	decode := func(l cuda.Launch, a *tensor.Args) { l.Operands(a, 2).Int(a.Len[0]).Spread(a.Len[0]) }
	each(Encode8, "encode8", encode)
	each(Encode4, "encode4", encode)
	each(Decode8, "decode8", decode)
	each(Add4, "add4", decode)
}
