// Package examples_test tests what all examples have in common.
package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// Every example with flags returns an error for an unknown argument, for 0 ranks, and for a device that does not exist. Without a driver,
// -device cuda gives one line, which names libcuda and says where to get it. Linking takes time: each example has short tests of its flags,
// and dist of devices.
func TestLongWrongFlags(t *testing.T) {
	reliability.SkipUnlessLong(t)
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	programs, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Greater(t, len(programs), 10)
	for _, p := range programs {
		if p.Name() == "hello" { // it has no flags
			continue
		}
		for args, want := range map[string]string{"argument": `"argument"`, "-ranks 0": "", "-ranks=-1": "",
			"-device abacus": `no device "abacus": there are cpu, cuda`, "-device cuda": "libcuda comes with NVIDIA's driver"} {
			c := exec.Command(filepath.Join(dir, p.Name()), strings.Fields(args)...)
			c.Env = append(os.Environ(), "RINGO_CUDA_LIB=/none/libcuda.so.1")
			out, err := c.CombinedOutput()
			assert.Error(t, err, "%s %s: %s", p.Name(), args, out)
			assert.Contains(t, string(out), want, "%s %s", p.Name(), args)
			assert.NotContains(t, string(out), "panic", "%s %s", p.Name(), args)
			if want == "" || args == "argument" {
				assert.Equal(t, 2, c.ProcessState.ExitCode(), "%s %s: %s", p.Name(), args, out)
			}
			if args == "argument" {
				assert.Regexp(t, "^"+p.Name()+": [^0-9]", string(out), "who speaks, and no time")
			}
			if args == "-device cuda" {
				assert.Equal(t, 1, strings.Count(string(out), "\n"), "%s: %s", p.Name(), out)
			}
		}
	}
}
