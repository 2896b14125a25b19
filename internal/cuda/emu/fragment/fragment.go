package fragment

// Lanes is the number of threads of a warp.
const Lanes = 32

// Matrix is one of the matrices of d = a·b + c.
type Matrix uint8

// The matrices. C has the layout of D.
const (
	A Matrix = iota // [16, 16], of 16-bit floats
	B               // [16, 8], of 16-bit floats
	D               // [16, 8], of float32
)

// Dims returns the rows and columns of m.
func (m Matrix) Dims() (rows, cols int) {
	if m == A {
		return 16, 16
	}
	return 16, 8
}

// Each returns the number of elements of m in a lane. A register holds two of A or
// B, the first one in the lower half.
func (m Matrix) Each() int {
	rows, cols := m.Dims()
	return rows * cols / Lanes
}

// At returns the row and column in m of element i of a lane.
func (m Matrix) At(lane, i int) (row, col int) {
	group, thread := lane>>2, lane%4
	low := thread*2 + i&1
	switch m {
	case A:
		row, col = group, low
		if !(0 <= i && i < 2 || 4 <= i && i < 6) {
			row += 8
		}
		if i >= 4 {
			col += 8
		}
	case B:
		row, col = low, group
		if i >= 2 {
			row += 8
		}
	case D:
		row, col = group, low
		if i >= 2 {
			row += 8
		}
	}
	return row, col
}

// RowLane returns the lane that gives the address of a row, in one of the four 8x8
// matrices of ldmatrix.x4.
func RowLane(matrix, row int) int { return 8*matrix + row }

// Loaded returns which element a lane gets from ldmatrix.x4 in one half of a
// register: its place in one of the four matrices in shared memory. With trans,
// each matrix is transposed.
func Loaded(lane, register, half int, trans bool) (matrix, row, col int) {
	row, col = lane/4, lane%4*2+half
	if trans {
		row, col = col, row
	}
	return register, row, col
}
