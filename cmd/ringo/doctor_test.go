package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/cmd/ringo/doctor"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// runDoctor runs `ringo doctor args…` with only these variables. It does not see the Pythons of this machine.
func runDoctor(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"doctor"}, args...)...)
	cmd.Env = append(env, "RINGO_TEST_CLI=1", "HOME="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the tests check the exit status
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// diagnose runs doctor -json.
func diagnose(t *testing.T, env []string, args ...string) (*doctor.Diagnosis, int) {
	t.Helper()
	out, errs, code := runDoctor(t, env, append(args, "-json")...)
	d := new(doctor.Diagnosis)
	require.NoError(t, json.Unmarshal([]byte(out), d), "%s%s", out, errs)
	return d, code
}

func bareMachine(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the libraries have these names on Linux")
	}
	t.Setenv("RINGO_CUDA_LIB", "") // the emulator has set it
	if _, err := cuda.LibDriver.Query(0).Open(); err == nil {
		t.Skip("this machine has a CUDA driver")
	}
}

func TestDoctorOnBareMachine(t *testing.T) {
	bareMachine(t)
	out, errs, code := runDoctor(t, nil)
	assert.Zero(t, code, errs)
	assert.Regexp(t, `libcuda +everything on a GPU +not found`, out)
	assert.Contains(t, out, "Training runs on the CPU")
	assert.Contains(t, out, "libcuda comes with NVIDIA's driver")

	_, errs, code = runDoctor(t, nil, "-device", "cuda")
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "no CUDA driver: libcuda comes with NVIDIA's driver")
	assert.Equal(t, 1, strings.Count(errs, "\n"), "one sentence: %s", errs)

	_, errs, code = runDoctor(t, []string{"RINGO_DEVICE=cuda"})
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "no CUDA driver")

	_, errs, code = runDoctor(t, nil, "-device", "tpu")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, `-device "tpu" is not cpu or cuda`)
}

func TestDoctorFindsWrongSettings(t *testing.T) {
	for env, want := range map[string]string{"RINGO_CPU=sse1": "RINGO_CPU=sse1", "RINGO_SHM=maybe": "RINGO_SHM=maybe"} {
		d, code := diagnose(t, []string{env})
		assert.Equal(t, 1, code)
		require.Len(t, d.Wrong, 1)
		assert.Contains(t, d.Wrong[0], want)
	}
}

// Every other command refuses an unknown instruction set, before it does anything.
func TestUnknownCPU(t *testing.T) {
	t.Setenv("RINGO_CPU", "sse1")
	for _, args := range [][]string{{"plan"}, {"ckpt", "ls", "/none"}, {"run", "-n", "2", "true"}} {
		out, errs, code := run(t, args...)
		assert.Equal(t, 1, code, args)
		assert.Empty(t, out, args)
		assert.Regexp(t, `^ringo: RINGO_CPU=sse1: this CPU and build support .*generic\n$`, errs, args)
	}
	_, _, code := run(t, "version")
	assert.Equal(t, 0, code)
}

// fakes are libraries that only know their version.
var fakes = map[string]string{
	"libnvrtc.so.13":    `int nvrtcVersion(int *a, int *b) { *a = 13; *b = 5; return 0; }`,
	"libnvrtc.so.12":    `int nvrtcVersion(int *a, int *b) { *a = 12; *b = 9; return 0; }`,
	"libcublasLt.so.13": `unsigned long cublasLtGetVersion(void) { return 131000; }`,
	"libnccl.so.2":      `int ncclGetVersion(int *v) { *v = 23203; return 0; }`,
	"old/libnccl.so.2":  `int ncclGetVersion(int *v) { *v = 22105; return 0; }`,
	"libnvidia-ml.so.1": `int nvmlInit_v2(void) { return 0; }
		int nvmlSystemGetDriverVersion(char *s, unsigned n) { const char *v = "580.159.04"; while ((*s++ = *v++)); return n < 12; }`,
}

