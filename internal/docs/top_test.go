package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// stranger runs commands as somebody does who has only Go, and reads README from its top. "The network" is this repository's last commit
// and the modules that this machine has.
type stranger struct {
	t   *testing.T
	env []string
	bin string // where go install puts commands
}

func newStranger(t *testing.T) *stranger {
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	dir := t.TempDir()
	s := &stranger{t: t, bin: filepath.Join(dir, "bin")}
	// The checkout may belong to another user, as in containers.
	s.env = append(os.Environ(), "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_CONFIG_KEY_1=url.file://"+here+".insteadOf", "GIT_CONFIG_VALUE_1=https://github.com/ringo-ml/ringo")
	// A module proxy that has this module, and after it the module cache.
	versions := filepath.Join(dir, "proxy", "github.com", "ringo-ml", "ringo", "@v")
	require.NoError(t, os.MkdirAll(versions, 0o755))
	file := func(name string) string { return filepath.Join(versions, name) }
	// Modules inside this one are none of its files.
	s.run(root, "git", "archive", "--format=zip", "--prefix=github.com/ringo-ml/ringo@v0.1.0/", "-o", file("v0.1.0.zip"), "HEAD", "--", ".",
		":!internal/kernel/gen", ":!bench/gemm/gopeers")
	for name, text := range map[string]string{"v0.1.0.mod": s.run(root, "git", "show", "HEAD:go.mod"), "list": "v0.1.0\n",
		"v0.1.0.info": `{"Version": "v0.1.0", "Time": "2026-01-01T00:00:00Z"}`} {
		require.NoError(t, os.WriteFile(file(name), []byte(text), 0o644))
	}
	cache := strings.TrimSpace(s.run(root, "go", "env", "GOMODCACHE"))
	s.env = append(s.env, "GOPROXY=file://"+filepath.Join(dir, "proxy")+",file://"+filepath.Join(cache, "cache", "download"), "GOSUMDB=off",
		"GOMODCACHE="+filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw", "GOBIN="+s.bin, "GOWORK=off")
	return s
}

// run runs a command in a folder and returns what it printed.
func (s *stranger) run(dir, name string, args ...string) string {
	s.t.Helper()
	if name == "ringo" {
		name = filepath.Join(s.bin, "ringo")
	}
	cmd := exec.CommandContext(s.t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, s.env
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// typed runs a command of a page.
func (s *stranger) typed(dir, line string, more ...string) string {
	args := append(words(line), more...)
	return s.run(dir, args[0], args[1:]...)
}

// README from the top, in a fresh folder: install, get, clone; the training script; the tutorial's program as processes; and every command
// that needs no more than the clone.
func TestLongFromTheTop(t *testing.T) {
	reliability.SkipUnlessLong(t)
	if runtime.GOOS == "windows" {
		t.Skip("for Linux and macOS")
	}
	if _, err := os.Stat(root + ".git"); err != nil {
		t.Skip("not a git checkout: ", err)
	}
	s, dir := newStranger(t), t.TempDir()
	s.typed(dir, "go install github.com/ringo-ml/ringo/cmd/ringo@latest")
	s.typed(dir, "git clone https://github.com/ringo-ml/ringo")
	clone := filepath.Join(dir, "ringo")

	for _, name := range []string{"readme", "ddp"} {
		first := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(first, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(first, "main.go"), []byte(programs(t)[name]), 0o644))
		s.typed(first, "go mod init first")
		if name == "readme" {
			s.typed(first, "go get github.com/ringo-ml/ringo")
		}
		s.typed(first, "go mod tidy")
		out := s.typed(first, "go run .")
		assert.NotEmpty(t, numbers(t, out, `loss (\S+)\n`), out)
		if name == "ddp" {
			assert.Len(t, numbers(t, s.typed(first, "ringo run -n 2 ."), `step \d  loss (\S+)\n`), 10)
		}
	}
	for text, short := range inClone {
		t.Run(text, func(t *testing.T) { s.typed(clone, text, strings.Fields(short)...) })
	}
}
