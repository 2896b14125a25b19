package lint

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// machineDirs are directories of somebody's machine that no file may name.
// They are written in parts, so that this file may be read too.
var machineDirs = []string{"work", "root"}

// machinePath finds such a directory where a path begins: "a" + "/" + dir is
// the end of a relative path or an import and no finding.
var machinePath = regexp.MustCompile(`(?:^|[^\w.\-])(/(?:` + strings.Join(machineDirs, "|") + `)/)`)

// checkPaths finds machine paths in a text file; files with a zero byte or
// invalid UTF-8 are not text.
func checkPaths(name string, text []byte) []string {
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return nil
	}
	var findings []string
	for i, line := range strings.Split(string(text), "\n") {
		if m := machinePath.FindStringSubmatch(line); m != nil {
			findings = append(findings, fmt.Sprintf("%s:%d: names the machine path %s", name, i+1, m[1]))
		}
	}
	return findings
}

// TestMachinePaths reads the files that git tracks or would track.
func TestMachinePaths(t *testing.T) {
	if _, err := os.Stat(filepath.Join(moduleRoot, ".git")); err != nil {
		t.Skip("not a git checkout: ", err)
	}
	// safe.directory: the checkout may belong to another user, as in containers.
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = moduleRoot
	out, err := cmd.Output()
	require.NoError(t, err)
	names := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	require.NotEmpty(t, names)
	for _, name := range names {
		file := filepath.Join(moduleRoot, filepath.FromSlash(name))
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue // deleted but not yet committed
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		report(t, checkPaths(name, text))
	}
}

func TestCheckPaths(t *testing.T) {
	for _, dir := range machineDirs {
		p := "/" + dir + "/"
		want := []string{"f:2: names the machine path " + p}
		assert.Equal(t, want, checkPaths("f", []byte("a\nsee "+p+"x")))
		assert.Equal(t, want, checkPaths("f", []byte("a\n"+p+"x")))
		assert.Equal(t, want, checkPaths("f", []byte("a\n`file://"+p+"x`")))
		assert.Empty(t, checkPaths("f", []byte("example.com"+p+"x and ."+p)))
		assert.Empty(t, checkPaths("f", []byte("\x00 "+p)), "binary")
		assert.Empty(t, checkPaths("f", []byte("\xff "+p)), "not UTF-8")
	}
}
