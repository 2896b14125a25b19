// Command gemm is Ringo's part of the script run: gemm THREADS. It answers "ta tb m n k seconds" with "GFLOP/s checksum", and "peak
// seconds" with the GFLOP/s that the machine can reach.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: gemm THREADS")
	}
	threads, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	dev := cpu.New(threads)
	defer dev.Close()
	fmt.Printf("Ringo %s, %s\n", kernel.CPU(), runtime.Version())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var ta, tb string
		var m, n, k int
		var seconds float64
		if _, err := fmt.Sscanf(in.Text(), "peak %g", &seconds); err == nil {
			fmt.Printf("%.3f 0\n", peak(threads, seconds))
			continue
		}
		if _, err := fmt.Sscan(in.Text(), &ta, &tb, &m, &n, &k, &seconds); err != nil {
			log.Fatalf("%q: %v", in.Text(), err)
		}
		speed, check := measure(dev, ta == "T", tb == "T", m, n, k, seconds)
		fmt.Printf("%.3f %d\n", speed, check)
	}
}

// matrix holds small integers, so that products and sums are exact.
func matrix(n int) tensor.Tensor {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i*7%13) - 6
	}
	return tensor.FromSlice(x, n)
}

// measure launches the kernel of tensor.MatMul repeatedly for about the given time.
func measure(dev *cpu.Device, ta, tb bool, m, n, k int, seconds float64) (gflops float64, check int) {
	a, b, c := matrix(m*k), matrix(k*n), matrix(m*n)
	e := tensor.NewExec(dev)
	call := func() {
		args := e.Args(tensor.OpMatMul, tensor.Float32).Out(c).In(a).In(b)
		args.Dim[0], args.Dim[1], args.Dim[2], args.Dim[3] = 1, m, n, k
		args.Stride[0][1], args.Stride[1][1], args.Stride[2][1] = n, k, n
		if ta {
			args.I[0], args.Stride[1][1] = 1, m
		}
		if tb {
			args.I[1], args.Stride[2][1] = 1, k
		}
		e.Launch()
	}
	speed := repeat(seconds, 2*float64(m)*float64(n)*float64(k), call)
	for i, v := range tensor.Data[float32](c) {
		check += int(v) * (i%7 + 1)
	}
	return speed, check
}

// repeat returns the speed of a call, in GFLOP/s: the median of blocks of calls. The first one warms up.
func repeat(seconds, flops float64, call func()) float64 {
	begin := time.Now()
	call()
	calls := 1 + int(seconds/8/time.Since(begin).Seconds())
	var blocks []float64
	for spent := 0.0; spent < seconds; spent += blocks[len(blocks)-1] {
		begin = time.Now()
		for range calls {
			call()
		}
		blocks = append(blocks, time.Since(begin).Seconds())
	}
	slices.Sort(blocks)
	return flops * float64(calls) / blocks[len(blocks)/2] / 1e9
}

// peak returns the speed of all threads together, when each has a core.
func peak(threads int, seconds float64) float64 {
	var wg sync.WaitGroup
	speeds := make([]float64, threads)
	for i := range speeds {
		wg.Go(func() {
			kernel.PeakFlops[float32](5 * time.Millisecond) // two threads may wake up on one core
			speeds[i] = kernel.PeakFlops[float32](time.Duration(seconds*1e9)) / 1e9
		})
	}
	wg.Wait()
	sum := 0.0
	for _, s := range speeds {
		sum += s
	}
	return sum
}
