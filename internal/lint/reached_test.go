package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// A change runs the tests of the packages that it can reach: reached of .ci/run gets five packages and the changed files. What go list says
// is the same for all changes, so it is asked once.
func TestLongReached(t *testing.T) {
	reliability.SkipUnlessLong(t)
	golang, err := exec.LookPath("go")
	require.NoError(t, err)
	dir := t.TempDir()
	once := `#!/bin/sh
said=` + dir + `/$(printf '%s\n' "$@" | cksum | tr -d ' ')
[ -e "$said" ] || ` + golang + ` "$@" >"$said" || exit
cat "$said"
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(once), 0o777))
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	const script = `source <(sed '/^cd /d; /^tmp=/,$d' .ci/run); changes=$1; go list ./nn ./tp ./plan ./ddp ./internal/wait | reached`
	for change, want := range map[string]string{
		"README.md":                     "",
		"internal/wait/policy.go":       "ddp internal/wait nn plan tp", // the CPU device waits
		"nn/linear.go":                  "ddp nn plan tp",
		"tp/parallel.go\nplan/plan.go":  "plan tp", // plan's tests use tp
		"ddp/bucket_test.go":            "ddp",     // nobody else's
		"ddp/testdata/a":                "ddp",
		"dist/disttest/train.go":        "ddp plan tp", // for tests alone
		"dist/disttest/train_test.go":   "",
		"internal/reliability/rows.go":  "ddp nn plan tp",
		"internal/kernel/testdata/nope": "",
	} {
		cmd := exec.Command("bash", "-c", script, "bash", change)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		require.NoError(t, err, change)
		require.Equal(t, want, strings.ReplaceAll(strings.Join(strings.Fields(string(out)), " "), modulePath+"/", ""), change)
	}
}
