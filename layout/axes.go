package layout

import "math/bits"

// Axes is a set of axes of the job: bit i is axis i. Package dist numbers and names them.
type Axes uint8

// First returns the lowest axis.
func (a Axes) First() int { return bits.TrailingZeros8(uint8(a)) }
