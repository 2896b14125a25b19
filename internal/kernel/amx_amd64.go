//go:build !noasm

package kernel

import "golang.org/x/sys/cpu"

// amxGranted reports whether the CPU has AMX with BF16, and the operating system
// saves the tiles and lets this process use them.
func amxGranted() bool {
	x := &cpu.X86
	const tileState = 3 << 17 // XTILECFG and XTILEDATA
	return x.HasOSXSAVE && x.HasAMXTile && x.HasAMXBF16 && xgetbv0()&tileState == tileState && requestTiles()
}

// tilesAMX computes sums of h rows. k is a multiple of tileSide.
func tilesAMX(config *tileConfig, h, k int, a, b []float32, bs int, sums *tileSums) {
	if h > tileSide {
		tile2AMX(&config[0], k/tileSide, &a[0], 4*k, &b[0], 4*bs, &sums[0])
	} else {
		tile1AMX(&config[0], k/tileSide, &a[0], 4*k, &b[0], 4*bs, &sums[0])
	}
}

// scaleTileAMX is scaleTile.
func scaleTileAMX(h, n int, c []float32, cs int, sums *tileSums, alpha float32, add bool) {
	scaleTileAVX512BF16(&c[0], 4*cs, &sums[0], h, alpha, add, 1<<n-1)
}
