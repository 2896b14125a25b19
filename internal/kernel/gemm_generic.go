package kernel

import "unsafe"

// genericEngine is the GEMM in plain Go, for every architecture.
func genericEngine[T Float]() *engine[T] {
	return &engine[T]{
		rows: 2, cols: 4, lanes: 4, step: 2,
		kc: 256, mc: 128, nc: 512,
		crop: true,
		tile: func(tiles, h, n, k int, a, b operand[T], c []T, cs int, from operand[T], alpha T) {
			for i := range tiles {
				a, from := a, from
				a.at, from.at = a.after(i*a.next), from.after(i*h*from.stride)
				genericTile(h, n, k, a, b, c[i*h*cs:], cs, from, alpha)
			}
		},
	}
}

// genericTile computes tiles of up to 2 x 4 elements; B is always packed as [k][4].
func genericTile[T Float](h, n, k int, a, b operand[T], c []T, cs int, from operand[T], alpha T) {
	var acc [2][4]T
	if h == 2 {
		acc = product2x4(unsafe.Slice(a.at, 2*k), unsafe.Slice(b.at, 4*k))
	} else {
		acc[0] = product1x4(unsafe.Slice(a.at, k), unsafe.Slice(b.at, 4*k))
	}
	for i := range h {
		row := c[i*cs : i*cs+n]
		if from.at == nil {
			for j := range row {
				row[j] = alpha * acc[i][j]
			}
			continue
		}
		for j, v := range unsafe.Slice(from.at, i*from.stride+n)[i*from.stride:] {
			row[j] = v + T(alpha*acc[i][j])
		}
	}
}

// product2x4 keeps 8 sums in registers. With more, some are spilled to the stack on
// amd64, at half the speed. The conversions T(x*y) stop the compiler from fusing
// product and sum, which it might do here and not in product1x4.
func product2x4[T Float](a, b []T) [2][4]T {
	var c00, c01, c02, c03, c10, c11, c12, c13 T
	for len(a) >= 2 && len(b) >= 4 {
		x0, x1 := a[0], a[1]
		y0, y1, y2, y3 := b[0], b[1], b[2], b[3]
		c00 += T(x0 * y0)
		c10 += T(x1 * y0)
		c01 += T(x0 * y1)
		c11 += T(x1 * y1)
		c02 += T(x0 * y2)
		c12 += T(x1 * y2)
		c03 += T(x0 * y3)
		c13 += T(x1 * y3)
		a, b = a[2:], b[4:]
	}
	return [2][4]T{{c00, c01, c02, c03}, {c10, c11, c12, c13}}
}

func product1x4[T Float](a, b []T) (c [4]T) {
	for p, x := range a {
		for j, y := range b[4*p : 4*p+4] {
			c[j] += T(x * y)
		}
	}
	return c
}
