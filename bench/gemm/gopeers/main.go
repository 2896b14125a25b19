// Command gopeers is the part for Go libraries of ../run: gopeers gonum|gomlx THREADS. It answers "ta tb m n k seconds" with "GFLOP/s
// checksum".
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/gomlx/gomlx/backends"
	_ "github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// product prepares one shape: call computes it, and result returns the last result.
type product func(ta, tb bool, m, n, k int) (call func(), result func() []float32)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: gopeers gonum|gomlx THREADS")
	}
	threads, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	runtime.GOMAXPROCS(threads)
	p := product(gonum)
	path := "gonum.org/v1/gonum"
	if os.Args[1] == "gomlx" {
		backend, err := backends.NewWithConfig("go")
		if err != nil {
			log.Fatal(err)
		}
		p, path = gomlx(backend), "github.com/gomlx/gomlx"
	}
	fmt.Println(path, version(path))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var ta, tb string
		var m, n, k int
		var seconds float64
		if _, err := fmt.Sscan(in.Text(), &ta, &tb, &m, &n, &k, &seconds); err != nil {
			log.Fatalf("%q: %v", in.Text(), err)
		}
		call, result := p(ta == "T", tb == "T", m, n, k)
		speed := repeat(seconds, 2*float64(m)*float64(n)*float64(k), call)
		check := 0
		for i, v := range result() {
			check += int(v) * (i%7 + 1)
		}
		fmt.Printf("%.3f %d\n", speed, check)
	}
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, d := range info.Deps {
		if d.Path == path {
			return d.Version
		}
	}
	return "?"
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

// matrix holds small integers, so that products and sums are exact.
func matrix(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i*7%13) - 6
	}
	return x
}

// stored returns the stored rows and columns of a matrix.
func stored(trans bool, rows, cols int) (int, int) {
	if trans {
		return cols, rows
	}
	return rows, cols
}

func gonum(ta, tb bool, m, n, k int) (func(), func() []float32) {
	general := func(rows, cols int) blas32.General {
		return blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: matrix(rows * cols)}
	}
	form := map[bool]blas.Transpose{false: blas.NoTrans, true: blas.Trans}
	a, b, c := general(stored(ta, m, k)), general(stored(tb, k, n)), general(m, n)
	return func() { blas32.Gemm(form[ta], form[tb], 1, a, b, 0, c) }, func() []float32 { return c.Data }
}

func gomlx(backend backends.Backend) product {
	return func(ta, tb bool, m, n, k int) (func(), func() []float32) {
		tensor := func(rows, cols int) *tensors.Tensor {
			return tensors.FromFlatDataAndDimensions(matrix(rows*cols), rows, cols)
		}
		axisA, axisB := []int{1}, []int{0}
		if ta {
			axisA[0] = 0
		}
		if tb {
			axisB[0] = 1
		}
		a, b := tensor(stored(ta, m, k)), tensor(stored(tb, k, n))
		exec := graph.MustNewExec(backend, func(a, b *graph.Node) *graph.Node { return graph.DotGeneral(a, axisA, nil, b, axisB, nil) })
		var last *tensors.Tensor
		call := func() {
			if last != nil {
				last.MustFinalizeAll()
			}
			last = exec.MustExec(a, b)[0]
		}
		return call, func() (out []float32) {
			tensors.MustConstFlatData(last, func(flat []float32) { out = append(out, flat...) })
			return out
		}
	}
}
