package kernel

// CheckLabels returns the first index whose label is neither in 0..cols nor equal to ignore, or -1.
func CheckLabels(label []int64, cols int, ignore int64) int {
	for i, y := range label {
		if (y < 0 || y >= int64(cols)) && y != ignore {
			return i
		}
	}
	return -1
}

// CrossEntropy computes, for rows lo..hi of the logits x, lse[r] = ln(sum(exp(x[r]))) and
//
//	loss[r] = (1-smoothing)*(lse[r] - x[r,label[r]]) + smoothing*(lse[r] - mean(x[r]))
//
// which is PyTorch's cross_entropy with label smoothing and reduction "none". The loss of a row whose label is ignore is 0.
// Labels must have passed [CheckLabels].
func CrossEntropy[T Float](loss, lse, x []T, label []int64, cols, lo, hi int, smoothing float64, ignore int64) {
	for r := lo; r < hi; r++ {
		x := row(x, r, cols)
		l := logSumExp(x)
		lse[r] = T(l)
		if label[r] == ignore {
			loss[r] = 0
			continue
		}
		v := l - float64(x[label[r]])
		if smoothing != 0 { // else an excluded class (-Inf) would make 0*Inf
			v = float64((1-smoothing)*v) + float64(smoothing*(l-rowSum(x)/float64(cols)))
		}
		loss[r] = T(v)
	}
}

// CrossEntropyGrad computes rows lo..hi of the gradient with respect to the logits,
//
//	dst[r,j] = g[r]*(exp(x[r,j]-lse[r]) - (1-smoothing)*[j = label[r]] - smoothing/cols)
//
// with lse from [CrossEntropy]. g holds the upstream gradient of every row, or one for all. Rows with label ignore
// are 0.
func CrossEntropyGrad[T Float](dst, x, lse []T, label []int64, g []T, cols, lo, hi int, smoothing float64, ignore int64) {
	off := smoothing / float64(cols)
	far := rowsPastCaches(dst, cols, x)
	for r := lo; r < hi; r++ {
		d, x := row(dst, r, cols), row(x, r, cols)
		y := label[r]
		if y == ignore {
			clear(d)
			continue
		}
		up := float64(g[0])
		if len(g) > 1 {
			up = float64(g[r])
		}
		l := float64(lse[r])
		at := exp[T](float64(x[y])-l) - off - (1 - smoothing) // before d, which may be x
		expScaled(d, x, lse[r], T(off), T(up), far)
		d[y] = T(up * at)
	}
	rowsDone(far)
}
