package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// results are the results of the tests of some packages.
type results struct {
	suites []*suite
	wrong  []string // why tests were not run
}

// suite holds the results of the tests of one package.
type suite struct {
	name string
	summary
	seconds  float64
	failures []failure
}

// failure is a test that failed: how its process ended, and the important lines of its output.
type failure struct{ test, why, text string }

// write prints the counts, why tests were skipped, and which failed.
func (s *suite) write(out io.Writer) {
	fmt.Fprintf(out, "%s: %d passed, %d failed, %d skipped, %.1f s\n", s.name, s.passed, len(s.failures), s.skipped, s.seconds)
	for _, why := range s.reasons {
		fmt.Fprintf(out, "  skipped: %s\n", why)
	}
	for _, f := range s.failures {
		fmt.Fprintf(out, "  FAILED: %s (%s)\n", f.test, f.why)
	}
}

// room is how many bytes of failures are printed. If only the end of the output is kept, it must have the measurements, too.
const room = 4000

// write prints all failures, with their output as far as there is room, and the counts. If there are failures, it returns an error.
func (r *results) write(out io.Writer) error {
	left, failed, tests := room, 0, 0
	for _, s := range r.suites {
		failed += len(s.failures)
		tests += s.passed + len(s.failures)
		for _, f := range s.failures {
			text := fmt.Sprintf("%s of %s: %s\n%s", f.test, s.name, f.why, f.text)
			if len(text) > left {
				text = fmt.Sprintf("%s of %s: %s\n", f.test, s.name, f.why)
			}
			left -= len(text)
			fmt.Fprint(out, text)
		}
	}
	for _, why := range r.wrong {
		fmt.Fprintln(out, why)
	}
	fmt.Fprintf(out, "tests: %d of %d passed\n", tests-failed, tests)
	if failed+len(r.wrong) > 0 {
		return fmt.Errorf("%d tests failed", failed+len(r.wrong))
	}
	return nil
}

// noise matches lines of a test's output that say nothing about a failure.
var noise = regexp.MustCompile(
	`^(=== |---? |\s*Error Trace:|\s+/|\s*$|goroutine |testing\.|panic\(|FAIL$|exit status|created by |\s*Test:|(gpu: |[\d/]+ [\d:]+ )?INFO )`)

// essence returns the first lines that say why a test failed: those that are not noise, and the beginning of a crash.
func essence(text []byte) string {
	const most = 8
	var out strings.Builder
	n := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if noise.MatchString(line) {
			continue
		}
		if n++; n > most {
			break
		}
		if len(line) > 300 {
			line = line[:300] + "…"
		}
		fmt.Fprintf(&out, "    %s\n", strings.TrimSpace(line))
	}
	return out.String()
}
