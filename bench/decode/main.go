package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// For each number on its standard input it writes so many tokens behind a prompt of one, and prints the median of their seconds.
func main() {
	threads := flag.Int("threads", 1, "computing threads")
	name := flag.String("dtype", "float32", "float32 or bfloat16")
	flag.Parse()
	dtype, err := tensor.ParseDType(*name)
	if err != nil {
		log.Fatal(err)
	}
	m, err := gpt.New(gpt.Config{Vocab: 50257, Positions: 1024, Width: 768, Layers: 12, Heads: 12, Tied: true})
	if err != nil {
		log.Fatal(err)
	}
	dev := tensor.NewCPU(*threads)
	params := nn.Init(m, dev, dtype, 1)
	fmt.Println(runtime.Version(), params.Count()*dtype.Size(), "bytes")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, err := strconv.Atoi(in.Text())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(median(m, dev, n))
	}
}

func median(m *gpt.Model, dev tensor.Device, n int) float64 {
	var took []float64
	last := time.Now()
	for range m.Generate(dev, []int{1}, decode.Sampling{Tokens: n}) {
		now := time.Now()
		took, last = append(took, now.Sub(last).Seconds()), now
	}
	slices.Sort(took)
	return took[len(took)/2]
}
