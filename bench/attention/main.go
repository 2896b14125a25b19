// Command attention measures causal attention: 8 heads of queries that share 2 heads of keys and values, of 64 features, for 8 sequences of
// 1,024 tokens in float32 or bfloat16. peer.py does the same with PyTorch. For each number of seconds on its standard input it works for
// about that time and prints a line of JSON. The script beside it runs the two in turn.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const batch, tokens, heads, kvHeads, headDim = 8, 1024, 8, 2, 64

func main() {
	what := flag.String("what", "both", "forward, or both: forward and backward")
	threads := flag.Int("threads", 2, "threads")
	name := flag.String("dtype", "float32", "float32 or bfloat16")
	flag.Parse()
	dtype, ok := map[string]tensor.DType{"float32": tensor.Float32, "bfloat16": tensor.BFloat16}[*name]
	if !ok {
		log.Fatalf("-dtype %s is neither float32 nor bfloat16", *name)
	}
	step := stepOf(*what == "both", *threads, dtype)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(lines.Text()), 64)
		if err != nil {
			log.Fatal(err)
		}
		step()
		n, start := 0, time.Now()
		for ; time.Since(start).Seconds() < seconds; n++ {
			step()
		}
		if err := json.NewEncoder(os.Stdout).Encode(map[string]float64{"steps_per_s": float64(n) / time.Since(start).Seconds()}); err != nil {
			log.Fatal(err)
		}
	}
}

// stepOf returns a forward pass. If both is set, it also computes the gradients of queries, keys and values, from a given gradient of the
// output.
func stepOf(both bool, threads int, dtype tensor.DType) func() {
	dev := cpu.New(threads)
	tape := tensor.NewTape(dev)
	if !both {
		tape = tensor.NewTape(dev, tensor.NoGrad())
	}
	normal := func(seed uint64, heads int) tensor.Tensor {
		x := tensor.New(dev, dtype, batch, tokens, heads*headDim)
		tensor.NormalInit(0, 1).Fill(x, seed, 0)
		return x
	}
	q, k, v, grad := normal(1, heads), normal(2, kvHeads), normal(3, kvHeads), normal(4, heads)
	return func() {
		y := ops.CrossAttention(tape.Leaf(q), tape.Leaf(k), tape.Leaf(v), headDim, ops.AttentionOptions{Causal: true})
		if both {
			tape.BackwardFrom([]tensor.Tensor{y}, []tensor.Tensor{tape.Input(grad)}, tensor.More())
		}
		tape.Reset()
	}
}
