package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Values of several trainings are drawn in one picture: a line for each, a heat map for each, and only names that fit.
func TestPlot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := make([]string, 3)
	for i := range files {
		text := ""
		for step := range 60 {
			text += fmt.Sprintf("{\"step\":%d,\"time\":1,\"loss\":%d,\"load[0]\":%d,\"load[1]\":1,\"other\":2}\n", step+1, i+step%3, i)
		}
		files[i] = filepath.Join(dir, fmt.Sprintf("m%d.jsonl", i))
		require.NoError(t, os.WriteFile(files[i], []byte(text), 0o666))
	}
	picture := filepath.Join(dir, "out.svg")
	_, stderr, code := run(t, "plot", "-o", picture, "-names", "^lo", "no balance="+files[0], "the loss="+files[1], files[2])
	require.Zero(t, code, stderr)
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	for want, n := range map[string]int{">no balance<": 2, ">the loss<": 2, ">m2<": 2, ">load<": 3, ">loss<": 1, ">other<": 0} {
		assert.Equal(t, n, strings.Count(string(svg), want), want)
	}
	for want, args := range map[string][]string{
		"the name must end in .svg":                      {"-o", "x.jpg", files[0]},
		"-names: error parsing regexp":                   {"-o", picture, "-names", "(", files[0]},
		`nothing to draw: no value has a name that fits`: {"-o", picture, "-names", "^none$", files[0]},
		"no such file":                                   {"-o", picture, "gone=" + filepath.Join(dir, "gone.csv")},
	} {
		_, stderr, code := run(t, append([]string{"plot"}, args...)...)
		assert.Contains(t, stderr, want)
		assert.NotZero(t, code)
	}
}
