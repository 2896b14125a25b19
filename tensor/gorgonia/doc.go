// Package gorgonia is the border to gorgonia.org/tensor, the n-dimensional array that much of the Go world uses: its
// *Dense on one side, Ringo's Tensor on the other, over the same memory. Nothing else in Ringo imports it, because it
// adds about 15 MB to a binary.
//
//	x, err := gorgonia.FromDense(d)  // no copy: a write to d is seen in x, and the other way round
//	d, err := gorgonia.Dense(p.Value) // no copy
//	d, err := gorgonia.Dense(loss)    // a copy: loss belongs to a tape
//
// A tensor that belongs to a Tape is copied, since its memory is used for other things after Tape.Reset, which a Dense
// could not notice.
//
// Element types are float32, float64, int32, int64, uint8 and bool; gorgonia's Int arrives as int64. Float16 and
// BFloat16 do not exist over there. A Dense whose elements do not lie in row-major order without gaps (transposed,
// sliced within rows, column-major), one with a mask, and one whose memory Go cannot read are errors: sharing is not
// possible, and a silent copy would be mistaken for it. Materialize, or Transpose after T, makes a Dense row-major.
//
// LoadNpy and SaveNpy read and write NumPy's .npy files.
package gorgonia
