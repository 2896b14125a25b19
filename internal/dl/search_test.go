//go:build (linux || darwin) && !nodl

package dl_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/dl"
)

var wheels = dl.Query{What: "a test", Names: []string{"libringotest.so.13", "libringotest.so.12"}, Wheels: []string{"cu13/lib", "part/lib"}}

// alone removes what the machine's environment would add.
func alone(t *testing.T) string {
	root := t.TempDir()
	for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "PATH"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", filepath.Join(root, "home"))
	return root
}

// files returns the names to try if these are all the files: version 13 comes before 12, wherever they are.
func files(of13, of12 []string) []string {
	out := append([]string{wheels.Names[0]}, of13...)
	return append(append(out, wheels.Names[1]), of12...)
}

func TestBareNamesComeFirst(t *testing.T) {
	alone(t)
	require.Equal(t, wheels.Names, wheels.Candidates())
}

func TestWheelsOfVirtualEnvironments(t *testing.T) {
	root := alone(t)
	env := filepath.Join(root, "env")
	site := filepath.Join(env, "lib/python3.11/site-packages/nvidia")
	a := touch(t, filepath.Join(site, "part/lib/libringotest.so.12"))
	b := touch(t, filepath.Join(site, "cu13/lib/libringotest.so.13"))
	want := files([]string{b}, []string{a}) // ordered by name, not by folder

	t.Setenv("VIRTUAL_ENV", env)
	require.Equal(t, want, wheels.Candidates())

	t.Setenv("VIRTUAL_ENV", "")
	python := touch(t, filepath.Join(env, "bin/python3"))
	t.Setenv("PATH", filepath.Dir(python))
	require.Equal(t, want, wheels.Candidates(), "python3 in PATH")
}

// The python3 of a virtual environment is a link to another python3, which may be a link, too: all these places count.
func TestWheelsBehindLinks(t *testing.T) {
	root := alone(t)
	base := touch(t, filepath.Join(root, "base/bin/python3.11"))
	a := touch(t, filepath.Join(root, "base/lib/python3.11/site-packages/nvidia/part/lib/libringotest.so.12"))
	b := touch(t, filepath.Join(root, "env/lib/python3.11/site-packages/nvidia/part/lib/libringotest.so.12"))
	link := filepath.Join(root, "env/bin/python3")
	require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
	require.NoError(t, os.Symlink(base, link))
	c := touch(t, filepath.Join(root, "usr/lib/python3.11/site-packages/nvidia/part/lib/libringotest.so.12"))
	first := filepath.Join(root, "usr/bin/python3")
	require.NoError(t, os.MkdirAll(filepath.Dir(first), 0o755))
	require.NoError(t, os.Symlink("../../env/bin/python3", first))
	t.Setenv("PATH", filepath.Dir(first))
	require.Equal(t, files(nil, []string{c, b, a}), wheels.Candidates())
}

func TestWheelsOfPyenvAndUser(t *testing.T) {
	root := alone(t)
	shim := touch(t, filepath.Join(root, "pyenv/shims/python3"))
	a := touch(t, filepath.Join(root, "pyenv/versions/3.9.1/lib/python3.9/site-packages/nvidia/part/lib/libringotest.so.12"))
	b := touch(t, filepath.Join(root, "home/.local/lib/python3.11/site-packages/nvidia/part/lib/libringotest.so.12"))
	t.Setenv("PATH", filepath.Dir(shim))
	require.Equal(t, files(nil, []string{a, b}), wheels.Candidates())
}

func TestToolkitFolder(t *testing.T) {
	root := alone(t)
	a := touch(t, filepath.Join(root, "cuda/lib64/libringotest.so.12"))
	t.Setenv("CUDA_HOME", filepath.Join(root, "cuda"))
	require.Equal(t, files(nil, []string{a}), wheels.Candidates())
}

// besides counts the runs of TestBeside: what was opened stays open, and a bare name finds it.
var besides int

// A library that opens another one by its bare name finds it in its own folder, as NVRTC must: some wheels do not set this up.
func TestBeside(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("this test builds libraries with gcc for Linux")
	}
	dir := t.TempDir()
	build := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file+".c", []byte(text), 0o644))
		out, err := exec.Command(gcc, "-shared", "-fPIC", "-Wl,-soname,"+name, "-o", file, file+".c", "-ldl").CombinedOutput()
		require.NoError(t, err, "%s", out)
		return file
	}
	besides++
	name := fmt.Sprintf("libringotest-other%d.so", besides)
	build(name+".7", "int other(void) { return 7; }")
	outer := build(fmt.Sprintf("libringotest-one%d.so", besides), `
#include <dlfcn.h>
int finds(void) { return dlopen("`+name+`.7", RTLD_NOW) != 0; }`)
	t.Setenv("RINGO_TEST_LIB", outer)
	for _, beside := range []string{"", name + ".*"} {
		lib, err := dl.Query{What: "a test", Env: "RINGO_TEST_LIB", Beside: beside}.Open()
		require.NoError(t, err)
		finds, err := lib.Sym("finds")
		require.NoError(t, err)
		require.Equal(t, beside != "", int32(dl.Call(finds)) != 0)
	}
}

// touch makes an empty file and its folders.
func touch(t *testing.T, path string) string {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	return path
}
