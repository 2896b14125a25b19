package lint

import (
	"fmt"
	"go/ast"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// unraced are packages with goroutines whose tests the race detector does not run, and why; with /... also those below. It makes tests ten
// times slower.
var unraced = map[string]string{
	"bench/...":            "measures, and no step of users is there",
	"cmd/ringo":            "starts processes, without the detector; the live view is in the stage",
	"ddp/powersgd":         "hooks of ddp, on the goroutine of a rank",
	"dist/algo":            "runs inside the engines, whose tests are in the stage",
	"examples/...":         "programs for readers, of packages that are in the stage",
	"fsdp/internal/...":    "parts of fsdp, whose tests are in the stage",
	"internal/curve":       "draws",
	"internal/docs":        "starts the programs of pages",
	"internal/faultnet":    "connections for tests of dist/tcp, which is in the stage",
	"internal/grads":       "each optimizer writes a file of its own",
	"internal/kernel":      "has no goroutines; tensor cuts its work",
	"internal/lint":        "reads files",
	"internal/netns":       "starts programs for tests",
	"internal/reliability": "helps tests",
	"internal/timeline":    "reads what ranks wrote",
	"models/...":           "layers of nn on parallelisms that are in the stage",
	"moe/dispatch":         "a part of moe, whose tests are in the stage",
	"plan":                 "compares the memory of ranks with numbers; what they run has its own tests in the stage",
	"pp":                   "a rank runs its schedule on one goroutine; the messages are those of dist",
	"tensor/cuda":          "launches from one goroutine; streams, memory and the emulator are internal/cuda",
	"tensor/gorgonia":      "copies between two libraries",
	"tensor/tensortest":    "cases for the tests of tensor and of devices",
}

// concurrent lists directories whose code or tests have more than one goroutine, and one file of each that says so: it starts them, shares
// memory between them (sync), hands work to those of another package (Parallel), or runs ranks.
func concurrent(sources []*source) map[string]string {
	found := map[string]string{}
	for _, s := range sources {
		if s.nested {
			continue
		}
		for _, spec := range s.file.Imports {
			switch name, _ := strconv.Unquote(spec.Path.Value); name {
			case "sync", "sync/atomic", distPath, distPath + "/disttest":
				found[s.dir] = s.path
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found[s.dir] = s.path
			case *ast.CallExpr:
				if parallel(n.Fun) {
					found[s.dir] = s.path
				}
			}
			return true
		})
	}
	return found
}

// parallel tells whether a function that is called is some Parallel, but not that of a test.
func parallel(called ast.Expr) bool {
	switch f := called.(type) {
	case *ast.Ident:
		return strings.EqualFold(f.Name, "parallel")
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return f.Sel.Name == "Parallel" && !(ok && x.Name == "t")
	}
	return false
}

// covers tells whether a line of unraced is about a directory.
func covers(line, dir string) bool {
	above, all := strings.CutSuffix(line, "/...")
	return dir == above || all && within(dir, above)
}

// checkRaced compares the packages of stage race with those that a race can reach.
func checkRaced(sources []*source, raced []string, unraced map[string]string) (findings []string) {
	reach := concurrent(sources)
	needed := map[string]bool{}
	for _, dir := range slices.Sorted(maps.Keys(reach)) {
		if slices.Contains(raced, dir) {
			continue
		}
		excused := false
		for line := range unraced {
			if covers(line, dir) {
				excused, needed[line] = true, true
			}
		}
		if !excused {
			findings = append(findings, fmt.Sprintf("%s: %s has goroutines: add it to raced of .ci/run, or to unraced with a reason",
				reach[dir], dir))
		}
	}
	for _, dir := range raced {
		if reach[dir] == "" {
			findings = append(findings, dir+" has one goroutine: stage race finds nothing there")
		}
	}
	for _, line := range slices.Sorted(maps.Keys(unraced)) {
		if !needed[line] {
			findings = append(findings, line+" needs no line in unraced")
		}
	}
	return findings
}

func TestLongRaced(t *testing.T) {
	reliability.SkipUnlessLong(t)
	cmd := exec.Command("bash", "-c", `source <(sed '/^cd /d; /^tmp=/,$d' .ci/run); raced`)
	cmd.Dir = moduleRoot
	out, err := cmd.Output()
	require.NoError(t, err)
	raced := strings.Fields(strings.ReplaceAll(string(out), modulePath+"/", ""))
	report(t, checkRaced(moduleSources(t), raced, unraced))
}

// The tests that .ci/run selects by name exist.
func TestLongSelected(t *testing.T) {
	reliability.SkipUnlessLong(t)
	cmd := exec.Command("bash", "-c", `source <(sed '/^cd /d; /^tmp=/,$d' .ci/run); echo "$slow|$tcp_apart|$race_skip"`)
	cmd.Dir = moduleRoot
	out, err := cmd.Output()
	require.NoError(t, err)
	var names []string
	for _, s := range moduleSources(t) {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && s.test {
				names = append(names, fn.Name.Name)
			}
		}
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(out)), "|") {
		part, _, _ = strings.Cut(part, "/") // names of subtests
		assert.True(t, slices.ContainsFunc(names, regexp.MustCompile(part).MatchString), "no test is named like %s", part)
	}
}

// Stage fresh runs tests that start programs, also through other declarations and in tables, and no others of their packages.
func TestLongStarting(t *testing.T) {
	reliability.SkipUnlessLong(t)
	cmd := exec.Command("bash", "-c", `source <(sed '/^cd /d; /^tmp=/,$d' .ci/run); starters | starting`)
	cmd.Dir = moduleRoot
	out, err := cmd.Output()
	require.NoError(t, err)
	names := strings.Split(strings.TrimSpace(string(out)), "|")
	assert.Subset(t, names, []string{"TestRealProcessDies", "TestConformanceOnHosts", "TestSharedFailures", "TestDevicesEqualOneRank",
		"TestVectorAdd", "TestSignals", "TestLongStarting"})
	for _, name := range []string{"TestMain", "TestHostileGarbage", "TestGradients", "TestEqualsNaive"} {
		assert.NotContains(t, names, name)
	}
}

func TestCheckRaced(t *testing.T) {
	sources := fixture(t, map[string]string{
		"a/a.go":      "package a\nfunc f() { go f() }",
		"b/b.go":      "package b\nimport _ \"sync/atomic\"",
		"c/c_test.go": "package c\nfunc f() { cpu.Parallel(1) }",
		"d/d.go":      "package d\nimport _ \"" + distPath + "\"",
		"e/e.go":      "package e\nfunc f(t *testing.T) { t.Parallel() }",
		"f/g/g.go":    "package g\nimport \"sync\"",
	})
	assert.Equal(t, []string{
		"a/a.go: a has goroutines: add it to raced of .ci/run, or to unraced with a reason",
		"c/c_test.go: c has goroutines: add it to raced of .ci/run, or to unraced with a reason",
		"e has one goroutine: stage race finds nothing there",
		"b needs no line in unraced",
		"e needs no line in unraced",
	}, checkRaced(sources, []string{"b", "e"}, map[string]string{"b": "why", "d": "why", "e": "why", "f/...": "why"}))
}
