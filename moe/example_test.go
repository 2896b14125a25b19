package moe_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// A layer with four experts, of which each token meets two.
func ExampleLayer() {
	l := moe.NewLayer(moe.Config{Features: 8, Hidden: 16, Experts: 4, Router: router.Config{Top: 2, Normalize: true}})
	dev := cpu.New(1)
	defer dev.Close()
	for _, p := range nn.Init(l, dev, tensor.Float32, 1) {
		fmt.Println(p.Name(), p.Dims())
	}
	tape := tensor.NewTape(dev)
	defer tape.Close()
	x := tape.Input(tensor.New(dev, tensor.Float32, 2, 5, 8)) // 2 sequences of 5 tokens
	fmt.Println(l.Forward(x).Shape())
	// Output:
	// gate.weight [4 8]
	// experts.gate_proj [4 16 8]
	// experts.up_proj [4 16 8]
	// experts.down_proj [4 8 16]
	// float32[2,5,8]
}
