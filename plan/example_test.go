package plan_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

func ExampleTransformer() {
	gpt2 := plan.Transformer{Layers: 12, Dim: 768, Heads: 12, Vocab: 50257, Batch: 64, Seq: 1024}
	for stage := 1; stage <= 3; stage++ {
		c := plan.Config{Layout: plan.Layout{FSDP: 8}, Stage: stage, Params: tensor.BFloat16}
		m, err := gpt2.Model(c)
		if err != nil {
			fmt.Println(err)
			return
		}
		p, _ := plan.New(m, c)
		fmt.Printf("stage %d: %.2f bytes a parameter, gathers %s a step\n", stage, p.PerParam, memory.Format(p.SentBy("allgather", "fsdp")))
	}
	// Output:
	// stage 1: 7.50 bytes a parameter, gathers 1.62 GiB a step
	// stage 2: 4.00 bytes a parameter, gathers 1.62 GiB a step
	// stage 3: 2.00 bytes a parameter, gathers 2.64 GiB a step
}

func ExampleNew() {
	mlp := plan.Model{Units: []plan.Unit{{Params: []int{784 * 512, 512, 512 * 10, 10}}}}
	p, _ := plan.New(mlp, plan.Config{Layout: plan.Layout{DP: 4}})
	for _, it := range p.Memory {
		fmt.Printf("%-10s %s = %d bytes\n", it.Name, it.Formula, it.Bytes)
	}
	fmt.Println("sent:", p.Traffic[0].Formula, "=", p.Sent)
	// Output:
	// parameters 4·P = 1628200 bytes
	// gradients  4·P = 1628200 bytes
	// optimizer  8·P + sums for the norm = 3256672 bytes
	// sent: 2·4·P·3 = 9769200
}

func ExampleParseLayout() {
	l, err := plan.ParseLayout("dp=8,fsdp=8,tp=2")
	fmt.Println(l.Ranks(), err)
	_, err = plan.ParseLayout("dp=8,sp=2")
	fmt.Println(err)
	// Output:
	// 128 <nil>
	// layout "dp=8,sp=2": the axes are pp, dp, fsdp, ep, ring, cp and tp, not "sp"
}
