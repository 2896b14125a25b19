//go:build noasm || (!amd64 && !arm64)

package kernel

func assemblyISAs() []*isa { return nil }
