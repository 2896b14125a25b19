package bounded

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Hidden tells whether a name is of a file or folder that people do not see: it begins with a dot, or Windows or macOS made it.
func Hidden(name string) bool {
	return strings.HasPrefix(name, ".") || slices.Contains([]string{"thumbs.db", "desktop.ini", "__macosx"}, strings.ToLower(name))
}

// Open opens a regular file, or the regular file that a link leads to, and returns its size. A folder, and what could
// block or never end, such as a pipe, is an error that names the path.
func Open(path string) (f *os.File, size int64, err error) {
	info, err := os.Stat(path) // before Open, which waits for the other end of a pipe
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	f, err = os.Open(path)
	return f, info.Size(), err
}

// ReadFile returns what is in a file, as for Open, of at most limit bytes. What is longer is an error that names the
// path.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, size, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := bytes.NewBuffer(make([]byte, 0, min(size, limit)+bytes.MinRead))
	_, err = text.ReadFrom(io.LimitReader(f, limit+1))
	if err == nil && int64(text.Len()) > limit {
		err = fmt.Errorf("%s: longer than %d bytes", path, limit)
	}
	return text.Bytes(), err
}
