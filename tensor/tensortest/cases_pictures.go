package tensortest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// convolved is the convolution by its definition.
func convolved(x []Array, o ops.Conv2dOptions) Array {
	groups := max(o.Groups, 1)
	stride, dilation := [2]int{max(o.Stride[0], 1), max(o.Stride[1], 1)}, [2]int{max(o.Dilation[0], 1), max(o.Dilation[1], 1)}
	in, w := x[0], x[1]
	size := func(i int) int { return (in.Dims[2+i]+2*o.Padding[i]-dilation[i]*(w.Dims[2+i]-1)-1)/stride[i] + 1 }
	each := w.Dims[0] / groups
	return build([]int{in.Dims[0], w.Dims[0], size(0), size(1)}, func(k []int) (sum float64) {
		for c := range w.Dims[1] {
			for i := range w.Dims[2] {
				for j := range w.Dims[3] {
					row, col := k[2]*stride[0]-o.Padding[0]+i*dilation[0], k[3]*stride[1]-o.Padding[1]+j*dilation[1]
					if row >= 0 && row < in.Dims[2] && col >= 0 && col < in.Dims[3] {
						sum += in.at(k[0], k[1]/each*w.Dims[1]+c, row, col) * w.at(k[1], c, i, j)
					}
				}
			}
		}
		if len(x) == 3 {
			sum += x[2].at(k[1])
		}
		return sum
	})
}

// pictures are options of convolutions and the shapes of the inputs.
var pictures = []struct {
	o    ops.Conv2dOptions
	dims [][][]int
}{
	{ops.Conv2dOptions{}, [][][]int{{{2, 3, 5, 7}, {4, 3, 3, 2}, {4}}, {{1, 1, 1, 1}, {1, 1, 1, 1}}, {{0, 2, 3, 3}, {3, 2, 2, 2}},
		{{2, 5, 3, 4}, {3, 5, 1, 1}, {3}}}},
	{ops.Conv2dOptions{Padding: [2]int{1, 1}},
		[][][]int{{{3, 2, 6, 5}, {3, 2, 3, 3}, {3}}, {{1, 3, 33, 35}, {2, 3, 3, 3}}, {{17, 2, 7, 8}, {5, 2, 3, 3}}}},
	{ops.Conv2dOptions{Stride: [2]int{2, 3}, Padding: [2]int{0, 2}},
		[][][]int{{{2, 2, 7, 9}, {3, 2, 3, 4}, {3}}, {{1, 2, 8, 8}, {1, 2, 2, 3}}}},
	{ops.Conv2dOptions{Dilation: [2]int{2, 1}, Padding: [2]int{3, 1}, Groups: 2},
		[][][]int{{{2, 4, 6, 5}, {6, 2, 3, 2}, {6}}, {{1, 2, 3, 3}, {2, 1, 3, 3}}}},
	{ops.Conv2dOptions{Stride: [2]int{2, 2}, Dilation: [2]int{1, 2}, Padding: [2]int{1, 2}, Groups: 3},
		[][][]int{{{2, 3, 7, 6}, {3, 1, 3, 3}, {3}}}},
}

// spread is the transposed convolution by its definition: each pixel is written into the output with the kernel's taps.
func spread(x []Array, o ops.ConvTranspose2dOptions) Array {
	groups := max(o.Groups, 1)
	stride, dilation := [2]int{max(o.Stride[0], 1), max(o.Stride[1], 1)}, [2]int{max(o.Dilation[0], 1), max(o.Dilation[1], 1)}
	in, w := x[0], x[1]
	size := func(i int) int {
		return (in.Dims[2+i]-1)*stride[i] - 2*o.Padding[i] + dilation[i]*(w.Dims[2+i]-1) + 1 + o.OutputPadding[i]
	}
	each := in.Dims[1] / groups
	return build([]int{in.Dims[0], w.Dims[1] * groups, size(0), size(1)}, func(k []int) (sum float64) {
		group := k[1] / w.Dims[1]
		for c := group * each; c < (group+1)*each; c++ {
			for row := range in.Dims[2] {
				for col := range in.Dims[3] {
					i, j := k[2]+o.Padding[0]-row*stride[0], k[3]+o.Padding[1]-col*stride[1]
					if i >= 0 && i%dilation[0] == 0 && i/dilation[0] < w.Dims[2] && j >= 0 && j%dilation[1] == 0 && j/dilation[1] < w.Dims[3] {
						sum += in.at(k[0], c, row, col) * w.at(c, k[1]%w.Dims[1], i/dilation[0], j/dilation[1])
					}
				}
			}
		}
		if len(x) == 3 {
			sum += x[2].at(k[1])
		}
		return sum
	})
}

