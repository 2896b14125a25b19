package columns_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
)

func TestExplain(t *testing.T) {
	err := errors.New("no header")
	for head, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a": "this is a Git LFS pointer in place of the file: run git lfs pull",
		"\n <!DOCTYPE html><html>":                                    "this is a web page",
		"\xef\xbb\xbf<HTML lang=en>":                                  "this is a web page",
		"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>":     "this is a web page",
		"PK\x03\x04abc":          "the file is a zip archive",
		"\x1f\x8b\x08":           "the file is compressed: decompress it with gunzip",
		"":                       "the file is empty: get it again",
		" \n":                    "the file is empty: get it again",
		"{}":                     "",
		strings.Repeat(" ", 600): "",
	} {
		got := bounded.Explain(err, []byte(head))
		require.ErrorIs(t, got, err, head)
		if want == "" {
			require.Equal(t, err, got, head)
			continue
		}
		require.ErrorContains(t, got, want, head)
		require.ErrorContains(t, got, "(no header)", head)
	}
	require.NoError(t, bounded.Explain(nil, nil))
}
