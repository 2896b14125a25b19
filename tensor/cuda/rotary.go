package cuda

import "github.com/ringo-ml/ringo/tensor"

func rotary(q *Queue, k *kernel, a *tensor.Args) {
	rows, time, width, head := a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3]
	q.ptrs(a, 3).i64(rows * width / 2).i64(time).i64(width).i64(head).i64(a.I[0])
	q.args.I32(a.I[1])
	q.args.I32(a.I[2])
	q.i64(a.I[3]).i64(a.I[4])
	q.spread(k, rows*width/2)
}
