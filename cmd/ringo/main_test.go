package main

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/cmd/ringo/testdata/allreduce"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/bits"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/grads"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/late"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/own"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/restart"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/resume"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/shrink"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/stuck"
	"github.com/ringo-ml/ringo/cmd/ringo/testdata/watched"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// programs are the programs that jobs of tests run.
var programs = map[string]func(){"allreduce": allreduce.Main, "bits": bits.Main, "grads": grads.Main, "late": late.Main, "own": own.Main,
	"restart": restart.Main, "resume": resume.Main, "shrink": shrink.Main, "stuck": stuck.Main,
	"watched": watched.Main}

// TestMain makes the test binary ringo itself if the environment says so, or a program if it is called by that name.
func TestMain(m *testing.M) {
	if main := programs[filepath.Base(os.Args[0])]; main != nil {
		main()
		return
	}
	rowTime, referenceTime = rowTime/10, referenceTime/10
	if os.Getenv("RINGO_TEST_CLI") == "1" {
		os.Unsetenv("RINGO_TEST_CLI")
		os.Exit(ringo(os.Args[1:]))
	}
	if os.Getenv("RINGO_TEST_CLI") == "serve" {
		os.Unsetenv("RINGO_TEST_CLI")
		serveCommands(os.Stdin, os.Stdout)
		return
	}
	if len(os.Args) > 1 && (os.Args[1] == "bench" || os.Args[1] == "run") { // a rank of ringo bench, or ringo as ringo compare starts it
		os.Exit(ringo(os.Args[1:]))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) { // under nohup, or in the background of a script: the programs that tests start would inherit it
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	reliability.RunMost(m, 6)
}

// program returns the path of a program: a link to this binary.
func program(t *testing.T, name string) string {
	t.Helper()
	require.Contains(t, programs, name)
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Symlink(self, path))
	return path
}

// command returns `ringo args…`, not started, with its own temporary directories.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer, tmp string) {
	tmp = t.TempDir()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RINGO_TEST_CLI=1", "TMPDIR="+tmp)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr, tmp
}

// run returns the output of `ringo args…` and its exit status. It must leave no temporary files.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	if servable(args) {
		return runServed(t, args)
	}
	cmd, out, errs, tmp := command(t, args...)
	_ = cmd.Run() // the tests check the exit status
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func needsProcesses(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("ringo run needs Linux or macOS")
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"", `expected one of "run", "viz", "bench", "ckpt", "compare"`},
		{"frob", "unexpected argument frob"},
		{"run", "missing flags: -ranks=N (see ringo run -h)"},
		{"run -n 2", "<program>"},
		{"run -n x prog", `"x"`},
		{"run -n 2 -bogus prog", "unknown flag -bogus (see ringo run -h)"},
		{"run -folder x -n 2 prog", "unknown flag -folder (see ringo run -h)"}, // the guard removes its folder
		{"run -n 2 -nodez 3 prog", `unknown flag -nodez, did you mean "-nodes"`},
		{"run -n 2 -timeout 5 prog", "-timeout: expected duration but got \"5\": time: missing unit in duration \"5\" (see ringo run -h)"},
		{"run -n", "-ranks: expected int value and nothing follows (see ringo run -h)"},
		{"-bogus", "unknown flag -bogus (see ringo -h)"},
		{"ckpt ls -bogus x", "unknown flag -bogus (see ringo ckpt ls -h)"},
		{"topo -ranks -2", "-ranks -2"},
		{"viz allreduce -algo ring -ranks -3 -o x.svg", "-ranks -3"},
	} {
		_, stderr, code := run(t, strings.Fields(c.args)...)
		assert.Equal(t, 2, code, c.args)
		assert.Contains(t, stderr, c.want, c.args)
	}
	stdout, _, code := run(t, "run", "-help")
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "ringo run -n 4 -timeout 5s ./examples/ddp-mnist -epochs 1")
	stdout, _, code = run(t, "version")
	assert.Equal(t, 0, code)
	assert.Regexp(t, `^ringo \S+( [0-9a-f]{40})? go1\.\d+.* `+runtime.GOOS+`/`+runtime.GOARCH+`\n$`, stdout)
}

