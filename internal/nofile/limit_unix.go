//go:build unix

package nofile

import (
	"fmt"
	"syscall"
)

// limit returns the limit after ": ", or "" if the system does not tell.
func limit() string {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return ""
	}
	return fmt.Sprintf(": %d", r.Cur)
}
