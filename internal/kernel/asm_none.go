//go:build noasm || !amd64

package kernel

func storeFence() {}

func folds() bool { return false }

func foldBlocks(crc uint32, p []byte) uint32 { panic("kernel: no assembly") }

func move(dst, src []byte) { copy(dst, src) }

func tilesAMX(*tileConfig, int, int, []float32, []float32, int, *tileSums) {
	panic("kernel: no assembly")
}

func scaleTileAMX(int, int, []float32, int, *tileSums, float32, bool) { panic("kernel: no assembly") }
