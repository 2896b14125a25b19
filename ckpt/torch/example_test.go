package torch_test

import (
	"fmt"
	"log"

	"github.com/ringo-ml/ringo/ckpt/torch"
)

// Two processes wrote this folder of torch.distributed.checkpoint, each a part of every tensor.
func Example() {
	c, err := torch.Open("testdata/fsdp2")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	parts, err := c.Parts(false)
	if err != nil {
		log.Fatal(err)
	}
	for _, x := range parts.Model {
		b := make([]byte, x.Bytes())
		n, err := x.ReadAt(b, 0)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(x.Name, x.DType, x.Shape, n, "bytes")
	}
	fmt.Println(parts.Optimizer.Steps, "steps,", len(parts.Optimizer.Tensors), "tensors of the optimizer")
	// Output:
	// 0.weight F32 [5 3] 60 bytes
	// 0.bias F32 [5] 20 bytes
	// 2.weight F32 [2 5] 40 bytes
	// 2.bias F32 [2] 8 bytes
	// 2 steps, 8 tensors of the optimizer
}