// install compiles a library of fakes, or writes garbage, into root/folder.
func install(t *testing.T, root, folder, lib string) {
	t.Helper()
	path := filepath.Join(root, folder, filepath.Base(lib))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	if lib == "garbage/libnvrtc.so.13" {
		require.NoError(t, os.WriteFile(path, []byte("no library"), 0o644))
		return
	}
	source := filepath.Join(t.TempDir(), "fake.c")
	require.NoError(t, os.WriteFile(source, []byte(fakes[lib]), 0o644))
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", path, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestDoctorFindsLibraries(t *testing.T) {
	bareMachine(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("the libraries of this test are made by gcc, which is not installed")
	}
	const site = "lib/python3.12/site-packages/nvidia/"
	for name, c := range map[string]struct {
		folder, lib, variable string // variable is set to the root
		index                 int    // in Libraries
		version, problem      string
	}{
		"CUDA 13 wheel":          {site + "cu13/lib", "libnvrtc.so.13", "VIRTUAL_ENV", 1, "13.5", ""},
		"CUDA 12 wheel":          {site + "cuda_nvrtc/lib", "libnvrtc.so.12", "VIRTUAL_ENV", 1, "12.9", ""},
		"toolkit":                {"lib64", "libnvrtc.so.13", "CUDA_HOME", 1, "13.5", ""},
		"conda":                  {"lib", "libcublasLt.so.13", "CONDA_PREFIX", 2, "13.10.0", ""},
		"loader's path":          {".", "libnccl.so.2", "LD_LIBRARY_PATH", 3, "2.32.3", ""},
		"NCCL wheel":             {site + "nccl/lib", "libnccl.so.2", "VIRTUAL_ENV", 3, "2.32.3", ""},
		"old NCCL":               {site + "nccl/lib", "old/libnccl.so.2", "VIRTUAL_ENV", 3, "2.21.5", "NCCL 2.21.5; 2.22.3 or newer is needed"},
		"NVML":                   {".", "libnvidia-ml.so.1", "LD_LIBRARY_PATH", 4, "driver 580.159.04", ""},
		"damaged":                {site + "cu13/lib", "garbage/libnvrtc.so.13", "VIRTUAL_ENV", 1, "", "file too short"},
		"wheel in another place": {"nvidia/cu13/lib", "libnvrtc.so.13", "VIRTUAL_ENV", 1, "", "library not found"},
	} {
		if !reliability.Long(t) && !slices.Contains([]string{"CUDA 13 wheel", "old NCCL"}, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			install(t, root, c.folder, c.lib)
			d, code := diagnose(t, []string{c.variable + "=" + root})
			assert.Zero(t, code)
			lib := d.Libraries[c.index]
			assert.Equal(t, c.version, lib.Version)
			if c.problem != "" {
				assert.Contains(t, lib.Problem, c.problem)
				assert.Contains(t, d.Get, cuda.Library(c.index).Wheel(13))
				return
			}
			assert.Empty(t, lib.Problem)
			assert.Equal(t, filepath.Join(root, c.folder, filepath.Base(c.lib)), lib.Path)
			if wheel := cuda.Library(c.index).Wheel(13); wheel != "" {
				assert.NotContains(t, d.Get, wheel)
			}
		})
	}
}

func TestLongDoctorFindsLibraries(t *testing.T) { reliability.AsLong(t, TestDoctorFindsLibraries) }

func TestDoctorUnderEmulator(t *testing.T) {
	emu.Start(t, emu.Config{}) // two devices
	env := os.Environ()        // has the emulator's libraries
	d, code := diagnose(t, env, "-device", "cuda")
	require.Len(t, d.GPUs, 2)
	assert.Equal(t, "sm_90", d.GPUs[1].Arch)
	assert.True(t, d.Libraries[0].Found)
	assert.True(t, filepath.IsAbs(d.Libraries[0].Path))
	assert.Equal(t, "", d.Libraries[1].Problem, "NVRTC")
	missing := 0
	for _, lib := range d.Libraries[1:3] {
		if lib.Problem != "" {
			missing++
		}
	}
	assert.Len(t, d.Wrong, missing)
	assert.Equal(t, missing > 0, code != 0)

	if !reliability.Long(t) {
		return
	}
	// A compiler library that opens but cannot compile.
	d, code = diagnose(t, append(env, "EMU_SHIM=/nowhere"), "-device", "cuda")
	assert.Equal(t, 1, code)
	assert.Contains(t, d.Libraries[1].Problem, "cuda: nvrtcCompileProgram of doctor.cu for sm_90")
	assert.Contains(t, d.Wrong[0], "no usable NVRTC, which compiles the kernels: get NVRTC with")
}

func TestLongDoctorUnderEmulator(t *testing.T) { reliability.AsLong(t, TestDoctorUnderEmulator) }
