//go:build noasm || !amd64

package kernel

func assemblyISAs() []*isa { return nil }

func storeFence() {}

func move(dst, src []byte) { copy(dst, src) }
