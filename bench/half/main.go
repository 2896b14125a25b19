// Command half measures bfloat16 on the CPU. The script run starts it together with PyTorch. It reads one JSON request in each line, and
// answers with the seconds of one call, the median of several repetitions.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// request is a product op(A)·op(B) of M x K and K x N.
type request struct {
	TransA, TransB bool
	M, N, K        int
	Seconds        float64 // how long to measure
}

func main() {
	threads := flag.Int("threads", 1, "computing threads")
	dtype := flag.String("dtype", "bfloat16", "element type")
	flag.Parse()
	d, err := tensor.ParseDType(*dtype)
	if err != nil {
		log.Fatal(err)
	}
	dev := cpu.New(*threads)
	fmt.Printf("ringo, kernels of %s\n", kernel.CPU())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			log.Fatal(err)
		}
		fmt.Println(median(r.product(dev, d), r.Seconds))
	}
}

// median returns the seconds of a call of f: the median of 5 means.
func median(f func(), seconds float64) float64 {
	f()
	start, calls := time.Now(), 0
	for ; time.Since(start).Seconds() < seconds/6; calls++ {
		f()
	}
	var means [5]float64
	for i := range means {
		start = time.Now()
		for range calls {
			f()
		}
		means[i] = time.Since(start).Seconds() / float64(calls)
	}
	slices.Sort(means[:])
	return means[2]
}

func uniform(dev tensor.Device, d tensor.DType, key uint64, dims ...int) tensor.Tensor {
	x := tensor.New(dev, d, dims...)
	tensor.UniformInit(-1, 1).Fill(x, key, 0)
	return x
}

func (r request) product(dev tensor.Device, d tensor.DType) func() {
	side := func(key uint64, trans bool, rows, cols int) tensor.Tensor {
		if trans {
			rows, cols = cols, rows
		}
		return uniform(dev, d, key, rows, cols)
	}
	a, b := side(1, r.TransA, r.M, r.K), side(2, r.TransB, r.K, r.N)
	tape := tensor.NewTape(dev, tensor.NoGrad())
	return func() {
		tensor.MatMul(tape.Input(a), tape.Input(b), r.TransA, r.TransB)
		tape.Reset()
	}
}
