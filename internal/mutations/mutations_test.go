package mutations

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mutation is an entry of the list.
type mutation struct {
	name, file string
	tests      []string // packages
	old, new   string   // whole lines
}

// list reads testdata.
func list(t *testing.T) (all []mutation) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, entry := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
			m, err := parse(entry)
			require.NoError(t, err, "%s:\n%s", name, entry)
			all = append(all, m)
		}
	}
	return all
}

func parse(entry string) (m mutation, err error) {
	fields := map[string]string{}
	for line := range strings.Lines(entry + "\n") {
		if !strings.ContainsRune("-+ ", rune(line[0])) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			fields[key] = value
			continue
		}
		if line[0] != '+' {
			m.old += line[1:]
		}
		if line[0] != '-' {
			m.new += line[1:]
		}
	}
	m.name, m.file, m.tests = fields["name"], fields["file"], strings.Fields(fields["test"])
	if len(fields) != 3 || m.name == "" || m.file == "" || len(m.tests) == 0 || m.old == m.new {
		err = errors.New("a mutation has a name, a file, packages to test, and a change")
	}
	return m, err
}

// The list fits the code.
func TestListed(t *testing.T) {
	names := map[string]bool{}
	for _, m := range list(t) {
		assert.False(t, names[m.name], "two mutations are named %q", m.name)
		names[m.name] = true
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		assert.NoError(t, err, m.name)
		assert.Equal(t, 1, strings.Count(string(text), "\n"+m.old), "%s: how often the old lines are in %s", m.name, m.file)
		for _, p := range m.tests {
			tests, err := filepath.Glob(filepath.Join("../..", p, "*_test.go"))
			assert.NoError(t, err)
			assert.NotEmpty(t, tests, "%s: tests in %s", m.name, p)
		}
	}
	assert.NotEmpty(t, names)
}

func TestParse(t *testing.T) {
	m, err := parse("name: a: b\nfile: x.go\ntest: ./x ./y\n \tkept\n-\told\n+\tnew")
	require.NoError(t, err)
	require.Equal(t, mutation{"a: b", "x.go", []string{"./x", "./y"}, "\tkept\n\told\n", "\tkept\n\tnew\n"}, m)
	for _, wrong := range []string{"name: a\nfile: b\n-a", "name: a\nfile: b\ntest: ./x\n-a\n+a", "name: a\nfile: b\ntest: ./x\n-a\nb"} {
		_, err := parse(wrong)
		require.Error(t, err, wrong)
	}
}

// Each mutation makes a test fail.
func TestMutations(t *testing.T) {
	which := os.Getenv("RINGO_MUTATIONS")
	if which == "" {
		t.Skip("without RINGO_MUTATIONS")
	}
	names, args := regexp.MustCompile(strings.TrimPrefix(which, "1")), []string{"test", "-vet=off"}
	all := slices.DeleteFunc(list(t), func(m mutation) bool { return !names.MatchString(m.name) })
	require.NotEmpty(t, all, "no mutation has a name like %s", which)
	for _, m := range all {
		args = append(args, m.tests...)
	}
	out, err := goTool(args...)
	require.NoError(t, err, "the tests fail without a mutation:\n%s", out)
	columns := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			began := time.Now()
			by := m.test(t)
			fmt.Fprintf(columns, "%s\t%s\t%s\t%.1f s\n", m.name, m.file, by, time.Since(began).Seconds())
			t.Logf("%s after %.1f s", by, time.Since(began).Seconds())
		})
	}
	require.NoError(t, columns.Flush())
}

// goTool runs the go command in the root of the module.
func goTool(args ...string) (output string, err error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// test returns the first test that fails with the mutation.
func (m *mutation) test(t *testing.T) string {
	path, err := filepath.Abs(filepath.Join("../..", m.file))
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	changed, overlay := filepath.Join(t.TempDir(), "changed.go"), filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), "\n"+m.old, "\n"+m.new, 1)), 0o600))
	require.NoError(t, os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, path, changed), 0o600))
	builds := "./" + filepath.Dir(m.file)
	if !strings.HasSuffix(m.file, ".go") { // an embedded file, perhaps of a directory without Go
		builds = m.tests[0]
	}
	out, err := goTool("build", "-o", os.DevNull, "-overlay", overlay, builds)
	require.NoError(t, err, "it does not compile:\n%s", out)
	out, err = goTool(append([]string{"test", "-overlay", overlay, "-vet=off", "-failfast", "-count=1", "-timeout=3m"}, m.tests...)...)
	if !assert.Error(t, err) {
		return "SURVIVES"
	}
	f := failing.FindStringSubmatch(out)
	require.NotNil(t, f, "no test has failed:\n%s", out)
	return "caught by " + f[4] + " " + f[1] + f[2] + f[3]
}

// failing finds a test that failed or did not end, or a crash, and then the package.
var failing = regexp.MustCompile(`(?s)(?:--- FAIL: (\S+)|panic: test timed out after \S+\s+running tests:\s+(\S+)|` +
	`(?:panic|fatal error): ([^\n]+)).*?\nFAIL\t\S+?/ringo/(\S+)`)
