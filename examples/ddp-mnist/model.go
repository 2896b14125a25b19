package main

import (
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// newModel returns the network with this name. Its input has rows of 784 pixels.
func newModel(name string) nn.Sequential {
	if name == "mlp" {
		return nn.Sequential{nn.NewLinear(784, 512), nn.ReLU, nn.NewLinear(512, 512), nn.ReLU, nn.NewLinear(512, 10)}
	}
	same := ops.Conv2dOptions{Padding: [2]int{1, 1}}
	return nn.Sequential{picture{}, nn.NewConv2d(1, 32, 3, same), nn.ReLU, nn.NewMaxPool2d(2), nn.NewConv2d(32, 64, 3, same), nn.ReLU,
		nn.NewMaxPool2d(2), nn.Flatten{}, nn.NewLinear(64*7*7, 128), nn.ReLU, nn.NewLinear(128, 10)}
}

// picture makes an image with one channel from a row of pixels.
type picture struct{}

// Forward returns [batch, 1, 28, 28] for x [batch, 784].
func (picture) Forward(x nn.T) nn.T { return x.Reshape(x.Dim(0), 1, 28, 28) }

// lossType is the type of the loss when the model computes in dtype.
func lossType(dtype tensor.DType) tensor.DType {
	if dtype.IsHalf() {
		return tensor.Float32
	}
	return dtype
}