func TestFlagsWithOneDash(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "",
		"-help":                              "--help",
		"-h run":                             "-h run",
		"run --timeout=5s -threads=2 p -n 3": "run --timeout=5s --threads=2 p -n 3",
		"run -n4 p -max-restarts":            "run -n4 p --max-restarts",
		"viz allreduce -algo ring -o x.svg":  "viz allreduce --algo ring -o x.svg",
		"topo -ranks -2":                     "topo --ranks=-2",
		"run p -- -2 -x -.5":                 "run p -- -2 -x -.5",
	} {
		assert.Equal(t, strings.Fields(want), append([]string{}, longFlags(strings.Fields(in))...), in)
	}
}

// What is behind the program is its own.
func TestProgramsArguments(t *testing.T) {
	for _, program := range []string{"p", "p -timeout 1", "p -a -2 -n3 --bb=4 -cc", "-- p -timeout -- -x", "p -help"} {
		var line cli
		args := strings.Fields("run -timeout 5s -n 4 " + program)
		_, err := kong.Must(&line).Parse(longFlags(args))
		require.NoError(t, err)
		assert.Equal(t, strings.Fields(program), asTyped(line.Run.Program, args))
		assert.Equal(t, []any{4, 5 * time.Second}, []any{line.Run.Ranks, line.Run.Timeout})
	}
}

func TestIsPackage(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.MkdirAll("a/b.c", 0o755))
	require.NoError(t, os.WriteFile("a/prog", nil, 0o755))
	for name, want := range map[string]bool{".": true, "./a": true, "../" + filepath.Base(dir): true, filepath.Join(dir, "a"): true,
		"example.com/x": true, "a": false, "./a/prog": false, "./none": false, "/none/x": false, "prog": false, "prog.sh": false,
		"a/b.c": false} {
		assert.Equal(t, want, isPackage(name), name)
	}
}

// fakeGo is a go that compiles nothing: the program is a script that says what testdata/ranks says.
const fakeGo = `#!/bin/sh
[ "$1" = build ] || exit 1
for arg; do package=$arg; done
[ "$package" = ./testdata/ranks ] || exit 1
while [ "$1" != -o ]; do shift; done
cat >"$2ranks" <<'END'
#!/bin/sh
echo "rank $RINGO_RANK of $RINGO_WORLD_SIZE, timeout $RINGO_TIMEOUT, threads $RINGO_THREADS, args [\"$1\" \"$2\"]"
END
chmod +x "$2ranks"
`

// withGo gives cmd a go that is a script.
func withGo(t *testing.T, cmd *exec.Cmd, script string) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755))
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
}

// A package is built, and its program runs with what the flags say. In the short form, go is a fake, but on a machine that has little more
// than go.
func TestRunPackage(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	cmd, out, errs, tmp := command(t, "run", "-n", "2", "-timeout", "3s", "--threads", "5", "./testdata/ranks", "-timeout", "x y")
	if _, err := exec.LookPath("chmod"); err == nil && !reliability.Long(t) {
		withGo(t, cmd, fakeGo)
	}
	_ = cmd.Run()
	assert.Equal(t, 0, cmd.ProcessState.ExitCode(), errs)
	assert.Empty(t, errs.String())
	for _, rank := range []string{"0", "1"} {
		assert.Contains(t, out.String(), "["+rank+"] rank "+rank+` of 2, timeout 3s, threads 5, args ["-timeout" "x y"]`+"\n")
	}
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
	if reliability.Long(t) { // TestIsPackage is the short form of what follows
		stdout, _, code := run(t, "run", "-n", "1", "--", "github.com/ringo-ml/ringo/cmd/ringo/testdata/ranks")
		assert.Equal(t, 0, code)
		assert.Contains(t, stdout, "[0] rank 0 of 1")
	}
}

func TestLongRunPackage(t *testing.T) { reliability.AsLong(t, TestRunPackage) }

