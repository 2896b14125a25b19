package data_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
)

// squares is a Dataset: x is a number, y its square.
type squares struct{ n int }

func (d squares) Len() int { return d.n }

func (d squares) Shapes() (x, y tensor.Shape) {
	one := tensor.Shape{DType: tensor.Float32, Dims: []int{1}}
	return one, one
}

func (d squares) Batch(idx []int, x, y tensor.Tensor) error {
	xs, ys := tensor.Data[float32](x), tensor.Data[float32](y)
	for row, i := range idx {
		xs[row], ys[row] = float32(i), float32(i*i)
	}
	return nil
}

func ExampleDataset() {
	batches := data.NewLoader(squares{7}, data.Config{Batch: 3})
	for i, b := range batches.Epoch(context.Background(), 0) {
		fmt.Println(i, b.X, b.Y)
	}
	fmt.Println(batches.Err())
	// Output:
	// 0 float32[3,1] [[0] [1] [2]] float32[3,1] [[0] [1] [4]]
	// 1 float32[3,1] [[3] [4] [5]] float32[3,1] [[9] [16] [25]]
	// 2 float32[1,1] [[6]] float32[1,1] [[36]]
	// <nil>
}

// second is the second of two ranks; in real programs a group of package dist is the Sharder.
type second struct{}

func (second) Rank() int { return 1 }
func (second) Size() int { return 2 }

func ExampleLoader() {
	train, err := data.Synthetic(100, 1, tensor.Float32)
	if err != nil {
		fmt.Println(err)
		return
	}
	batches := data.NewLoader(train, data.Config{Batch: 64, Shuffle: true, Sharder: second{}})
	for epoch := range 2 {
		for i, b := range batches.Epoch(context.Background(), epoch) {
			fmt.Printf("epoch %d, batch %d: rows %d to %d of %d, %v\n", epoch, i, b.First, b.First+b.Rows, b.Global, b.X.Shape())
		}
	}
	// Output:
	// epoch 0, batch 0: rows 33 to 64 of 64, float32[31,784]
	// epoch 0, batch 1: rows 18 to 36 of 36, float32[18,784]
	// epoch 1, batch 0: rows 32 to 64 of 64, float32[32,784]
	// epoch 1, batch 1: rows 18 to 36 of 36, float32[18,784]
}

func ExampleCSV() {
	file := filepath.Join(os.TempDir(), fmt.Sprintf("iris-%d.csv", os.Getpid()))
	defer os.Remove(file)
	text := "length,width,species\n5.1,3.5,setosa\n6.0,2.9,versicolor\n4.9,3.0,setosa\n"
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		fmt.Println(err)
		return
	}
	flowers, err := data.CSV(file, data.CSVConfig{Header: true, Target: "species", Labels: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(flowers.Columns, flowers.Classes)
	batches := data.NewLoader(flowers, data.Config{Batch: 2})
	for _, b := range batches.Epoch(context.Background(), 0) {
		fmt.Println(b.X, b.Y)
	}
	fmt.Println(batches.Err())
	// Output:
	// [length width] [setosa versicolor]
	// float32[2,2] [[5.1 3.5] [6 2.9]] int64[2] [0 1]
	// float32[1,2] [[4.9 3]] int64[1] [0]
	// <nil>
}

func ExampleSplitByClass() {
	x, y := make([]float32, 10), []int64{0, 0, 0, 0, 0, 0, 0, 0, 1, 1}
	rows, err := data.NewTensors(tensor.FromSlice(x, 10, 1), tensor.FromSlice(y, 10))
	if err != nil {
		fmt.Println(err)
		return
	}
	sets, err := data.SplitByClass(rows, 1, 0.5, 0.5)
	if err != nil {
		fmt.Println(err)
		return
	}
	labels, err := data.Labels(sets[0]) // four of class 0, and one of class 1
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(labels, data.Balance(labels)) // each class is drawn half of the time
	batches := data.NewLoader(sets[0], data.Config{Batch: 5, Weights: data.Balance(labels)})
	for _, b := range batches.Epoch(context.Background(), 0) {
		fmt.Println(b.Y)
	}
	fmt.Println(batches.Err())
	// Output:
	// [0 0 0 0 1] [0.25 0.25 0.25 0.25 1]
	// int64[5] [0 0 0 1 1]
	// <nil>
}
