//go:build !noasm && !linux

package kernel

// requestTiles returns false: on this system there is no known way to ask for AMX's
// tiles.
func requestTiles() bool { return false }
