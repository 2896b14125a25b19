package nccl_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/nccl"
)

// If there is no NCCL, AMD's library with the same interface is found by its name.
func TestRCCLByName(t *testing.T) {
	emu.Start(t, emu.Config{})
	if lib, err := dl.Open("NCCL", "libnccl.so.2"); err == nil {
		t.Skipf("NCCL is here: %s", lib.Path)
	}
	library, err := os.ReadFile(emu.Library(t, "libnccl.so"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "librccl.so.1"), library, 0o755))
	cmd := exec.Command(os.Args[0], "-test.run=^TestAnotherLibrary$", "-test.v")
	cmd.Env = append(os.Environ(), "RINGO_TEST_NCCL_LOAD=1", "RINGO_NCCL_LIB=", "VIRTUAL_ENV=", "HOME="+dir, "LD_LIBRARY_PATH="+dir,
		"EMU_NCCL_VERSION=22203")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "opened NCCL 2.22.3 (librccl.so.1)\n")
}

// RINGO_NCCL_LIB names a library with NCCL's interface, such as RCCL. NCCL's own variables reach it, and what NCCL_DEBUG prints is not
// lost in a pipe.
func TestEnvironment(t *testing.T) {
	emu.Start(t, emu.Config{})
	library, err := os.ReadFile(emu.Library(t, "libnccl.so"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "librccl.so.1")
	require.NoError(t, os.WriteFile(path, library, 0o755))
	for _, debug := range []string{"", "VERSION"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAnotherLibrary$", "-test.v")
		cmd.Env = append(os.Environ(), "RINGO_TEST_NCCL_LOAD=1", "RINGO_NCCL_LIB="+path, "EMU_NCCL_VERSION=22203", "NCCL_DEBUG="+debug)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Contains(t, string(out), "opened NCCL 2.22.3 ("+path+")\n")
		assert.Equal(t, debug != "", slices.Contains(strings.Split(string(out), "\n"), "NCCL version 2.32.3+emulated"), string(out))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAnotherLibrary$", "-test.v")
	cmd.Env = append(os.Environ(), "RINGO_TEST_NCCL_LOAD=1", "RINGO_NCCL_LIB=/nowhere/librccl.so.1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Regexp(t, "no NCCL: get NCCL with `pip install nvidia-nccl-cu13==[0-9.]+`: RINGO_NCCL_LIB is set: .*/nowhere/librccl.so.1",
		string(out))
}

// TestAnotherLibrary is the process that TestEnvironment starts.
func TestAnotherLibrary(t *testing.T) {
	if os.Getenv("RINGO_TEST_NCCL_LOAD") == "" {
		t.Skip("runs as a process of TestEnvironment")
	}
	lib, err := nccl.Load()
	require.NoError(t, err)
	fmt.Println("opened", lib)
	_, err = lib.UniqueID()
	require.NoError(t, err)
}