// spreads are options of transposed convolutions and the shapes of the inputs.
var spreads = []struct {
	o    ops.ConvTranspose2dOptions
	dims [][][]int
}{
	{ops.ConvTranspose2dOptions{}, [][][]int{{{2, 3, 4, 5}, {3, 4, 3, 2}, {4}}, {{1, 1, 1, 1}, {1, 1, 1, 1}}, {{0, 2, 3, 3}, {2, 3, 2, 2}}}},
	{ops.ConvTranspose2dOptions{Conv2dOptions: ops.Conv2dOptions{Stride: [2]int{2, 3}, Padding: [2]int{1, 0}}, OutputPadding: [2]int{1, 2}},
		[][][]int{{{2, 2, 4, 3}, {2, 3, 3, 4}, {3}}, {{1, 2, 5, 5}, {2, 1, 4, 2}}}},
	{ops.ConvTranspose2dOptions{Conv2dOptions: ops.Conv2dOptions{Stride: [2]int{2, 1}, Padding: [2]int{2, 1}, Dilation: [2]int{2, 1},
		Groups: 2}},
		[][][]int{{{3, 4, 3, 5}, {4, 3, 3, 3}, {6}}}},
}

// scaled is a picture of another size, by the definition of its interpolation.
func scaled(x Array, height, width int, mode ops.Interpolation) Array {
	rank := len(x.Dims)
	dims := append(append([]int(nil), x.Dims[:rank-2]...), height, width)
	weight := func(i, from, n, out int) float64 { // of pixel from in pixel i
		if mode == ops.Nearest {
			if math.Floor(float64(i)*float64(n)/float64(out)+1e-9) == float64(from) {
				return 1
			}
			return 0
		}
		at := min(max((float64(i)+0.5)*float64(n)/float64(out)-0.5, 0), float64(n-1))
		return max(1-math.Abs(at-float64(from)), 0)
	}
	return build(dims, func(k []int) (sum float64) {
		at := append([]int(nil), k...)
		for r := range x.Dims[rank-2] {
			for c := range x.Dims[rank-1] {
				at[rank-2], at[rank-1] = r, c
				sum += weight(k[rank-2], r, x.Dims[rank-2], height) * weight(k[rank-1], c, x.Dims[rank-1], width) * x.at(at...)
			}
		}
		return sum
	})
}

// sizes are sizes to which pictures are scaled.
var sizes = [][2]int{{14, 10}, {7, 11}, {3, 2}, {1, 17}}

func channelSums(x Array) Array {
	c, s := x.Dims[1], len(x.V)/max(x.Dims[0]*x.Dims[1], 1)
	sums := make([]float64, 2*c+1)
	for i, v := range x.V {
		k := i / s % c
		sums[k] += v
		sums[c+k] += v * v
	}
	sums[2*c] = float64(x.Dims[0] * s)
	return Array{[]int{2*c + 1}, sums}
}

const normEps = 1e-2

// batchNormed is batch norm by its definition.
func batchNormed(x []Array) Array {
	in, sums := x[0], channelSums(x[0])
	c, s, n := in.Dims[1], len(in.V)/max(in.Dims[0]*in.Dims[1], 1), sums.V[len(sums.V)-1]
	y := Array{in.Dims, make([]float64, len(in.V))}
	for i, v := range in.V {
		k := i / s % c
		mean := sums.V[k] / n
		y.V[i] = (v - mean) / math.Sqrt(sums.V[c+k]/n-mean*mean+normEps)
		if len(x) > 1 {
			y.V[i] = y.V[i]*x[1].V[k] + x[2].V[k]
		}
	}
	return y
}

func batchNorm(x []tensor.Tensor) tensor.Tensor {
	x = append(x, tensor.Tensor{}, tensor.Tensor{})
	return ops.BatchNorm(x[0], ops.ChannelSums(x[0]), x[1], x[2], normEps)
}

