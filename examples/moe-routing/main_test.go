package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
)

func run(t *testing.T, o options) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, o.run(dist.Config{Ranks: o.ranks, Threads: 1, Log: &out}))
	return out.String()
}

// Every token gets to the experts that it chose, once, and the layer computes the same.
func TestRouting(t *testing.T) {
	for _, o := range []options{{ranks: 2, tokens: 16, experts: 4, top: 1, seed: 3}, {ranks: 4, tokens: 11, experts: 8, top: 3, seed: 5},
		{ranks: 1, tokens: 1, experts: 1, top: 1}} {
		text := run(t, o)
		require.Contains(t, text, "differs by 0 from one rank")
		got := 0
		for _, line := range strings.Split(text, "\n") {
			if _, tokens, ok := strings.Cut(line, "gets tokens "); ok {
				got += len(strings.Fields(strings.Trim(tokens, "[]")))
			}
		}
		require.Equal(t, o.tokens*o.top, got, text)
	}
}

func TestPicture(t *testing.T) {
	o := options{ranks: 2, tokens: 16, experts: 4, top: 2, seed: 3, picture: filepath.Join(t.TempDir(), "p.svg")}
	run(t, o)
	text, err := os.ReadFile(o.picture)
	require.NoError(t, err)
	require.Contains(t, string(text), "rank 1: token 15")
	require.Contains(t, string(text), "expert 3 on rank 1")
	require.Contains(t, string(text), "font-family:'DejaVu Sans',Verdana,")
	require.NotRegexp(t, "font-family:[^']", string(text), "no other font")
}

func TestMisuse(t *testing.T) {
	o := options{ranks: 3, tokens: 16, experts: 4, top: 1, seed: 3}
	require.ErrorContains(t, o.run(dist.Config{Ranks: 3, Log: new(bytes.Buffer)}), "4 experts do not divide over 3 ranks")
	o = options{ranks: 1, tokens: 16, experts: 4, top: 1, seed: 3, picture: filepath.Join(t.TempDir(), "none", "p.svg")}
	require.Error(t, o.run(dist.Config{Ranks: 1, Log: new(bytes.Buffer)}))
}
