package tensortest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// takers are the operations that take integers: ids of shape [3] in [0,4), for x [3,4].
var takers = map[string]func(x, ids tensor.Tensor) tensor.Tensor{
	"embedding":      ops.Embedding,
	"embedding part": func(x, ids tensor.Tensor) tensor.Tensor { return ops.EmbeddingPart(x, ids, 1, 4) },
	"gather":         func(x, ids tensor.Tensor) tensor.Tensor { return ops.Gather(x, 1, ids.Reshape(3, 1)) },
	"scatter_add": func(x, ids tensor.Tensor) tensor.Tensor {
		return ops.ScatterAdd(x, 1, ids.Reshape(3, 1), x.Slice(1, 0, 1))
	},
	"one_hot":  func(x, ids tensor.Tensor) tensor.Tensor { return x.Mul(ops.OneHot(ids, 4, x.DType())) },
	"bincount": func(x, ids tensor.Tensor) tensor.Tensor { return x.Mul(ops.Bincount(ids, 4).Cast(x.DType())) },
	"grouped_linear": func(x, ids tensor.Tensor) tensor.Tensor {
		return ops.GroupedLinear(x, x.Reshape(3, 1, 4), ids)
	},
	"cross_entropy": func(x, ids tensor.Tensor) tensor.Tensor {
		return ops.CrossEntropy(x, ids, ops.CrossEntropyOptions{Smoothing: 0.1})
	},
	"cross_entropy of flattened labels": func(x, ids tensor.Tensor) tensor.Tensor {
		return ops.CrossEntropy(x.Reshape(3, 1, 4), ids, ops.CrossEntropyOptions{})
	},
	"cross_entropy, ignored": func(x, ids tensor.Tensor) tensor.Tensor {
		two := int64(2)
		return ops.CrossEntropy(x, ids, ops.CrossEntropyOptions{Ignore: &two})
	},
	"cross_entropy, weights": func(x, ids tensor.Tensor) tensor.Tensor {
		zero := int64(0)
		return ops.CrossEntropy(x, ids, ops.CrossEntropyOptions{Ignore: &zero, PerRow: true, Weights: x.Slice(0, 0, 1).Reshape(4).Detach()})
	},
}

// indices of Int32 are as good as those of Int64, in host memory and on the device.
func (s *Suite) indices(t *testing.T) {
	dev := s.Device(t)
	for name, take := range takers {
		rows := 3
		if name == "embedding" {
			rows = 4
		}
		v := make([]float64, rows*4)
		for i := range v {
			v[i] = uniform(3, uint64(i))
		}
		run := func(onTape bool, ids tensor.Tensor) (y, g []float64) {
			tape := tensor.NewTape(dev)
			defer tape.Close()
			x := tape.Leaf(On(dev, Of(tensor.Float32, v, rows, 4)))
			if onTape || name == "gather" || name == "scatter_add" || name == "one_hot" || name == "bincount" {
				ids = tape.Input(ids)
			}
			out := tape.Keep(take(x, ids))
			tape.Backward(out.Square().Sum())
			return tensor.Floats(out), tensor.Floats(tape.GradOf(x))
		}
		ids := []int32{2, 0, 1}
		want, wantGrad := run(true, tensor.FromSlice([]int64{2, 0, 1}, 3))
		for _, onTape := range []bool{true, false} {
			got, grad := run(onTape, tensor.FromSlice(ids, 3))
			require.Equal(t, want, got, name)
			require.Equal(t, wantGrad, grad, name)
		}
	}
}
