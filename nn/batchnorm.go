package nn

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// BatchNorm2d normalizes the channels of pictures over the batch to mean 0 and variance 1, and scales and shifts them (Ioffe and Szegedy
// 2015). In evaluation it takes running means and variances instead, which training keeps (see tensor.Eval).
//
// The batch is that of this rank alone. Where other ranks hold other rows of it, training is refused: call [SyncBatchNorm].
type BatchNorm2d struct {
	W        *tensor.Param  `nn:"weight"`       // [channels]; nil: ones
	B        *tensor.Param  `nn:"bias"`         // [channels]; nil: zeros
	Mean     *tensor.Buffer `nn:"running_mean"` // [channels]
	Var      *tensor.Buffer `nn:"running_var"`  // [channels]
	Eps      float64
	Momentum float64 // how much of a step's statistics goes into the running ones

	sum tensor.Function // adds the sums of ranks that share the rows; nil: there are none
}

// NewBatchNorm2d returns a layer for so many channels, with W = 1, B = 0, Eps = 1e-5 and Momentum = 0.1.
func NewBatchNorm2d(channels int) *BatchNorm2d {
	zero, one := tensor.Constant(0), tensor.Constant(1)
	return &BatchNorm2d{W: tensor.NewParam(one, channels), B: tensor.NewParam(zero, channels), Mean: tensor.NewBuffer(zero, channels),
		Var: tensor.NewBuffer(one, channels), Eps: 1e-5, Momentum: 0.1}
}

// SyncBatchNorm makes every BatchNorm2d of a model synchronized: it takes the statistics of the rows of all ranks, by sum, such as
// &autograd.AllReduce{Group: g}, which is applied to the sums of a rank's rows. Ranks may have different numbers of rows. Call it before
// the first step, as torch.nn.SyncBatchNorm.convert_sync_batchnorm.
func SyncBatchNorm(model any, sum tensor.Function) {
	norms := walk(model).norms
	if sum == nil || len(norms) == 0 {
		fail("SyncBatchNorm", "sum is nil, or none of the model's layers is a BatchNorm2d")
	}
	for _, n := range norms {
		n.sum = sum
	}
}

// Forward returns a tensor of x's shape, [batch, channels, ..].
func (n *BatchNorm2d) Forward(x T) T {
	t := tapeOf(x)
	if !t.Training() {
		return n.evaluate(x)
	}
	sums := ops.ChannelSums(x)
	if n.sum != nil {
		sums = t.Apply(n.sum, sums)
	}
	y := ops.BatchNorm(x, sums, use(t, n.W), use(t, n.B), n.Eps)
	t.Once(func() T { // not again when a Checkpoint recomputes
		ops.RunningStats(n.Mean, n.Var, sums, n.Momentum)
		return sums.Detach()
	})
	return y
}

func (n *BatchNorm2d) evaluate(x T) T {
	t, rank := tapeOf(x), x.NDim()
	if rank < 2 || x.Dim(1) != n.Mean.Len() {
		fail("BatchNorm2d", "x is %v, not [batch, %d, ..]", x.Shape(), n.Mean.Len())
	}
	scale := t.Use(&n.Var.Param).Affine(1, n.Eps).Sqrt().Recip()
	if n.W != nil {
		scale = scale.Mul(t.Use(n.W))
	}
	y := x.Sub(perChannel(t.Use(&n.Mean.Param), rank)).Mul(perChannel(scale, rank))
	if n.B != nil {
		y = y.Add(perChannel(t.Use(n.B), rank))
	}
	return y
}
