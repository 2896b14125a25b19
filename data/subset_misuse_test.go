package data_test

import (
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/tensor"
)

// subsetMisuse are the cases of TestMisuse for subsets.
func subsetMisuse(x, y tensor.Tensor) []misuse.Case {
	three, broken := numbered{n: 3}, numbered{2, []int{0, 1}}
	all := func() *data.Subset { s, _ := data.NewSubset(three, []int{0, 1}); return s }
	split := func(parts ...float64) func() error {
		return func() error { _, err := data.Split(three, 1, parts...); return err }
	}
	subset := func(idx ...int) func() error {
		return func() error { _, err := data.NewSubset(three, idx); return err }
	}
	filter := func(ds data.Dataset, keep bool) func() error {
		return func() error {
			_, err := data.Filter(ds, func(int, tensor.Tensor, tensor.Tensor) bool { return keep })
			return err
		}
	}
	const classes = "data: targets of data_test.squares are float32[1]: want numbers of classes, int64"
	return []misuse.Case{
		{Of: "NewSubset", Want: "data: a subset of no samples", Do: subset()},
		{Of: "NewSubset", Want: "data: a subset has sample 3: the dataset has 3", Do: subset(3)},
		{Of: "NewSubset", Want: "data: a subset has sample -1: the dataset has 3", Do: subset(0, -1)},
		{Of: "Subset.Batch", Want: "sample 2, of 2", Do: func() error { return all().Batch([]int{2}, x, y) }},
		{Of: "Subset.BatchAt", Want: "sample -1, of 2", Do: func() error { return all().BatchAt(1, []int{-1}, x, y) }},
		{Of: "Split", Want: "data: a split in parts [80 20]: want numbers above 0 that sum to 1", Do: split(80, 20)},
		{Of: "Split", Want: "data: a split in parts [0.8 0.1], which sum to 0.9: want 1", Do: split(0.8, 0.1)},
		{Of: "Split", Want: "data: a split in parts [], which sum to 0: want 1", Do: split()},
		{Of: "Split", Want: "data: a split of 3 samples in parts [0.998 0.001 0.0005 0.0005]: part 1 gets none",
			Do: split(0.998, 0.001, 0.0005, 0.0005)},
		{Of: "SplitByClass", Want: classes, Do: func() error { _, err := data.SplitByClass(squares{4}, 1, 1); return err }},
		{Of: "Labels", Want: classes, Do: func() error { _, err := data.Labels(squares{4}); return err }},
		{Of: "Filter", Want: "data: data_test.numbered, sample 0: file 0 is damaged", Do: filter(broken, true)},
		{Of: "Filter", Want: "data: the filter keeps none of data_test.numbered", Do: filter(three, false)},
		{Of: "Readable", Want: "data: data_test.numbered: none of the samples can be read: sample 0: file 0 is damaged",
			Do: func() error { _, _, err := data.Readable(broken); return err }},
	}
}