// runningStats updates statistics x[1] and x[2], and returns them as one tensor.
func runningStats(x []tensor.Tensor) tensor.Tensor {
	dev, at := x[0].Tape().Device(), [2]*tensor.Buffer{}
	for i := range at {
		at[i] = tensor.NewBuffer(tensor.Constant(0), x[0].Dim(1))
		at[i].Make(dev, x[0].DType(), 0)
		tensor.Copy(at[i].Value, x[1+i].Reshape(-1))
	}
	ops.RunningStats(at[0], at[1], ops.ChannelSums(x[0]), 0.25)
	return tensor.Concat(0, x[0].Tape().Input(at[0].Value), x[0].Tape().Input(at[1].Value))
}

func movedStats(x []Array) Array {
	sums, c := channelSums(x[0]), x[0].Dims[1]
	n := sums.V[2*c]
	return build([]int{2 * c}, func(i []int) float64 {
		k := i[0] % c
		mean := sums.V[k] / n
		if i[0] < c {
			return 0.75*x[1].V[k] + 0.25*mean
		}
		return 0.75*x[2].V[k] + 0.25*(sums.V[c+k]/n-mean*mean)*n/(n-1)
	})
}

var pools = []ops.Pool2dOptions{{Kernel: [2]int{2, 2}}, {Kernel: [2]int{3, 2}, Stride: [2]int{1, 2}, Padding: [2]int{1, 1}},
	{Kernel: [2]int{3, 3}, Stride: [2]int{2, 4}}, {Kernel: [2]int{2, 3}, Padding: [2]int{0, 1}}}

// pooled calls f with the pixels of each window that are inside the input, and the window's size.
func pooled(x Array, o ops.Pool2dOptions, f func(pixels []float64, area int) float64) Array {
	rank := len(x.Dims)
	dims := append([]int(nil), x.Dims...)
	for i := range 2 {
		if o.Stride[i] == 0 {
			o.Stride[i] = o.Kernel[i]
		}
		dims[rank-2+i] = (x.Dims[rank-2+i]+2*o.Padding[i]-o.Kernel[i])/o.Stride[i] + 1
	}
	return build(dims, func(k []int) float64 {
		var pixels []float64
		at := append([]int(nil), k...)
		for i := range o.Kernel[0] {
			for j := range o.Kernel[1] {
				r, c := k[rank-2]*o.Stride[0]-o.Padding[0]+i, k[rank-1]*o.Stride[1]-o.Padding[1]+j
				if r >= 0 && r < x.Dims[rank-2] && c >= 0 && c < x.Dims[rank-1] {
					at[rank-2], at[rank-1] = r, c
					pixels = append(pixels, x.at(at...))
				}
			}
		}
		return f(pixels, o.Kernel[0]*o.Kernel[1])
	})
}

func pictureCases() (cases []ValueCase) {
	for _, p := range pictures {
		cases = append(cases, ValueCase{Name: fmt.Sprintf("conv2d %+v", p.o), Dims: p.dims,
			F: func(x []tensor.Tensor) tensor.Tensor {
				return ops.Conv2d(x[0], x[1], append(x, tensor.Tensor{})[2], p.o)
			},
			Want: func(x []Array) Array { return convolved(x, p.o) }})
	}
	for _, p := range spreads {
		cases = append(cases, ValueCase{Name: fmt.Sprintf("conv_transpose2d %+v", p.o), Dims: p.dims,
			F: func(x []tensor.Tensor) tensor.Tensor {
				return ops.ConvTranspose2d(x[0], x[1], append(x, tensor.Tensor{})[2], p.o)
			},
			Want: func(x []Array) Array { return spread(x, p.o) }})
	}
	planes := [][][]int{{{2, 3, 7, 5}}, {{1, 4, 4}}, {{0, 2, 5, 6}}}
	for _, o := range pools {
		cases = append(cases,
			one1(fmt.Sprintf("max_pool2d %+v", o), planes, false, func(x tensor.Tensor) tensor.Tensor { return ops.MaxPool2d(x, o) },
				func(x Array) Array {
					return pooled(x, o, func(pixels []float64, _ int) float64 {
						best := math.Inf(-1)
						for _, v := range pixels {
							best = maxOf(best, v)
						}
						return best
					})
				}),
			one1(fmt.Sprintf("avg_pool2d %+v", o), planes, false, func(x tensor.Tensor) tensor.Tensor { return ops.AvgPool2d(x, o) },
				func(x Array) Array {
					return pooled(x, o, func(pixels []float64, area int) float64 { return sumOf(pixels) / float64(area) })
				}))
	}
	for _, mode := range []ops.Interpolation{ops.Nearest, ops.Bilinear} {
		for _, to := range sizes {
			cases = append(cases, one1(fmt.Sprintf("upsample2d %v %v", mode, to), planes, false,
				func(x tensor.Tensor) tensor.Tensor { return ops.Upsample2d(x, to[0], to[1], mode) },
				func(x Array) Array { return scaled(x, to[0], to[1], mode) }))
		}
	}
	return append(cases,
		one1("channel_sums", [][][]int{{{2, 3, 4, 5}}, {{7, 2}}, {{0, 2, 3}}}, false,
			func(x tensor.Tensor) tensor.Tensor { return ops.ChannelSums(x).Cast(x.DType()) }, channelSums),
		ValueCase{Name: "batch_norm", Dims: [][][]int{{{2, 3, 4, 5}, {3}, {3}}, {{7, 2}}, {{3, 1, 2}, {1}, {1}}, {{0, 2, 3}}}, F: batchNorm,
			Want: batchNormed},
		ValueCase{Name: "running_stats", Dims: [][][]int{{{2, 3, 4, 5}, {3}, {3}}, {{7, 2}, {2}, {2}}}, F: runningStats, Want: movedStats})
}

