package bundle

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJoinAndUnpack(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		return path
	}
	file := filepath.Join(dir, "made", "bundle")
	loader, one, two := write("loader", "loads"), write("one", "1"), write("two", "22")
	require.NoError(t, Join(file, loader, []Entry{{Name: Program, File: one}, {Name: "a/b", File: two, Tests: []string{"TestX", "TestY"}}}))
	out := filepath.Join(dir, "out")
	require.NoError(t, Unpack(file, out))
	for name, want := range map[string]string{Program: "1", "a/b": "22"} {
		text, err := os.ReadFile(Path(out, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
	tests, err := Tests(out)
	require.NoError(t, err)
	assert.Equal(t, map[string][]string{"a/b": {"TestX", "TestY"}}, tests)

	require.ErrorIs(t, Unpack(loader, out), ErrNone)
	_, err = Tests(dir)
	require.ErrorIs(t, err, ErrNone)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	foot := len(whole) - 8 - len(magic)
	cut := write("cut", string(whole[:foot-9])+string(whole[foot:]))
	require.ErrorContains(t, Unpack(cut, out), "unpacking ")
}
