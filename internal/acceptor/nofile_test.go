package acceptor_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/internal/nofile"
)

// The error has the limit and what is needed. It still wraps the original error, and other errors are unchanged.
func TestExplain(t *testing.T) {
	err := nofile.Explain(os.NewSyscallError("accept4", syscall.EMFILE), "5 a rank")
	assert.ErrorIs(t, err, syscall.EMFILE)
	assert.Regexp(t, `^accept4: .*: the limit of this process \(ulimit -n(: [1-9]\d*)?\); needed are 5 a rank$`, err.Error())
	again := fmt.Errorf("rank 1: %w", err)
	assert.Same(t, again, nofile.Explain(again, "7 for something else"))
	err = nofile.Explain(syscall.ENFILE, "5 a rank")
	assert.ErrorIs(t, err, syscall.ENFILE)
	assert.ErrorContains(t, err, "the limit of the whole system (on Linux /proc/sys/fs/file-max); needed are 5 a rank")
	other := errors.New("no route")
	assert.Same(t, other, nofile.Explain(other, "5 a rank"))
	assert.NoError(t, nofile.Explain(nil, "5 a rank"))
}
