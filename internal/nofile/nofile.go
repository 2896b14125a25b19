package nofile

import (
	"errors"
	"fmt"
	"syscall"
)

// explained is an error that says the limit.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// Explain adds the limit to an error that says "too many open files", and how many descriptors are needed, such as "3 for each of 8
// ranks". It returns other errors unchanged, and those that it has explained before.
func Explain(err error, need string) error {
	var done explained
	switch {
	case errors.As(err, &done):
		return err
	case errors.Is(err, syscall.EMFILE):
		return explained{fmt.Errorf("%w: the limit of this process (ulimit -n%s); needed are %s", err, limit(), need)}
	case errors.Is(err, syscall.ENFILE):
		return explained{fmt.Errorf("%w: the limit of the whole system (on Linux /proc/sys/fs/file-max); needed are %s", err, need)}
	}
	return err
}
