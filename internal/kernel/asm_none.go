//go:build noasm || !amd64

package kernel

func storeFence() {}

func folds() bool { return false }

func foldBlocks(crc uint32, p []byte) uint32 { panic("kernel: no assembly") }

func move(dst, src []byte) { copy(dst, src) }
