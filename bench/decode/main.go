package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// For each number on its standard input it writes that many tokens after a prompt of one token, and prints the median of their times in
// seconds. For "read" it prints the seconds to read the weights, divided over the threads. This is measured in the same process: a
// hypervisor may give two threads one path to memory in one process, and two paths in the next one.
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
	dev := cpu.New(*threads)
	params := nn.Init(m, dev, dtype, 1)
	fmt.Println(runtime.Version(), params.Count()*dtype.Size(), "bytes")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "read" {
			fmt.Println(read(params, *threads))
			continue
		}
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

var sink atomic.Uint64

// read returns the shortest time of five to read all parameters.
func read(params nn.Params, threads int) float64 {
	best := math.Inf(1)
	for range 5 {
		start := time.Now()
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() {
				for _, p := range params {
					words := unsafe.Slice((*uint64)(p.Value.Ptr()), p.Value.Len()*p.Value.DType().Size()/8)
					sink.Add(touch(words[len(words)*i/threads : len(words)*(i+1)/threads]))
				}
			})
		}
		wg.Wait()
		best = min(best, time.Since(start).Seconds())
	}
	return best
}

// touch loads a word of each cache line.
func touch(words []uint64) uint64 {
	var a, b, c, d uint64
	for ; len(words) >= 32; words = words[32:] {
		a, b, c, d = a+words[0], b+words[8], c+words[16], d+words[24]
	}
	return a + b + c + d
}
