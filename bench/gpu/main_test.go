package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/bench/gpu/bundle"
	"github.com/ringo-ml/ringo/bench/gpu/measure"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// TestMain makes the test binary another program if the environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("GPU_TEST_PROGRAM") != "1" {
		reliability.RunMost(m, 6)
	}
	code, err := 1, error(nil)
	switch filepath.Base(os.Args[0]) {
	case "ringo-gpu": // with the archive at its end
		code, err = bundle.Run(os.Args[1:])
	case bundle.Program:
		for _, s := range smoked {
			linked[strings.Fields(s.args)[0]] = func() {
				fmt.Printf(`{"steps": 3, "first_loss": 2.5, "final_loss": %s, "steps_per_s": 12}`, cmp.Or(os.Getenv("GPU_TEST_LOSS"), "2.25"))
			}
		}
		if err = plantFaults(os.Args[1:]); err == nil {
			if err = run(os.Args[1:], os.Stdout); err == nil {
				code = 0
			}
		}
	default: // a suite
		code = m.Run()
	}
	if err != nil {
		os.Stderr.WriteString("gpu: " + err.Error() + "\n")
	}
	os.Exit(code)
}

// testPrograms makes the programs of a bundle: its program and its only suite are this test binary.
func testPrograms(t *testing.T) (program string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	path := func(name string) string {
		file := bundle.Path(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		return file
	}
	for _, name := range []string{bundle.Program, suiteEntry.Name} {
		if os.Link(self, path(name)) == nil { // a symbolic link would not be what the process sees as its name
			continue
		}
		body, err := os.ReadFile(self)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path(name), body, 0o755))
	}
	require.NoError(t, os.WriteFile(path("tests"), []byte(suiteEntry.Name+" "+strings.Join(suiteEntry.Tests, " ")), 0o666))
	return path(bundle.Program)
}

var suiteEntry = bundle.Entry{Name: "suite/gpu.test", Tests: []string{"TestOneKernel", "TestSummary", "TestBrokenKernel", "TestThatHangs"}}

