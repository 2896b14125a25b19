// Package gorgonia converts between Ringo's Tensor and *Dense of gorgonia.org/tensor, an n-dimensional array that many Go programs
// use. Both share the same memory if possible. No other package of Ringo imports gorgonia.org/tensor, because it adds about
// 15 MB to a binary.
//
//	x, err := gorgonia.FromDense(d)  // no copy: a write to d is seen in x, and the other way round
//	d, err := gorgonia.Dense(p.Value) // no copy
//	d, err := gorgonia.Dense(loss)    // a copy: loss belongs to a tape
//
// A tensor that belongs to a Tape is copied, because Tape.Reset gives its memory to other tensors.
//
// Element types are float32, float64, int32, int64, uint8 and bool; gorgonia's Int becomes int64. A Dense has no Float16 and
// BFloat16. These are errors: a Dense whose elements are not in row-major order without gaps (transposed, sliced within rows,
// column-major), one with a mask, and one whose memory Go cannot read. Their memory cannot be shared, and a copy without a word would
// be taken for shared memory. Materialize, or Transpose after T, makes a Dense row-major.
//
// An Engine has gorgonia's own functions compute with Ringo's kernels:
//
//	e := gorgonia.NewEngine(cpu.New(0))
//	a := gt.New(gt.WithShape(512, 512), gt.Of(gt.Float32), gt.WithEngine(e))
//	c, err := gt.MatMul(a, b) // about ten times as fast as gt.StdEng
//
// LoadNpy and SaveNpy read and write NumPy's .npy files.
package gorgonia
