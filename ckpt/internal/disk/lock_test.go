package disk

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A lock has one owner at a time, also while owners remove the file. A link is not accepted as its file.
func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), lockName)
	var owners, wrong atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for had := 0; had < 200; {
				unlock, err := OS{}.Lock(name)
				if errors.Is(err, ErrHeld) {
					runtime.Gosched()
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				if owners.Add(1) != 1 {
					wrong.Add(1)
				}
				runtime.Gosched()
				owners.Add(-1)
				unlock()
				had++
			}
		})
	}
	wg.Wait()
	require.Zero(t, wrong.Load())

	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("text"), 0o666))
	require.NoError(t, os.Symlink(text, name))
	_, err := OS{}.Lock(name)
	require.ErrorContains(t, err, "is a link or no regular file")
	got, err := os.ReadFile(text)
	require.NoError(t, err)
	require.Equal(t, "text", string(got))
}

// A link to nothing does not create its target. What is no file is not opened.
func TestLockOfNoFile(t *testing.T) {
	name, target := filepath.Join(t.TempDir(), lockName), filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.Symlink(target, name))
	_, err := OS{}.Lock(name)
	require.EqualError(t, err, name+" is a link or no regular file")
	require.NoFileExists(t, target)
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.Mkdir(name, 0o777))
	_, err = OS{}.Lock(name)
	require.EqualError(t, err, name+" is a link or no regular file")
	_, err = OS{}.Lock(filepath.Join(t.TempDir(), "none", lockName))
	require.ErrorIs(t, err, os.ErrNotExist)
}
