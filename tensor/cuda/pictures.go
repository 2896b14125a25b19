package cuda

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// channels adds the operands and the three sizes of a kernel for channels.
func (q *Queue) channels(a *tensor.Args) *Queue {
	return q.ptrs(a, a.N).i64(a.Dim[0]).i64(a.Dim[1]).i64(a.Dim[2])
}

// sizes adds a struct of n numbers.
func (q *Queue) sizes(v [16]int64, n int) *Queue {
	q.args.Struct(unsafe.Pointer(&v), 8*n)
	return q
}

// blocks launches n blocks.
func (q *Queue) blocks(k *kernel, n int) {
	if n > 0 {
		q.run(k, cuda.Dim{X: n}, cuda.Dim{X: threads}, 0)
	}
}

// pooling launches a thread for each element of the output. It adds the kernel's operands, then the sizes: struct Pool of pictures.cu.
func pooling(q *Queue, k *kernel, a *tensor.Args) {
	p := ops.PoolOf(a)
	q.ptrs(a, a.N).sizes([16]int64{int64(p.Planes), int64(p.H), int64(p.W), int64(p.OutH), int64(p.OutW), int64(p.KH), int64(p.KW),
		int64(p.StrideH), int64(p.StrideW), int64(p.PadH), int64(p.PadW)}, 11).spread(k, a.Len[0])
}

// upsample launches a thread for each element of the output. It adds the kernel's operands, then the sizes: struct Planes of pictures.cu.
func upsample(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 2).sizes([16]int64{int64(a.Dim[0]), int64(a.Dim[1]), int64(a.Dim[2]), int64(a.Dim[3]), int64(a.Dim[4]), int64(a.I[0])}, 6)
	q.spread(k, a.Len[0])
}

// perChannel launches a block for each channel, perElement a thread for each element of x.
func perChannel(q *Queue, k *kernel, a *tensor.Args) {
	q.channels(a)
	q.blocks(k, a.Dim[1])
}

func perElement(q *Queue, k *kernel, a *tensor.Args) {
	q.channels(a).spread(k, a.Len[0])
}

func batchNorm(q *Queue, k *kernel, a *tensor.Args) {
	q.channels(a).args.F64(a.F[0])
	q.spread(k, a.Len[0])
}

func batchNormGrad(q *Queue, k *kernel, a *tensor.Args) {
	q.channels(a).args.F64(a.F[0])
	q.blocks(k, a.Dim[1])
}

func runningStats(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 3).i64(a.Dim[0]).args.F64(a.F[0])
	q.spread(k, a.Dim[0])
}

var pictureKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	ops.OpConv2d:          floats("pictures.cu", "conv2d", conv2d),
	ops.OpConv2dGradX:     floats("pictures.cu", "conv2d_grad_x", conv2dGradX),
	ops.OpConv2dGradW:     floats("pictures.cu", "conv2d_grad_w", conv2dGradW),
	ops.OpConvTranspose2d: floats("pictures.cu", "conv2d_grad_x", conv2dGradX),
	ops.OpUpsample2d:      floats("pictures.cu", "upsample2d", upsample),
	ops.OpUpsample2dGrad:  floats("pictures.cu", "upsample2d_grad", upsample),
	ops.OpMaxPool2d:       floats("pictures.cu", "max_pool2d", pooling),
	ops.OpMaxPool2dGrad:   floats("pictures.cu", "max_pool2d_grad", pooling),
	ops.OpAvgPool2d:       floats("pictures.cu", "avg_pool2d", pooling),
	ops.OpAvgPool2dGrad:   floats("pictures.cu", "avg_pool2d_grad", pooling),
	ops.OpChannelSums:     floats("pictures.cu", "channel_sums", perChannel),
	ops.OpChannelSumsGrad: floats("pictures.cu", "channel_sums_grad", perElement),
	ops.OpBatchNorm:       floats("pictures.cu", "batch_norm", batchNorm),
	ops.OpBatchNormGrad:   floats("pictures.cu", "batch_norm_grad", batchNormGrad),
	ops.OpRunningStats:    floats("pictures.cu", "running_stats", runningStats),
}