func program(t *testing.T, file string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(file, args...)
	cmd.Env = append(os.Environ(), "GPU_TEST_PROGRAM=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestOneKernel is the test of this suite that runs on a device.
func TestOneKernel(t *testing.T) {
	dev, err := emu.Start(t, emu.Config{}).Open(0)
	require.NoError(t, err)
	require.NoError(t, dev.Lock())
	defer dev.Unlock()
	_, err = dev.Module(cuda.Source{Name: "one.cu", Text: `extern "C" __global__ void one(float* x) { *x = 1; }`})
	require.NoError(t, err)
}

// inBundle skips a test unless a bundle runs it: it fails on purpose.
func inBundle(t *testing.T) {
	if os.Getenv("GPU_TEST_PROGRAM") != "1" {
		t.Skip("fails on purpose, in a bundle")
	}
}

var broken = cuda.Source{Name: "broken.cu",
	Text: `extern "C" __global__ void broken(float* x) { ((float*)(sizeof(float) << 20))[x == 0] = 1; }`}

func TestBrokenKernel(t *testing.T) {
	inBundle(t)
	dev, err := emu.Start(t, emu.Config{}).Open(0)
	require.NoError(t, err)
	require.NoError(t, dev.Lock())
	m, err := dev.Module(broken)
	require.NoError(t, err)
	f, err := m.Func("broken")
	require.NoError(t, err)
	s, err := dev.NewStream("s", 0)
	require.NoError(t, err)
	p, err := dev.NewPool("test").Alloc(s, 4)
	require.NoError(t, err)
	require.NoError(t, s.Launch(f, cuda.Dim{}, cuda.Dim{}, 0, cuda.NewArgs().Ptr(p)))
	require.NoError(t, s.Sync())
}

func TestThatHangs(t *testing.T) {
	inBundle(t)
	select {}
}

func TestBundleWithoutGPU(t *testing.T) {
	t.Setenv("RINGO_CUDA_LIB", "") // the emulator sets it
	if _, err := cuda.LibDriver.Query(0).Open(); err == nil {
		t.Skip("this machine has a CUDA driver")
	}
	file := testPrograms(t)
	out, err := program(t, file, "list")
	require.NoError(t, err, out)
	assert.Contains(t, out, "test suite/gpu.test: ")
	assert.Contains(t, out, "TestOneKernel")
	assert.Contains(t, out, "bench gpt2: ")

	out, err = program(t, file, "test", "-run", "TestOneKernel")
	require.NoError(t, err, out)
	assert.Regexp(t, `suite/gpu.test: 0 passed, 0 failed, 1 skipped, [0-9.]+ s\n  skipped: no CUDA driver: libcuda comes with`, out)

	out, err = program(t, file, "bench", "-python", "", "copy")
	require.Error(t, err)
	assert.Contains(t, out, "copy by Ringo: exit status 1")
	assert.Contains(t, out, "gpu: no CUDA driver: libcuda comes with")
	out, err = program(t, file, "-python", "")
	require.Error(t, err)
	assert.Contains(t, out, "gpu: nothing was tested or measured: no CUDA driver: libcuda comes with")

	_, err = program(t, file, "test", "tensor/none")
	assert.Error(t, err)
}

func TestBundleOnEmulator(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	dev, err := emu.Start(t, emu.Config{}).Open(0) // sets the variables that name its libraries
	require.NoError(t, err)
	require.NoError(t, dev.Lock())
	_, err = dev.Module(broken) // compiled now, so that its time does not count
	require.NoError(t, err)
	dev.Unlock()
	file := testPrograms(t)
	out, err := program(t, file, "test", "-run", "TestOneKernel|TestSummary")
	require.NoError(t, err, out)
	assert.Contains(t, out, "suite/gpu.test: 2 passed, 0 failed, 0 skipped")
	assert.Contains(t, out, "tests: 2 of 2 passed")

	// A crash or a hang does not stop other tests, and is reported at the end with the important results. The logs have all output.
	logs := filepath.Join(t.TempDir(), "logs")
	out, err = program(t, file, "test", "-each", "7s", "-logs", logs)
	require.Error(t, err)
	assert.Contains(t, out, "suite/gpu.test: 2 passed, 2 failed, 0 skipped")
	assert.Regexp(t,
		`(?s)TestBrokenKernel of suite/gpu.test: exit status 1.*CUDA_ERROR_ILLEGAL_ADDRESS.*TestThatHangs of suite/gpu.test: exit status 2\n.*panic: test timed out.*tests: 2 of 4 passed`,
		out)
	text, err := os.ReadFile(filepath.Join(logs, "tests.log"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "##### TestBrokenKernel of suite/gpu.test: exit status 1")
	assert.Contains(t, string(text), "goroutine ")

	out, err = program(t, file, "test", "-limit", "1ns")
	require.Error(t, err)
	assert.Contains(t, out, "TestOneKernel of suite/gpu.test: not run: no time was left")
}

// Short forms are TestNCCLPair, and TestDevices of package measure.
func TestLongMeasureInAnotherProcess(t *testing.T) {
	reliability.SkipUnlessLong(t)
	out, err := program(t, testPrograms(t), "bench", "-device", "cpu", "-window", "1us", "-python", "", "mlp")
	require.NoError(t, err, out)
	assert.Contains(t, out, "| mlp | batch 64 | steps/s | ")
	out, err = program(t, testPrograms(t), "bench", "-device", "tpu", "-python", "", "mlp")
	require.Error(t, err)
	assert.Contains(t, out, `mlp by Ringo: exit status 1`)
	assert.Contains(t, out, `no device "tpu"`)
}

// TestSmoke: examples that are linked train, and one whose loss does not fall is wrong.
func TestSmoke(t *testing.T) {
	file := testPrograms(t)
	out, err := program(t, file, "smoke", "-device", "cpu", "-python", "")
	require.NoError(t, err, out)
	assert.Regexp(t, `(?m)^example gpt -steps 200 .*-steps 3 .*: loss 2\.5 to 2\.25, 12\.0 steps/s, [0-9.]+ s in all$`, out)
	assert.Equal(t, len(smoked), strings.Count(out, "example "))
	for _, loss := range []string{"2.5", "9"} {
		t.Setenv("GPU_TEST_LOSS", loss)
		out, err = program(t, file, "smoke", "-device", "cpu", "-python", "")
		require.Error(t, err)
		assert.Contains(t, out, "example moe -steps 100")
		assert.Contains(t, out, "after 3 steps the loss is "+loss+", before them 2.5")
	}
	assert.ErrorContains(t, example([]string{"gpt"}), "no example gpt in this file")
}

func TestGPUTests(t *testing.T) {
	helpers, err := filepath.Glob("../../dist/disttest/*.go")
	require.NoError(t, err)
	s, err := findStarters(helpers)
	require.NoError(t, err)
	gpuTests := func(files []string) ([]string, error) { return gpuTests(files, s) }
	tests, err := gpuTests([]string{"main_test.go", "measure/measure_test.go"})
	require.NoError(t, err)
	assert.Subset(t, tests, []string{"TestOneKernel", "TestBrokenKernel", "TestFloat8Section"})
	assert.NotContains(t, tests, "TestParseRow")
	assert.NotContains(t, tests, "TestLongPack")
	tests, err = gpuTests([]string{"../../tensor/cuda/harness_test.go", "../../tensor/cuda/rows_test.go", "../../tensor/cuda/nvrtc_test.go"})
	require.NoError(t, err)
	assert.Contains(t, tests, "TestSoftmax", "by bothOrders of another file")
	assert.NotContains(t, tests, "TestNVRTC")
	tests, err = gpuTests([]string{"../../ddp/device_test.go", "../../ddp/bucket_test.go", "../../ddp/harness_test.go"})
	require.NoError(t, err)
	assert.Contains(t, tests, "TestDevicesEqualOneRank", "by another package")
	assert.NotContains(t, tests, "TestBucketLayout")
}

func TestLongPack(t *testing.T) {
	reliability.SkipUnlessLong(t)
	file := filepath.Join(t.TempDir(), "ringo-gpu")
	require.NoError(t, pack(file, io.Discard))
	out, err := program(t, file, "list")
	require.NoError(t, err, out)
	assert.Contains(t, out, "test tensor/cuda: ")
	out, err = program(t, file, "doctor", "-device", "cpu")
	require.NoError(t, err, out)
	assert.Contains(t, out, "libcuda")
	emu.Start(t, emu.Config{})
	out, err = program(t, file, "test", "-run", "TensorCores$|PlainKernel|RealSizes", "tensor/cuda")
	require.NoError(t, err, out)
	assert.Regexp(t, `tensor/cuda: [1-9]\d* passed, 0 failed, 0 skipped`, out, "no test of a kernel on tensor cores is left out on a GPU")
}

// TestSanitizer: the test of a broken kernel runs again under compute-sanitizer, and so do tests that may have races.
func TestSanitizer(t *testing.T) {
	dir := t.TempDir()
	tool := "#!/bin/sh\necho \"========= $*\"\ncase \"$*\" in *TestRacy*) exit 9 ;; esac\n"
	require.NoError(t, writeProgram(filepath.Join(dir, "compute-sanitizer"), tool))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	o, program := &options{each: time.Minute, deadline: time.Now().Add(time.Hour)}, exec.Command("/the/program")
	var f failure
	o.sanitize(program, "TestX", []byte("CUDA_ERROR_ILLEGAL_ADDRESS"), &f)
	assert.Contains(t, f.text, "========= --print-limit 1 /the/program -test.run ^TestX$")
	f = failure{}
	o.sanitize(program, "TestX", []byte("a number is wrong"), &f)
	assert.Empty(t, f.text)

	defer func(all map[string]string) { racy = all }(racy)
	racy = map[string]string{"a": "TestGood", "b": "TestRacy"}
	for name, want := range map[string]int{"a": 0, "b": 1, "c": 0} {
		s, out := &suite{name: name}, new(strings.Builder)
		o.races(program, s, out)
		require.Len(t, s.failures, want)
		assert.Equal(t, name == "a", out.Len() > 0, out)
		if want > 0 {
			assert.Equal(t, "racecheck of TestRacy", s.failures[0].test)
			assert.Contains(t, s.failures[0].text, "--tool racecheck --error-exitcode 9 /the/program -test.run ^(TestRacy)$")
		}
	}
}

func TestSummary(t *testing.T) {
	s := summarize([]byte(`=== RUN   TestA
--- PASS: TestA (0.01s)
=== RUN   TestB
=== RUN   TestB/x
    b_test.go:3: inner
    --- SKIP: TestB/x (0.00s)
--- PASS: TestB (0.00s)
    c_test.go:10: no driver: none
--- SKIP: TestC (0.00s)
    c_test.go:12: no driver: none
--- SKIP: TestD (0.00s)
    e_test.go:1: wrong
--- FAIL: TestE (0.00s)
FAIL
`))
	assert.Equal(t, summary{passed: 2, failed: 1, skipped: 2, reasons: []string{"no driver: none"}}, s)
}

func TestTable(t *testing.T) {
	var out strings.Builder
	writeTable(&out, []measure.Row{
		figures("copy", "1 GiB", "ringo", "GB/s", 4000, 3990, 4010),
		figures("rows", "add", "ringo", "GB/s", 3600, 3600, 3600),
		figures("rows", "add", "eager", "GB/s", 3000, 2900, 3100),
		figures("mlp", "batch 64", "eager", "steps/s", 12.345, 12, 13),
		figures("mlp", "batch 64", "CUDA graph", "steps/s", 5, 5, 5),
	})
	assert.Equal(t, `| section | case | unit | Ringo | PyTorch | ratio | of copy |
|---|---|---|---|---|---|---|
| copy | 1 GiB | GB/s | 4000 (3990–4010) |  |  | 100% |
| rows | add | GB/s | 3600 | eager 3000 (2900–3100) | 1.20× | 90% |
| mlp | batch 64 | steps/s | – | eager 12.3 (12.0–13.0); CUDA graph 5.00 |  |  |
`, out.String())
}

// fakePeer is a framework that has one section.
type fakePeer struct{ asked []string }

func (p *fakePeer) measure(section string) ([]measure.Row, error) {
	p.asked = append(p.asked, section)
	if section != "gemm" {
		return nil, errors.New("not known")
	}
	return []measure.Row{figures(section, "float32 64x64x64", "eager", "TFLOP/s", 1)}, nil
}
func (p *fakePeer) about() string { return "fake" }
func (p *fakePeer) close()        {}

// TestSections measures every section, with small sizes and in as little time as possible.
func TestSections(t *testing.T) {
	dev, closer, err := measure.OpenDevice("cpu")
	require.NoError(t, err)
	defer closer()
	o := &options{device: "cpu", small: true, window: time.Microsecond, deadline: time.Now().Add(time.Minute)}
	var out, printed strings.Builder
	p := new(fakePeer)
	ours := func(name string) ([]measure.Row, error) {
		s, err := measure.Named([]string{name})
		require.NoError(t, err)
		return o.measured().Section(dev, s[0], &printed)
	}
	rows, wrong := o.measure(measure.Sections, ours, p, &out)
	var asked []string
	for _, s := range measure.Sections {
		found := 0
		for _, r := range rows {
			if r.Section == s.Name && r.Variant == "ringo" {
				found++
				assert.True(t, r.Low <= r.Median && r.Median <= r.High, r)
				assert.NotZero(t, r.Median, "%v", r)
			}
		}
		assert.Equal(t, !slices.Contains(overNCCL, s.Name), found > 0, s.Name) // those are measured in nccl_test.go
		if !s.Alone {
			asked = append(asked, s.Name)
		}
	}
	assert.Equal(t, asked, p.asked)
	ringos := slices.DeleteFunc(slices.Clone(rows), func(r measure.Row) bool { return r.Variant != "ringo" })
	assert.Equal(t, measure.Print(io.Discard, ringos), printed.String(), "rows as they come")
	assert.Len(t, wrong, len(asked)-1)
	assert.Contains(t, wrong[0], "copy by PyTorch: not known")
	assert.Contains(t, out.String(), "gemm\tfloat32 64x64x64\teager\tTFLOP/s\t1\t1\t1\n")

	o.deadline = time.Now()
	rows, wrong = o.measure(measure.Sections, ours, p, &out)
	assert.Empty(t, rows)
	assert.Len(t, wrong, len(measure.Sections))
}

// TestTorch asks the Python program for its sections.
func TestTorch(t *testing.T) {
	python := os.Getenv("RINGO_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import torch").Run() != nil {
		t.Skip("this test needs PyTorch: set RINGO_PYTHON to a Python that has it")
	}
	o := &options{device: "cpu", small: true, python: python, window: time.Microsecond, deadline: time.Now().Add(time.Hour)}
	p, err := o.startTorch(time.Hour)
	require.NoError(t, err)
	defer p.close()
	assert.Contains(t, p.about(), "PyTorch")
	for _, s := range measure.Sections {
		if s.Alone {
			_, err := p.measure(s.Name)
			assert.Error(t, err)
			continue
		}
		rows, err := p.measure(s.Name)
		require.NoError(t, err)
		assert.NotEmpty(t, rows)
	}
}
