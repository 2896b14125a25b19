//go:build !linux && !darwin

package shrink

func stop() {}
