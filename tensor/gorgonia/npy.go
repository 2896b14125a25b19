package gorgonia

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/tensor"
)

var npyNames = map[tensor.DType]string{
	tensor.Float32: "<f4", tensor.Float64: "<f8", tensor.Int32: "<i4", tensor.Int64: "<i8", tensor.Uint8: "|u1", tensor.Bool: "|b1",
}

var (
	npyDescr = regexp.MustCompile(`'descr': *'([^']*)'`)
	npyOrder = regexp.MustCompile(`'fortran_order': *(True|False)`)
	npyShape = regexp.MustCompile(`'shape': *\(([0-9, ]*)\)`)
)

// SaveNpy writes x to a .npy file of version 1.0, which NumPy reads. If it fails, there is no partly written file. For x, see Dense.
func SaveNpy(file string, x tensor.Tensor) (err error) {
	d, err := Dense(x)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return fmt.Errorf("gorgonia: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	err = d.WriteNpy(w)
	for _, step := range []func() error{w.Flush, f.Sync, f.Close} {
		if e := step(); err == nil {
			err = e
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("gorgonia: writing %s: %w", file, err)
	}
	return nil
}

// LoadNpy reads a .npy file of version 1.0 with little-endian float32, float64, int32 or int64, or with uint8 or bool, in C order. Other
// files are errors, and so are files whose size does not match their header.
//
// gorgonia's ReadNpy is not used. Version 0.9.24 cannot read int64. It leaves bools false and reads big-endian numbers as little-endian
// ones, both without an error. It allocates the size in the header without a check.
func LoadNpy(file string) (tensor.Tensor, error) {
	f, size, err := bounded.Open(file)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: %w", err)
	}
	defer f.Close()
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: %s: %w", file, err)
	}
	x, err := parseNpy(b)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: %s: %w", file, err)
	}
	return x, nil
}

func parseNpy(b []byte) (tensor.Tensor, error) {
	dtype, dims, elems, err := npyHeader(b)
	if err != nil {
		return tensor.Tensor{}, err
	}
	x := tensor.New(hostDevice, dtype, dims...)
	dst := x.Bytes()
	copy(dst, elems) // all processors that Ringo runs on are little-endian
	if dtype == tensor.Bool {
		for i, v := range dst {
			dst[i] = min(v, 1) // a Go bool is 0 or 1
		}
	}
	return x, nil
}

var hostDevice = tensor.FromSlice([]uint8{0}, 1).Device() // any CPU device may use its memory

// npyHeader returns the contents of the header, and the bytes of the elements; their number is what the header says. Format:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
func npyHeader(b []byte) (dtype tensor.DType, dims []int, elems []byte, err error) {
	if len(b) < 10 || string(b[:6]) != "\x93NUMPY" {
		return 0, nil, nil, fmt.Errorf("not a .npy file")
	}
	if b[6] != 1 || b[7] != 0 {
		return 0, nil, nil, fmt.Errorf("version %d.%d of the .npy format, want 1.0", b[6], b[7])
	}
	end := 10 + int(binary.LittleEndian.Uint16(b[8:]))
	if end > len(b) {
		return 0, nil, nil, fmt.Errorf("the header is truncated")
	}
	header := b[10:end]
	descr, order, shape := npyDescr.FindSubmatch(header), npyOrder.FindSubmatch(header), npyShape.FindSubmatch(header)
	if descr == nil || order == nil || shape == nil {
		return 0, nil, nil, fmt.Errorf("cannot read the header %s", bounded.Quote(string(header)))
	}
	dtype, ok := npyType(string(descr[1]))
	if !ok {
		return 0, nil, nil, fmt.Errorf("elements of type %q: want little-endian f4, f8, i4, i8, or u1 or b1", descr[1])
	}
	if string(order[1]) != "False" {
		return 0, nil, nil, fmt.Errorf("the elements are in Fortran order; save with numpy.ascontiguousarray")
	}
	dims, n, err := npyDims(string(shape[1]), dtype.Size())
	if err == nil && n != len(b)-end {
		err = fmt.Errorf("%v %v are %d bytes, the file has %d", dims, dtype, n, len(b)-end)
	}
	return dtype, dims, b[end:], err
}

// npyType returns the element type of a descr entry. Types of one byte have no byte order: NumPy writes "|", gorgonia "<".
func npyType(descr string) (tensor.DType, bool) {
	for dtype, name := range npyNames {
		if descr == name || dtype.Size() == 1 && descr == "<"+name[1:] {
			return dtype, true
		}
	}
	return 0, false
}

// npyDims parses a shape, "2, 3" or "2,", and returns its elements, too.
func npyDims(s string, size int) (dims []int, n int, err error) {
	product := uint64(size)
	for _, f := range strings.Split(strings.TrimSuffix(strings.TrimSpace(s), ","), ",") {
		if f = strings.TrimSpace(f); f == "" && dims == nil {
			break // a single number
		}
		d, err := strconv.ParseUint(f, 10, 62)
		if err != nil {
			return nil, 0, fmt.Errorf("the shape (%s): %w", s, err)
		}
		hi, lo := bits.Mul64(product, d)
		if hi != 0 || lo > 1<<62 || len(dims) == tensor.MaxNDim {
			return nil, 0, fmt.Errorf("the shape (%s) is too large", bounded.Plain(s))
		}
		product, dims = lo, append(dims, int(d))
	}
	return dims, int(product), nil
}
