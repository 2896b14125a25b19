//go:build !linux

package emu

// lock does nothing: the emulator runs on Linux only.
func lock(string) (unlock func() error, err error) { return func() error { return nil }, nil }
