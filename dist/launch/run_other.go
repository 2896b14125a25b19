//go:build !linux && !darwin

package launch

import (
	"fmt"
	"runtime"
)

// Run needs Linux or macOS: elsewhere processes do not inherit sockets. Goroutine ranks and ranks that another launcher
// starts work everywhere.
func Run(Config) error {
	return fmt.Errorf("launch: starting ranks as processes needs Linux or macOS, this is %s", runtime.GOOS)
}
