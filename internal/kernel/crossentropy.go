package kernel

// CrossEntropy computes, for rows lo..hi of the logits x, lse[r] = ln(sum(exp(x[r]))) and
//
//	loss[r] = (1-smoothing)*(lse[r] - x[r,label[r]]) + smoothing*(lse[r] - mean(x[r]))
//
// which is PyTorch's cross_entropy with label smoothing and reduction "none". The loss of a row whose label is ignore is 0.
// Labels are below cols, or ignore.
func CrossEntropy[T Float](loss, lse, x []T, label []int64, cols, lo, hi int, smoothing float64, ignore int64) {
	var w softWork[T]
	for step := blockRows[T](cols); lo < hi; lo += step {
		x := x[lo*cols:]
		for i, l := range w.logSumExps(x, min(step, hi-lo), cols) {
			r, x := lo+i, row(x, i, cols)
			lse[r] = T(l)
			if label[r] == ignore {
				loss[r] = 0
				continue
			}
			v := l - float64(x[label[r]])
			if smoothing != 0 { // otherwise an excluded class (-Inf) would make 0*Inf
				v = float64((1-smoothing)*v) + float64(smoothing*(l-rowSum(x)/float64(cols)))
			}
			loss[r] = T(v)
		}
	}
}

// CrossEntropyGrad computes rows lo..hi of the gradient with respect to the logits,
//
//	dst[r,j] = g[r]*(exp(x[r,j]-lse[r]) - (1-smoothing)*[j = label[r]] - smoothing/cols)
//
// with lse from [CrossEntropy]. g holds the upstream gradient of each row, or one
// for all rows. Rows with label ignore are 0.
func CrossEntropyGrad[T Float](dst, x, lse []T, label []int64, g []T, cols, lo, hi int, smoothing float64, ignore int64) {
	off := smoothing / float64(cols)
	far := rowsPastCaches(dst, cols, x)
	var at [maxBlockRows]float64
	var scale [maxBlockRows]T
	for step := blockRows[T](cols); lo < hi; lo += step {
		k := min(step, hi-lo)
		label, lse, d, x := label[lo:lo+k], lse[lo:lo+k], dst[lo*cols:], x[lo*cols:]
		for r, y := range label { // before writing to d, which may be x
			if y == ignore {
				continue
			}
			scale[r] = g[0]
			if len(g) > 1 {
				scale[r] = g[lo+r]
			}
			at[r] = float64(scale[r]) * (exp[T](float64(row(x, r, cols)[y])-float64(lse[r])) - off - (1 - smoothing))
		}
		expScaled(d, x, lse, scale[:k], T(off), cols, far)
		for r, y := range label {
			if d := row(d, r, cols); y == ignore {
				clear(d)
			} else {
				d[y] = T(at[r])
			}
		}
	}
	rowsDone(far)
}
