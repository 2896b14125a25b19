package nofile

import (
	"errors"
	"fmt"
	"syscall"
)

// Explain adds the limit to an error that says "too many open files", and how many descriptors are needed, such as "3 for each of 8
// ranks". It returns other errors unchanged.
func Explain(err error, need string) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: the limit of this process (ulimit -n%s); needed are %s", err, limit(), need)
	case errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%w: the limit of the whole system (on Linux /proc/sys/fs/file-max); needed are %s", err, need)
	}
	return err
}
