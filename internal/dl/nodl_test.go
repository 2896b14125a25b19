//go:build nodl

package dl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/dl"
)

func TestNoDL(t *testing.T) {
	require.False(t, dl.Enabled)
	_, err := dl.Query{What: "the C library", Names: []string{"libc.so.6", "libother.so"}}.Open()
	require.ErrorIs(t, err, dl.ErrNotFound)
	require.EqualError(t, err,
		"library not found: the C library: this binary was built with -tags nodl, without the means to open shared libraries")
}