func TestRunErrors(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	for _, c := range []struct {
		args []string
		code int
		want string
		long bool // TestBuildFails is the short form, or tests of dist/launch are
	}{
		{[]string{"-n", "2", "./testdata/broken"}, 1, "undefined: undefinedFunction", true},
		{[]string{"-n", "2", "./testdata/library"}, 1, "ringo: go build ./testdata/library: ", true},
		{[]string{"-n", "2", "no-such-program"}, 1, `ringo: exec: "no-such-program": executable file not found`, false},
		{[]string{"-n", "0", "./testdata/broken"}, 2, "ringo: launch: 0 ranks, want 1 to 1024 on a host (see ringo run -h)", false},
		{[]string{"-n", "100000", "echo"}, 2, "ringo: launch: 100000 ranks, want 1 to 1024", true},
		{[]string{"-n", "1", "--"}, 2, "ringo: launch: no program", false},
		{[]string{"-n", "1", "-nodes", "0", "echo"}, 2, "-nodes 0: want a number of hosts, or MIN:MAX", false},
		{[]string{"-n", "1", "-timeout=-1s", "echo"}, 2, "timeout -1s is negative", true},
		{[]string{"-n", "1", "-bind", "eth99", "echo"}, 2, "bind eth99: neither an address nor an interface", true},
		{[]string{"-n", "1", "-ports", "70000-1", "echo"}, 2, "ports 70000-1: not a range of ports", true},
		{[]string{"-n", "3", "sh", "-c", "exit $RINGO_RANK"}, 0, "exited with status", false},
	} {
		if c.long && !reliability.Long(t) {
			continue
		}
		_, stderr, code := run(t, append([]string{"run"}, c.args...)...)
		if c.code > 0 {
			assert.Equal(t, c.code, code, c.args)
		}
		assert.NotZero(t, code)
		assert.Contains(t, stderr, c.want, c.args)
	}
}

func TestLongRunErrors(t *testing.T) { reliability.AsLong(t, TestRunErrors) }

// What go says about a package that it cannot build is what ringo says.
func TestBuildFails(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	cmd, _, stderr, tmp := command(t, "run", "-n", "2", "./testdata/broken")
	withGo(t, cmd, "#!/bin/sh\necho undefined: undefinedFunction >&2\nexit 1\n")
	_ = cmd.Run()
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Contains(t, stderr.String(), "undefined: undefinedFunction\nringo: go build ./testdata/broken: ")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A signal ends a job, and what is left of it, also of a build in the long form.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	signals, job := map[syscall.Signal]int{syscall.SIGINT: 130}, []string{program(t, "allreduce"), "forever"}
	if reliability.Long(t) {
		signals[syscall.SIGTERM], signals[syscall.SIGHUP] = 143, 129
		job = []string{"./testdata/ranks", "wait"}
	}
	for sig, want := range signals {
		cmd, _, stderr, tmp := command(t, append([]string{"run", "-n", "2"}, job...)...)
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line := make([]byte, 1)
		_, err = out.Read(line) // now a rank runs
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(sig))
		drained := new(bytes.Buffer)
		_, _ = drained.ReadFrom(out)
		_ = cmd.Wait()
		assert.Equal(t, want, cmd.ProcessState.ExitCode())
		assert.Contains(t, stderr.String(), "ringo: ended by signal "+sig.String())
		left, err := os.ReadDir(tmp)
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}

func TestLongRunInterrupted(t *testing.T) { reliability.AsLong(t, TestRunInterrupted) }

// TestBuildInterrupted interrupts ringo while it builds with a "go" that never ends.
func TestBuildInterrupted(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	cmd, _, _, tmp := command(t, "run", "-n", "2", "./testdata/ranks")
	withGo(t, cmd, "#!/bin/sh\necho building >&2\nexec sleep 1000\n")
	cmd.Stderr = nil
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	buf := make([]byte, 9)
	_, err = errs.Read(buf)
	require.NoError(t, err)
	start := time.Now()
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	rest := new(bytes.Buffer)
	_, _ = rest.ReadFrom(errs)
	_ = cmd.Wait()
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Contains(t, rest.String(), "ringo: go build ended by signal interrupt")
	assert.Less(t, time.Since(start), 3*time.Second+reliability.Slack)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}
