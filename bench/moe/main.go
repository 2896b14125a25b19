// Command moe measures a mixture of experts, forward and backward: 2,048 tokens of 512 features, and 8 experts of 1,024 hidden features;
// each token uses 2 of them. peer.py does the same with PyTorch. For each number of seconds on its standard input it works for about that
// time and prints a line of JSON. The script beside it runs the two in turn.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

const tokens, features, hidden, experts, top = 2048, 512, 1024, 8, 2

func main() {
	what := flag.String("what", "layer", "layer, capacity, products (of experts with as many rows each), "+
		"zipf (rows fall with the expert's number) or dense (the same products of one expert)")
	threads := flag.Int("threads", 2, "threads")
	dtype := flag.String("dtype", "float32", "element type")
	flag.Parse()
	d, err := tensor.ParseDType(*dtype)
	if err != nil {
		log.Fatal(err)
	}
	step, err := stepOf(*what, *threads, d)
	if err != nil {
		log.Fatal(err)
	}
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

// stepOf returns a forward and backward pass of a layer, or of only its products. Inputs have gradients; those of parameters are
// accumulated.
func stepOf(what string, threads int, d tensor.DType) (func(), error) {
	dev := cpu.New(threads)
	tape := tensor.NewTape(dev)
	c := moe.Config{Features: features, Hidden: hidden, Experts: experts, Router: router.Config{Top: top, Scoring: router.Chosen}}
	if what == "capacity" {
		c.Capacity = 1
	}
	l := moe.NewLayer(c)
	nn.Init(l, dev, d, 1)
	run := func(rows int, forward func(x nn.T) nn.T) func() {
		x := tensor.New(dev, d, rows, features)
		tensor.NormalInit(0, 1).Fill(x, 2, 0)
		return func() {
			tape.Backward(forward(tape.Leaf(x)).Sum(), tensor.More())
			tape.Reset()
		}
	}
	switch what {
	case "layer", "capacity":
		return run(tokens, l.Forward), nil
	case "products", "zipf":
		counts := loads(what == "zipf")
		return run(tokens*top, func(x nn.T) nn.T { return l.Experts.Forward(x, x.Tape().Input(counts)) }), nil
	case "dense":
		one := nn.NewGatedMLP(features, hidden)
		nn.Init(one, dev, d, 1)
		return run(tokens*top, one.Forward), nil
	}
	return nil, fmt.Errorf("-what %s: layer, capacity, products, zipf or dense", what)
}

// loads returns the number of rows of each expert: equal numbers, or by Zipf's law.
func loads(zipf bool) tensor.Tensor {
	counts, left, sum := make([]int64, experts), int64(tokens*top), 0.0
	for e := range counts {
		sum += 1 / float64(e+1)
	}
	for e := range counts {
		counts[e] = tokens * top / experts
		if zipf {
			counts[e] = int64(math.Round(tokens * top / sum / float64(e+1)))
		}
		left -= counts[e]
	}
	counts[0] += left
	return tensor.FromSlice(counts, experts)
}
