package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// CacheDir is the folder of compiled code and chosen algorithms: RINGO_CUDA_CACHE, else
// ringo/cuda in the user's cache folder. It is "" if there is no such folder.
func CacheDir() string {
	if dir := os.Getenv("RINGO_CUDA_CACHE"); dir != "" {
		return dir
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "ringo", "cuda")
}

// CompileCached is Compile with a cache on disk. The name of an entry is a hash of
// all that the code depends on (text, options, architecture, compiler). An entry is
// written under another name and renamed, so processes that compile at the same
// time see no partly written entry. It begins with its checksum; a damaged entry is
// compiled again. If the folder cannot be written, the process keeps the code.
// Goroutines may call it at the same time: one compiles, and those that need the
// same code wait for it.
func (c *Compiler) CompileCached(src Source, arch string, options ...string) ([]byte, error) {
	dir := CacheDir()
	path := filepath.Join(dir, c.cacheName(src, arch, options))
	turn, _ := c.turns.LoadOrStore(path, new(sync.Mutex))
	turn.(*sync.Mutex).Lock()
	defer turn.(*sync.Mutex).Unlock()
	if code, ok := c.unsaved.Load(path); ok {
		return code.([]byte), nil
	}
	if dir != "" {
		if code := readEntry(path); code != nil {
			return code, nil
		}
	}
	code, err := c.Compile(src, arch, options...)
	if err == nil && (dir == "" || !writeEntry(path, code)) {
		c.unsaved.Store(path, code)
	}
	return code, err
}

func (c *Compiler) cacheName(src Source, arch string, options []string) string {
	key := sha256.New()
	for _, s := range append([]string{c.Lib.Version, src.full()}, compileOptions(arch, options)...) {
		fmt.Fprintf(key, "%d %s", len(s), s)
	}
	base := strings.TrimSuffix(filepath.Base(src.Name), filepath.Ext(src.Name))
	return fmt.Sprintf("%s-%s-%s.cubin", base, arch, hex.EncodeToString(key.Sum(nil)[:16]))
}

// readEntry returns nil when there is no entry or a damaged one.
func readEntry(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil || len(b) <= sha256.Size {
		return nil
	}
	sum, code := b[:sha256.Size], b[sha256.Size:]
	if want := sha256.Sum256(code); !bytes.Equal(sum, want[:]) {
		return nil
	}
	return code
}

// writeEntry reports whether it could write an entry.
func writeEntry(path string, code []byte) bool {
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return false
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return false
	}
	sum := sha256.Sum256(code)
	_, err = f.Write(append(sum[:], code...))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err == nil
}
