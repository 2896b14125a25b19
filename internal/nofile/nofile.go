package nofile

import (
	"errors"
	"fmt"
	"syscall"
)

// Explain adds to an error that says "too many open files" which limit that is, and what is needed, such as "3 for each of 8
// ranks". Other errors it returns as they are.
func Explain(err error, need string) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: the limit of this process (ulimit -n%s); needed are %s", err, limit(), need)
	case errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%w: the limit of the whole system (on Linux /proc/sys/fs/file-max); needed are %s", err, need)
	}
	return err
}
