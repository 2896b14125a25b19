package docs

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/COMPATIBILITY.md says of every public package whether it is API.
func TestEveryPackageHasAPromise(t *testing.T) {
	var promised []string
	for _, line := range strings.Split(read(t, "docs/COMPATIBILITY.md"), "\n") {
		if strings.HasPrefix(line, "| API") || strings.HasPrefix(line, "| for engines") {
			for i, word := range strings.Split(line, "`") {
				if i%2 == 1 {
					promised = append(promised, word)
				}
			}
		}
	}
	require.NotEmpty(t, promised)
	without := []string{".github", "bench", "cmd", "examples", "internal", "testdata"}
	below := []string{"ckpt", "data", "ddp", "moe", "train"} // "packages below …"
	public := 0
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case slices.Contains(without, d.Name()) || strings.HasPrefix(d.Name(), ".git"):
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(p, "doc.go"))
		if err != nil || len(files) == 0 {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(p), path.Clean(root)+"/")
		top, _, deeper := strings.Cut(name, "/")
		public++
		assert.True(t, slices.Contains(promised, name) || deeper && slices.Contains(below, top), "%s: is it API?", name)
		return nil
	}))
	assert.Greater(t, public, 30)
}
