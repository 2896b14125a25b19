//go:build !noasm && !linux

package kernel

// requestTiles knows no way to ask for AMX's tiles here.
func requestTiles() bool { return false }
