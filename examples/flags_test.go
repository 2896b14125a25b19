// Package examples_test tests what all examples have in common.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every example with flags refuses an argument that it does not know, and no ranks.
func TestWrongFlags(t *testing.T) {
	if os.Getenv("RINGO_LONG") != "1" {
		t.Skip("links all examples; set RINGO_LONG=1")
	}
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	programs, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Greater(t, len(programs), 10)
	for _, p := range programs {
		if p.Name() == "hello" { // which has no flags
			continue
		}
		for _, args := range [][]string{{"argument"}, {"-ranks", "0"}, {"-ranks=-1"}} {
			out, err := exec.Command(filepath.Join(dir, p.Name()), args...).CombinedOutput()
			assert.Error(t, err, "%s %q: %s", p.Name(), args, out)
			assert.NotContains(t, string(out), "panic", "%s %q", p.Name(), args)
		}
	}
}