func pictureGrads() map[tensor.Op][]GradCase {
	var convs, transposed, maxes, means, larger []GradCase
	for _, p := range pictures {
		convs = append(convs, GradCase{Name: fmt.Sprintf("%+v", p.o),
			Shapes: func(r *rand.Rand) [][]int { return small(p.dims[r.IntN(len(p.dims))]) },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return ops.Conv2d(x[0], x[1], append(x, tensor.Tensor{})[2], p.o)
			}})
	}
	for _, p := range spreads {
		transposed = append(transposed, GradCase{Name: fmt.Sprintf("%+v", p.o),
			Shapes: func(r *rand.Rand) [][]int { return p.dims[r.IntN(len(p.dims))] },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return ops.ConvTranspose2d(x[0], x[1], append(x, tensor.Tensor{})[2], p.o)
			}})
	}
	planes := func(r *rand.Rand) [][]int { return [][]int{{1 + r.IntN(2), 2, 3 + r.IntN(4), 3 + r.IntN(4)}} }
	for _, o := range pools {
		name := fmt.Sprintf("%+v", o)
		maxes = append(maxes,
			GradCase{Name: name, Shapes: planes, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return ops.MaxPool2d(x[0], o) }})
		means = append(means,
			GradCase{Name: name, Shapes: planes, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return ops.AvgPool2d(x[0], o) }})
	}
	for _, mode := range []ops.Interpolation{ops.Nearest, ops.Bilinear} {
		for _, to := range sizes {
			larger = append(larger, GradCase{Name: fmt.Sprint(mode, to), Shapes: planes, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return ops.Upsample2d(x[0], to[0], to[1], mode)
			}})
		}
	}
	channels := func(n int) func(r *rand.Rand) [][]int {
		return func(r *rand.Rand) [][]int {
			c := 1 + r.IntN(3)
			return [][]int{{2 + r.IntN(3), c, 3, 2}, {c}, {c}}[:n]
		}
	}
	norm := func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return batchNorm(x) }
	return map[tensor.Op][]GradCase{
		ops.OpConv2d: convs, ops.OpConvTranspose2d: transposed, ops.OpUpsample2d: larger, ops.OpMaxPool2d: maxes, ops.OpAvgPool2d: means,
		ops.OpChannelSums: {{Name: "sums", Shapes: channels(1), F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
			return ops.ChannelSums(x[0]).Cast(x[0].DType())
		}}},
		ops.OpBatchNorm: {{Name: "weight and bias", Shapes: channels(3), F: norm}, {Name: "plain", Shapes: channels(1), F: norm}},
	}
}

// small limits images to a few pixels: finite differences compute the loss twice for each.
func small(dims [][]int) [][]int {
	x, w := dims[0], dims[1]
	x, w = []int{min(x[0], 3), min(x[1], 5), min(x[2], 9), min(x[3], 9)}, []int{w[0], min(w[1], 5), w[2], w[3]}
	return append([][]int{x, w}, dims[2:]...)
}
