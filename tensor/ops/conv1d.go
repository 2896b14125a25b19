package ops

import "github.com/ringo-ml/ringo/tensor"

// Conv1dOptions are the options of a convolution along one dimension.
type Conv1dOptions struct {
	Stride   int // 0: 1
	Padding  int // zeros before the first and after the last element
	Dilation int // distance between two taps of the kernel; 0: 1
	Groups   int // groups of channels; 0: 1
}

// Conv1d is the cross-correlation of sequences x [batch, in, length] with kernels w [out, in/groups, taps], plus b [out] (or none), as
// torch.nn.functional.conv1d: Conv2d of pictures of one row.
func Conv1d(x, w, b tensor.Tensor, o Conv1dOptions) tensor.Tensor {
	if x.NDim() != 3 || w.NDim() != 3 {
		OpConv2d.Fail([]tensor.Tensor{x, w, b}, "Conv1d wants an input [batch, in, length], a weight [out, in/groups, taps] and a bias [out]")
	}
	y := Conv2d(x.Reshape(x.Dim(0), x.Dim(1), 1, x.Dim(2)), w.Reshape(w.Dim(0), w.Dim(1), 1, w.Dim(2)), b, Conv2dOptions{
		Stride: [2]int{0, o.Stride}, Padding: [2]int{0, o.Padding}, Dilation: [2]int{0, o.Dilation}, Groups: o.Groups})
	return y.Reshape(y.Dim(0), y.Dim(1), y.Dim(3))
}
