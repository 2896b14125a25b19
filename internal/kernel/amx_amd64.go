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

// tileConfigs are the arguments of LDTILECFG for sums of so many rows: palette 1,
// then the bytes of a row and the number of rows of each of eight tiles. Tiles 0 to 3
// are the sums (two side by side, two below them), 4 and 5 are of A, 6 and 7 of B.
// They are a table because a local one would move to the heap at each call.
var tileConfigs = func() (all [tileRows + 1][64]byte) {
	const bytesOfRow, rows = 16, 48 // offsets
	for h := 1; h < len(all); h++ {
		c := &all[h]
		c[0] = 1
		upper := min(h, tileSide)
		for tile, n := range []int{upper, upper, h - upper, h - upper, upper, h - upper, tileSide, tileSide} {
			if n > 0 {
				c[bytesOfRow+2*tile], c[rows+tile] = 4*tileSide, byte(n)
			}
		}
	}
	return all
}()

// amxKernels are the kernels of tiles with the instructions of AMX.
var amxKernels = tileKernels{multiplyAMX, multiplyRoundAMX, packBlocksAMX, scaleTileAMX}

func multiplyAMX(tiles, h, blocks int, a []BF16, as, step, next int, b, sums []float32, first bool) {
	config := &tileConfigs[h][0]
	if h > tileSide {
		tiles2AMX(config, tiles, blocks, halfPtr(a), 2*as, 2*step, 2*next, &b[0], &sums[0], first)
	} else {
		tiles1AMX(config, tiles, blocks, halfPtr(a), 2*as, 2*step, 2*next, &b[0], &sums[0], first)
	}
}

func multiplyRoundAMX(tiles, blocks int, a []BF16, as, step, next int, b, sums []float32, first bool, dst []BF16, ds, n int,
	bias []float32) {
	rows := (tileRows + blocks - 1) / blocks // to be rounded in each block
	tiles2RoundAMX(&tileConfigs[tileRows][0], tiles, blocks, halfPtr(a), 2*as, 2*step, 2*next, &b[0], &sums[0], first,
		halfPtr(dst), 2*ds, &bias[0], 1<<n-1, rows)
}

func packBlocksAMX(dst []float32, src []BF16, ss, rows, k int) {
	copyTilesAVX512BF16((*uint16)(unsafe.Pointer(&dst[0])), halfPtr(src), 2*ss, rows, k)
}

func scaleTileAMX(c []float32, cs int, sums []float32, h, n int, alpha float32, add bool) {
	scaleTileAVX512BF16(&c[0], 4*cs, &sums[0], h, alpha, add, 1<<n-1)
}
