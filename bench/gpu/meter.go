package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/tensor"
)

// row is one measured figure, of which larger is better: units of work per second, the median, lowest and highest of
// some windows.
type row struct {
	section, what, variant, unit string
	median, low, high            float64
}

// parseRow reads a row as torch_gpu.py prints it: seven fields between tabs.
func parseRow(line string) (row, error) {
	f := strings.Split(line, "\t")
	if len(f) != 7 {
		return row{}, fmt.Errorf("%q has %d fields instead of 7", line, len(f))
	}
	r := row{section: f[0], what: f[1], variant: f[2], unit: f[3]}
	for i, dst := range []*float64{&r.median, &r.low, &r.high} {
		var err error
		if *dst, err = strconv.ParseFloat(f[4+i], 64); err != nil {
			return row{}, fmt.Errorf("%q: %w", line, err)
		}
	}
	return r, nil
}

const windows = 5

// meter measures a section on a device.
type meter struct {
	dev     tensor.Device
	device  string // its kind
	section string
	small   bool    // sizes for the CPU
	length  float64 // seconds of a window
	block   map[tensor.DType]tensor.Tensor
	rows    []row
	caller  func() (*exec.Cmd, func(), error) // the program that calls NCCL from C
}

// add measures work per call of fn, which launches it and does not wait, in windows that end when the device is done.
func (m *meter) add(what, unit string, work float64, fn func()) error {
	return tensor.Try(func() {
		check := func(err error) {
			if err != nil {
				panic(&tensor.Failure{Op: what, Err: err})
			}
		}
		once := func(n int) float64 {
			start := time.Now()
			for range n {
				fn()
			}
			check(m.dev.Queue(0).Sync())
			return time.Since(start).Seconds() / float64(n)
		}
		once(2) // compiles, chooses algorithms, takes memory
		n := min(max(1, int(m.length/once(3))), 5000)
		var rates []float64
		for range windows {
			rates = append(rates, work/once(n))
		}
		slices.Sort(rates)
		m.rows = append(m.rows, row{m.section, what, "ringo", unit, rates[windows/2], rates[0], rates[windows-1]})
	})
}

// random makes a tensor of numbers between -1 and 1; measurements on zeros flatter.
func (m *meter) random(dtype tensor.DType, dims ...int) tensor.Tensor {
	x := tensor.New(m.dev, dtype, dims...)
	m.fill(x, func() tensor.Tensor {
		y := tensor.NewStaging(tensor.Uncounted, m.dev, dtype, blockLen)
		tensor.UniformInit(-1, 1).Fill(y, 1, 0)
		return y
	})
	return x
}

// whole makes a tensor of integers below n.
func (m *meter) whole(n uint64, dims ...int) tensor.Tensor {
	x := tensor.New(m.dev, tensor.Int64, dims...)
	delete(m.block, tensor.Int64) // of another n
	m.fill(x, func() tensor.Tensor {
		y := tensor.NewStaging(tensor.Uncounted, m.dev, tensor.Int64, blockLen)
		for i := range tensor.Data[int64](y) {
			tensor.Data[int64](y)[i] = int64(tensor.RandomBits(2, uint64(i)) % n)
		}
		return y
	})
	return x
}

// blockLen is how many elements the host makes; larger tensors repeat them.
const blockLen = 1 << 20

func (m *meter) fill(x tensor.Tensor, make func() tensor.Tensor) {
	block, ok := m.block[x.DType()]
	if !ok {
		block = make()
		m.block[x.DType()] = block
	}
	for lo := 0; lo < x.Len(); lo += blockLen {
		hi := min(lo+blockLen, x.Len())
		tensor.Copy(x.Range(lo, hi), block.Range(0, hi-lo))
	}
}
