package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// sanitizer finds NVIDIA's compute-sanitizer.
func sanitizer() (path string, err error) {
	if path, err = exec.LookPath("compute-sanitizer"); err != nil {
		path, err = exec.LookPath("/usr/local/cuda/bin/compute-sanitizer")
	}
	return path, err
}

// racy are tests whose kernels share memory between warps. They run again under racecheck.
var racy = map[string]string{"tensor/cuda": "TestTensorCoresAndPlainKernel|TestGroupedAndPlainKernel"}

// races looks for races in the kernels of a suite, if compute-sanitizer is installed.
func (o *options) races(program *exec.Cmd, s *suite, out io.Writer) {
	tests := racy[s.name]
	tool, err := sanitizer()
	if err != nil || tests == "" || o.run != "" {
		return
	}
	ctx, cancel := o.timeout()
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "--tool", "racecheck", "--error-exitcode", "9", program.Path, "-test.run", "^("+tests+")$")
	cmd.Dir, cmd.Env, cmd.WaitDelay = program.Dir, program.Env, waitDelay
	said, err := cmd.CombinedOutput()
	err = explained(ctx, err)
	o.log("tests.log", fmt.Appendf(nil, "\n##### %s under racecheck: %v\n%s", tests, err, said))
	if err != nil {
		s.failures = append(s.failures, failure{"racecheck of " + tests, err.Error(), essence(said)})
		return
	}
	fmt.Fprintf(out, "%s: no races in %s\n", s.name, tests)
}

// deviceErrors are CUDA's errors for kernels that did something forbidden.
var deviceErrors = regexp.MustCompile(
	`CUDA_ERROR_(ILLEGAL_ADDRESS|MISALIGNED_ADDRESS|LAUNCH_FAILED|ILLEGAL_INSTRUCTION|INVALID_ADDRESS_SPACE|INVALID_PC|HARDWARE_STACK_ERROR)`)

// sanitize runs a test whose kernel failed again under compute-sanitizer, if that is installed, to find the thread and the address. A test
// that breaks a kernel on purpose passes, so it is not run again.
func (o *options) sanitize(program *exec.Cmd, test string, text []byte, f *failure) {
	tool, err := sanitizer()
	if err != nil || !deviceErrors.Match(text) || time.Until(o.deadline) < o.each {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.each)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "--print-limit", "1", program.Path, "-test.run", "^"+test+"$")
	cmd.Dir, cmd.Env, cmd.WaitDelay = program.Dir, append(program.Env, "RINGO_CUDA_DEBUG=1"), waitDelay
	said, _ := cmd.CombinedOutput() // the error is expected: the test fails again
	o.log("tests.log", fmt.Appendf(nil, "\n##### %s under compute-sanitizer\n%s", test, said))
	n := 0
	for line := range strings.Lines(string(said)) {
		if strings.HasPrefix(line, "=========") && strings.TrimLeft(line, "= \n") != "" && n < 8 {
			f.text += "    " + line
			n++
		}
	}
}
