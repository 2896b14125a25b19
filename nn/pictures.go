package nn

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Conv2d is a convolution of pictures [batch, channels, height, width].
type Conv2d struct {
	W       *tensor.Param `nn:"weight"` // [out, in/groups, rows, columns]
	B       *tensor.Param `nn:"bias"`   // [out]; nil: none
	Options ops.Conv2dOptions
}

// NewConv2d returns a layer from in to out channels with kernels of size × size pixels, with PyTorch's initialization: weight and bias
// uniform in ±1/√(size²·in/groups). For a layer without bias, set B to nil.
func NewConv2d(in, out, size int, o ops.Conv2dOptions) *Conv2d {
	groups := groupsOf("NewConv2d", in, out, o.Groups)
	in /= groups
	init := tensor.KaimingUniform(in * size * size)
	return &Conv2d{W: tensor.NewParam(init, out, in, size, size), B: tensor.NewParam(init, out), Options: o}
}

// Forward returns [batch, out, height, width] for x [batch, in, height, width].
func (c *Conv2d) Forward(x T) T {
	t := tapeOf(x)
	return ops.Conv2d(x, t.Use(c.W), use(t, c.B), c.Options)
}

// Conv1d is a convolution of sequences [batch, channels, length].
type Conv1d struct {
	W       *tensor.Param `nn:"weight"` // [out, in/groups, taps]
	B       *tensor.Param `nn:"bias"`   // [out]; nil: none
	Options ops.Conv1dOptions
}

// NewConv1d returns a layer from in to out channels with kernels of size taps, with PyTorch's initialization, as that of NewConv2d.
func NewConv1d(in, out, size int, o ops.Conv1dOptions) *Conv1d {
	groups := groupsOf("NewConv1d", in, out, o.Groups)
	init := tensor.KaimingUniform(in / groups * size)
	return &Conv1d{W: tensor.NewParam(init, out, in/groups, size), B: tensor.NewParam(init, out), Options: o}
}

// Forward returns [batch, out, length] for x [batch, in, length].
func (c *Conv1d) Forward(x T) T {
	t := tapeOf(x)
	return ops.Conv1d(x, t.Use(c.W), use(t, c.B), c.Options)
}

// ConvTranspose2d is a transposed convolution, which makes larger pictures: what Conv2d does to the gradient of its input.
type ConvTranspose2d struct {
	W       *tensor.Param `nn:"weight"` // [in, out/groups, rows, columns]
	B       *tensor.Param `nn:"bias"`   // [out]; nil: none
	Options ops.ConvTranspose2dOptions
}

// NewConvTranspose2d returns a layer from in to out channels with kernels of size × size pixels, with PyTorch's initialization: weight and
// bias uniform in ±1/√(size²·out/groups).
func NewConvTranspose2d(in, out, size int, o ops.ConvTranspose2dOptions) *ConvTranspose2d {
	groups := groupsOf("NewConvTranspose2d", in, out, o.Groups)
	init := tensor.KaimingUniform(out / groups * size * size)
	return &ConvTranspose2d{W: tensor.NewParam(init, in, out/groups, size, size), B: tensor.NewParam(init, out), Options: o}
}

// Forward returns [batch, out, height, width] for x [batch, in, height, width].
func (c *ConvTranspose2d) Forward(x T) T {
	t := tapeOf(x)
	return ops.ConvTranspose2d(x, t.Use(c.W), use(t, c.B), c.Options)
}

// groupsOf returns a number of groups, into which channels in and out divide; 0: 1.
func groupsOf(op string, in, out, groups int) int {
	groups = max(groups, 1)
	if in%groups != 0 || out%groups != 0 {
		fail(op, "%d channels in and %d out do not divide into %d groups", in, out, groups)
	}
	return groups
}

// Upsample makes pictures of Scale times the height and width. For any other size, call ops.Upsample2d.
type Upsample struct {
	Scale int
	Mode  ops.Interpolation
}

// NewUpsample returns a layer that makes pictures so many times as high and wide.
func NewUpsample(scale int, mode ops.Interpolation) *Upsample { return &Upsample{scale, mode} }

// Forward returns [.., height, width] for x of fewer pixels.
func (u *Upsample) Forward(x T) T {
	return ops.Upsample2d(x, u.Scale*x.Dim(-2), u.Scale*x.Dim(-1), u.Mode)
}

