//go:build !linux

package doctor

func sharedMemory() Shared {
	return Shared{Problem: "only Linux has sealed memory files"}
}
