package data_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

type sharder struct{ rank, size int }

func (s sharder) Rank() int { return s.rank }
func (s sharder) Size() int { return s.size }

// onePixel returns a folder with MNIST's files for training: one image of one pixel.
func onePixel(t *testing.T) string {
	dir, one := t.TempDir(), "\x00\x00\x00\x01"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "train-images-idx3-ubyte"), []byte("\x00\x00\x08\x03"+one+one+one+"."), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "train-labels-idx1-ubyte"), []byte("\x00\x00\x08\x01"+one+"\x02"), 0o666))
	return dir
}

// The errors of data's functions for wrong use.
func TestMisuse(t *testing.T) {
	dir := t.TempDir()
	notIDX := filepath.Join(dir, "text.idx")
	require.NoError(t, os.WriteFile(notIDX, []byte("hello, world"), 0o666))
	images, err := data.Synthetic(20, 1, tensor.Float32)
	require.NoError(t, err)
	text, err := data.NewText([]int{1, 2, 3, 4, 5}, 2, 1)
	require.NoError(t, err)
	loader := data.NewLoader(images, data.Config{Batch: 6})
	two := data.NewLoader(images, data.Config{Batch: 5})
	ints := func(dims ...int) tensor.Tensor { return tensor.New(cpu.New(1), tensor.Int64, dims...) }
	x := tensor.FromSlice(make([]float32, 784), 1, 784)
	rows, err := data.NewTensors(x, x)
	require.NoError(t, err)
	misuse.Check(t, append(subsetMisuse(x, ints(1)), []misuse.Case{
		{Of: "NewLoader", Want: "data: Config.Batch is 0, want 1 or more",
			Do: func() error { data.NewLoader(images, data.Config{}); return nil }},
		{Of: "NewLoader", Want: "data: Config.Group is 3: it must divide Config.Batch, which is 6, and the 20 samples of the dataset",
			Do: func() error { data.NewLoader(images, data.Config{Batch: 6, Group: 3}); return nil }},
		{Of: "NewLoader", Want: "data: Config.Sharder is rank 2 of 2",
			Do: func() error { data.NewLoader(images, data.Config{Batch: 2, Sharder: sharder{2, 2}}); return nil }},
		{Of: "NewLoader", Want: "data: Config.DropLast leaves no batch of 21: the dataset has 20 samples",
			Do: func() error { data.NewLoader(images, data.Config{Batch: 21, DropLast: true}); return nil }},
		{Of: "Loader.Epoch", Want: "data: epoch -1, want 0 or more", Do: func() error {
			for range loader.Epoch(t.Context(), -1) {
			}
			return loader.Err()
		}},
		{Of: "Loader.SetState", Want: "data: the state is of 20 samples, batch 5, group 1, shuffle false; the Loader has 20, 6, 1, false",
			Do: func() error { return loader.SetState(two.State()) }},
		{Of: "Synthetic", Want: "data: 0 synthetic images", Do: func() error { _, err := data.Synthetic(0, 1, tensor.Float32); return err }},
		{Of: "Synthetic", Want: "data: images as int64: want a float type",
			Do: func() error { _, err := data.Synthetic(5, 1, tensor.Int64); return err }},
		{Of: "MNIST", Want: "data: no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in none: file does not exist",
			Do: func() error { _, _, err := data.MNIST("none", tensor.Float32); return err }},
		{Of: "MNIST", Want: "data: images as int32: want a float type",
			Do: func() error { _, _, err := data.MNIST(onePixel(t), tensor.Int32); return err }},
		{Of: "ReadIDX", Want: "data: " + notIDX + ": at byte 0: magic number 0x68656c6c is not that of an IDX file",
			Do: func() error { _, _, err := data.ReadIDX(notIDX); return err }},
		{Of: "NewText", Want: "data: a text of 2 tokens is too short: a window of 2 needs one more token as target",
			Do: func() error { _, err := data.NewText([]int{1, 2}, 2, 1); return err }},
		{Of: "NewText", Want: "data: windows of 2 tokens, every 0: both must be positive",
			Do: func() error { _, err := data.NewText([]int{1, 2, 3}, 2, 0); return err }},
		{Of: "NewText", Want: "data: token 1 is -2, not in [0,2^31)",
			Do: func() error { _, err := data.NewText([]int{1, -2, 3}, 2, 1); return err }},
		{Of: "NewTensors", Want: "data: x has 1 rows, y has 2", Do: func() error { _, err := data.NewTensors(x, ints(2)); return err }},
		{Of: "NewTensors", Want: "data: x has 0 rows, y has 0", Do: func() error { _, err := data.NewTensors(ints(0), ints(0)); return err }},
		{Of: "NewTensors", Want: "data: y is int64[]: want contiguous rows",
			Do: func() error { _, err := data.NewTensors(x, ints()); return err }},
		{Of: "NewTensors", Want: "data: y is not a tensor that can be used",
			Do: func() error { _, err := data.NewTensors(x, tensor.Tensor{}); return err }},
		{Of: "NewTensors", Want: "data: x is of a tape, whose memory is used again in each step",
			Do: func() error { _, err := data.NewTensors(tensor.NewTape(cpu.New(1)).Input(x), x); return err }},
		{Of: "Tensors.Batch", Want: "row -1, of 1", Do: func() error { return rows.Batch([]int{-1}, x, x) }},
		{Of: "CSV", Want: "data: " + notIDX + ": line 1, column 1: \"hello\" is not a number; if the line has the names of the columns, " +
			"set CSVConfig.Header", Do: func() error { _, err := data.CSV(notIDX, data.CSVConfig{}); return err }},
		{Of: "Lines", Want: "data: " + dir + " is not a regular file", Do: func() error { _, err := data.Lines(dir); return err }},
		{Of: "CSV", Want: "data: " + notIDX + ": no rows",
			Do: func() error { _, err := data.CSV(notIDX, data.CSVConfig{Header: true}); return err }},
		{Of: "JSONL", Want: "data: " + notIDX + `: line 1: want an object, such as {"a": 1, "y": 2}, as of pandas' ` +
			`df.to_json(file, orient="records", lines=True): invalid character 'h' looking for beginning of value`,
			Do: func() error { _, err := data.JSONL(notIDX, data.JSONLConfig{}); return err }},
		{Of: "Text.Batch", Want: "window 3, of 3", Do: func() error { return text.Batch([]int{3}, ints(1, 2), ints(1, 2)) }},
		{Of: "Images.Batch", Want: "image 20, of 20", Do: func() error { return images.Batch([]int{20}, x, ints(1)) }},
	}...), map[string]string{
		"Loader.Samples": "there are none before the first batch",
		"Balance":        "any numbers are classes",
	})
}