// MaxPool2d takes the largest pixel of each window.
type MaxPool2d struct{ Options ops.Pool2dOptions }

// NewMaxPool2d returns a layer with windows of size × size pixels, side by side.
func NewMaxPool2d(size int) *MaxPool2d {
	return &MaxPool2d{ops.Pool2dOptions{Kernel: [2]int{size, size}}}
}

// Forward returns [.., height, width] for x of more pixels.
func (p *MaxPool2d) Forward(x T) T { return ops.MaxPool2d(x, p.Options) }

// AvgPool2d takes the mean of each window.
type AvgPool2d struct{ Options ops.Pool2dOptions }

// NewAvgPool2d returns a layer with windows of size × size pixels, side by side.
func NewAvgPool2d(size int) *AvgPool2d {
	return &AvgPool2d{ops.Pool2dOptions{Kernel: [2]int{size, size}}}
}

// Forward returns [.., height, width] for x of more pixels.
func (p *AvgPool2d) Forward(x T) T { return ops.AvgPool2d(x, p.Options) }

// Flatten makes rows of pictures: all dimensions but the first become one. It is a Layer: Flatten{}.
type Flatten struct{}

// Forward returns [batch, n] for x [batch, ..].
func (Flatten) Forward(x T) T {
	n := 1
	for i := 1; i < x.NDim(); i++ {
		n *= x.Dim(i)
	}
	return x.Reshape(x.Dim(0), n)
}

// Dropout2d is Dropout of whole channels: neighbouring pixels are so alike that dropping single ones does little (Tompson et al. 2015).
type Dropout2d struct{ *Dropout }

// NewDropout2d returns a layer that drops a channel of a picture with probability p, 0 ≤ p < 1.
func NewDropout2d(p float64) *Dropout2d { return &Dropout2d{NewDropout(p)} }

// Forward returns x [batch, channels, ..], in training without some of the channels.
func (d *Dropout2d) Forward(x T) T {
	d.check(x)
	d.note(tapeOf(x))
	return ops.DropoutChannels(x, d.P, d.key)
}

// perChannel shapes a vector of channels like pictures of rank dimensions.
func perChannel(v T, rank int) T {
	dims := [tensor.MaxNDim]int{}
	for i := range dims {
		dims[i] = 1
	}
	dims[1] = v.Len()
	return v.Reshape(dims[:rank]...)
}

// GroupNorm normalizes groups of channels of each picture to mean 0 and variance 1, and scales and shifts the channels (Wu and He 2018).
type GroupNorm struct {
	W      *tensor.Param `nn:"weight"` // [channels]; nil: ones
	B      *tensor.Param `nn:"bias"`   // [channels]; nil: zeros
	Groups int           // of channels, one behind the other
	Eps    float64
}

// NewGroupNorm returns a layer for so many groups of channels, with W = 1, B = 0 and Eps = 1e-5.
func NewGroupNorm(groups, channels int) *GroupNorm {
	if groups < 1 || channels%groups != 0 {
		fail("NewGroupNorm", "%d groups of %d channels", groups, channels)
	}
	return &GroupNorm{tensor.NewParam(tensor.Constant(1), channels), tensor.NewParam(tensor.Constant(0), channels), groups, 1e-5}
}

// Forward returns a tensor of x's shape, [batch, channels, ..].
func (n *GroupNorm) Forward(x T) T {
	if n.W != nil && (x.NDim() < 2 || x.Dim(1) != n.W.Len()) {
		fail("GroupNorm", "x is %v, not [batch, %d, ..]", x.Shape(), n.W.Len())
	}
	t, group, dims := tapeOf(x), x.Len()/max(x.Dim(0)*n.Groups, 1), [tensor.MaxNDim]int{}
	for i := range x.NDim() {
		dims[i] = x.Dim(i)
	}
	y := ops.LayerNorm(x.Reshape(x.Dim(0), n.Groups, group), T{}, T{}, n.Eps).Reshape(dims[:x.NDim()]...)
	if n.W != nil {
		y = y.Mul(perChannel(t.Use(n.W), x.NDim()))
	}
	if n.B != nil {
		y = y.Add(perChannel(t.Use(n.B), x.NDim()))
	}
	return y
}
