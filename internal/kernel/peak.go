package kernel

import "time"

// peakChains is the number of vectors that one turn of the assembly in peak multiplies and adds, as gen has it.
const peakChains = 12

// PeakFlops measures for time d what the calling goroutine sustains, in floating-point operations per second, when it
// multiplies and adds in registers alone: what a matrix product would reach if memory cost nothing. It is a mean, as a core
// that has rested is faster for some microseconds. Where there is no assembly it is the speed of the innermost Go loop.
func PeakFlops[T Float](d time.Duration) float64 {
	if single[T]() {
		return active.gemm32.peakFlops(d)
	}
	return active.gemm64.peakFlops(d)
}

func (e *engine[T]) peakFlops(d time.Duration) float64 {
	const turns = 1 << 12
	c := make([]T, e.rows*e.cols)
	a, b := operand[T]{at: &make([]T, e.rows*e.lanes)[0], stride: e.rows}, operand[T]{at: &make([]T, e.cols*e.lanes)[0], stride: e.cols}
	flops, begin := 0, time.Now()
	for flops == 0 || time.Since(begin) < d {
		if e.peak != nil {
			e.peak(turns)
			flops += 2 * peakChains * e.lanes * turns
		} else {
			for range turns {
				e.tile(1, e.rows, e.cols, e.lanes, a, b, c, e.cols, operand[T]{}, 1)
			}
			flops += 2 * e.rows * e.cols * e.lanes * turns
		}
	}
	return float64(flops) / time.Since(begin).Seconds()
}
