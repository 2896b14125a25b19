//go:build !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// amxGranted reports whether the CPU has AMX with BF16, and the operating system
// saves the tiles and lets this process use them.
func amxGranted() bool {
	x := &cpu.X86
	const tileState = 3 << 17 // XTILECFG and XTILEDATA
	return x.HasOSXSAVE && x.HasAMXTile && x.HasAMXBF16 && xgetbv0()&tileState == tileState && requestTiles()
}

// tilesAMX is the micro-kernel of AMX.
func tilesAMX(h, n, k int, a, b []float32, bs int, c []float32, cs int, alpha float32, add bool) {
	var config [64]byte // palette 1; bytes of a row, and rows, of each tile
	config[0] = 1
	const bytesOfRow, rows = 16, 48
	set := func(tile, n int) { config[bytesOfRow+2*tile], config[rows+tile] = 64, byte(n) }
	run := tile1AMX
	if h > tileSide {
		run = tile2AMX
		set(2, h-tileSide)
		set(3, h-tileSide)
		set(5, h-tileSide)
	}
	upper := min(h, tileSide)
	set(0, upper)
	set(1, upper)
	set(4, upper)
	set(6, tileSide)
	set(7, tileSide)
	var sums [4 * tileSide * tileSide]float32
	run(&config[0], k/tileSide, &a[0], 4*k, &b[0], 4*bs, &sums[0])
	scaleTileAVX512BF16(&c[0], 4*cs, (*float32)(unsafe.Pointer(&sums)), h, alpha, add, 1<<n-1)
}
