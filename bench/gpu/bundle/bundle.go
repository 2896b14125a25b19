package bundle

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	window = 512 << 20
	magic  = "ringoZST"
	list   = "tests" // the file with the names of tests
)

// Program is the name of the entry that Run starts.
const Program = "gpu"

// Entry is a program in the archive: its name there, its file, and which of its tests need a GPU.
type Entry struct {
	Name, File string
	Tests      []string
}

// Join writes the loader, then an archive of the entries, and at the end the offset of the archive.
func Join(file, loader string, entries []Entry) error {
	body, err := os.ReadFile(loader)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(body); err != nil {
		return err
	}
	if err := archive(f, entries); err != nil {
		return err
	}
	if _, err := f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(body))), magic...)); err != nil {
		return err
	}
	return f.Close()
}

func archive(w io.Writer, entries []Entry) error {
	z, err := zstd.NewWriter(w, zstd.WithWindowSize(window), zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	var names bytes.Buffer
	for _, e := range entries {
		content, err := os.ReadFile(e.File)
		if err != nil {
			return err
		}
		if err := add(t, e.Name, content); err != nil {
			return err
		}
		if len(e.Tests) > 0 {
			fmt.Fprintln(&names, e.Name, strings.Join(e.Tests, " "))
		}
	}
	return errors.Join(add(t, list, names.Bytes()), t.Close(), z.Close())
}

func add(t *tar.Writer, name string, content []byte) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

// ErrNone is wrapped by the errors for a file that is not a bundle, or a process that was not started from one.
var ErrNone = errors.New("there is no archive here: build it with `gpu pack FILE`")

// Unpack writes the files that Join put after the loader to a folder.
func Unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	foot, end := make([]byte, 8+len(magic)), info.Size()-int64(8+len(magic))
	if _, err := f.ReadAt(foot, end); err != nil || string(foot[8:]) != magic {
		return ErrNone
	}
	at := int64(binary.LittleEndian.Uint64(foot))
	z, err := zstd.NewReader(io.NewSectionReader(f, at, end-at), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	for t := tar.NewReader(z); ; {
		head, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = write(Path(dir, head.Name), t)
		}
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", file, err)
		}
	}
}

// Path is the path of the entry with this name in an unpacked folder: each program has its own folder.
func Path(dir, name string) string { return filepath.Join(dir, name, filepath.Base(name)) }

func write(path string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// Tests returns the names of the tests of each program in an unpacked folder.
func Tests(dir string) (map[string][]string, error) {
	text, err := os.ReadFile(Path(dir, list))
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNone, err)
	}
	tests := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		tests[words[0]] = words[1:]
	}
	return tests, nil
}
