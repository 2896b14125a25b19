package kernel_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// Two threads could each compute a part of the rows; the result is the same.
func ExampleSoftmax() {
	x := []float32{0, 0, 0, 0, 1, 2}
	p := make([]float32, 6)
	kernel.Softmax(p, x, 3, 0, 1)
	kernel.Softmax(p, x, 3, 1, 2)
	fmt.Printf("%.3f\n", p)
	// Output: [0.333 0.333 0.333 0.090 0.245 0.665]
}

// A tensor [2, 3, 2] is summed over its middle dimension.
func ExampleReduceSum() {
	x := []int64{1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60}
	sum := make([]int64, 4)
	kernel.ReduceSum(sum, x, 3, 2, 0, 4)
	fmt.Println(sum)
	// Output: [9 12 90 120]
}

// A rank that holds columns 4 to 8 of a [2, 8] activation drops the same elements as a rank that holds all.
func ExampleDropout() {
	key := kernel.Key(42, 3, kernel.HashName("h.0.mlp.drop")) // seed, step, layer
	ones := make([]float32, 16)
	kernel.Fill(ones, 1)
	whole, part := make([]float32, 16), make([]float32, 8)
	kernel.Dropout(whole, ones, 0.5, key, kernel.Rows{Stride: 8, Elems: 8, Cols: 8, Line: 8}, 0, 16)
	kernel.Dropout(part, ones, 0.5, key, kernel.Rows{First: 4, Stride: 8, Elems: 4, Cols: 4, Line: 8}, 0, 8)
	fmt.Println(whole[4:8], whole[12:16])
	fmt.Println(part[:4], part[4:])
	// Output:
	// [0 0 0 2] [0 0 2 0]
	// [0 0 0 2] [0 0 2 0]
}
