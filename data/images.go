package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// Images is a Dataset of grey images with labels, held as bytes. It may be shared by several loaders.
type Images struct {
	name   string
	dtype  tensor.DType
	size   int // pixels of one image
	pixels []byte
	labels []byte
	f32    [256]float32 // the normalized value of each grey level
	f64    [256]float64
	bf16   [256]tensor.BF16
	f16    [256]tensor.F16
}

// The mean and standard deviation of MNIST's training pixels in [0, 1], as PyTorch's MNIST example rounds them.
const (
	mnistMean = 0.1307
	mnistStd  = 0.3081
)

func newImages(name string, dtype tensor.DType, size int, pixels, labels []byte) (*Images, error) {
	if !dtype.IsFloat() {
		return nil, fmt.Errorf("data: images as %v: want a float type", dtype)
	}
	d := &Images{name: name, dtype: dtype, size: size, pixels: pixels, labels: labels}
	for i := range d.f32 { // computed in each type, as PyTorch does, for the same bits
		d.f32[i] = (float32(i)/255 - float32(mnistMean)) / float32(mnistStd)
		d.f64[i] = (float64(i)/255 - mnistMean) / mnistStd
		d.bf16[i], d.f16[i] = tensor.ToBF16(d.f32[i]), tensor.ToF16(d.f32[i])
	}
	return d, nil
}

// Len returns the number of images.
func (d *Images) Len() int { return len(d.labels) }

// Shapes returns x [pixels], row by row from the top, of the dataset's float type, and y, one int64 label.
func (d *Images) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: d.dtype, Dims: []int{d.size}}, tensor.Shape{DType: tensor.Int64}
}

// Batch writes the images idx, normalized to (grey/255 - 0.1307) / 0.3081 as in PyTorch's MNIST example, and their
// labels.
func (d *Images) Batch(idx []int, x, y tensor.Tensor) error {
	labels := tensor.Data[int64](y)
	for row, i := range idx {
		if i < 0 || i >= len(d.labels) {
			return fmt.Errorf("image %d, of %d", i, len(d.labels))
		}
		labels[row] = int64(d.labels[i])
	}
	switch d.dtype {
	case tensor.Float64:
		normalize(tensor.Data[float64](x), d, idx, &d.f64)
	case tensor.BFloat16:
		normalize(tensor.Data[tensor.BF16](x), d, idx, &d.bf16)
	case tensor.Float16:
		normalize(tensor.Data[tensor.F16](x), d, idx, &d.f16)
	default:
		normalize(tensor.Data[float32](x), d, idx, &d.f32)
	}
	return nil
}

func normalize[T tensor.Elem](x []T, d *Images, idx []int, value *[256]T) {
	for row, i := range idx {
		out := x[row*d.size : (row+1)*d.size]
		for j, grey := range d.pixels[i*d.size : (i+1)*d.size] {
			out[j] = value[grey]
		}
	}
}

// String returns the number of images and where they come from.
func (d *Images) String() string {
	return fmt.Sprintf("%d images of %d pixels from %s", d.Len(), d.size, d.name)
}
