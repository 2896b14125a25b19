package storage

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
)

// maxBeside is the largest size of a small file (State.Files), in bytes.
const maxBeside = 64 << 20

// CheckBeside refuses small files with an invalid name or with a name that the checkpoint itself uses.
func CheckBeside(files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := disk.CheckName(name)
		switch {
		case err != nil:
		case strings.ContainsFunc(name, unicode.IsControl) || len(name) > 255:
			err = fmt.Errorf("%.99q is no name of a file", name)
		case strings.EqualFold(name, ManifestName) || strings.EqualFold(name, IndexName) ||
			strings.HasSuffix(strings.ToLower(name), ".safetensors"):
			err = fmt.Errorf("%q is a name of the checkpoint itself", name)
		case len(files[name]) > maxBeside:
			err = fmt.Errorf("%q has %d bytes; at most %d are allowed", name, len(files[name]), maxBeside)
		}
		if err != nil {
			return fmt.Errorf("State.Files: %w", err)
		}
	}
	return nil
}

// readBeside compares the small files with their hashes in ringo.json.
func (s *Reader) readBeside() {
	for _, name := range slices.Sorted(maps.Keys(s.Manifest.Beside)) {
		s.listed[name] = true
		if err := disk.CheckName(name); err != nil {
			s.fail(err)
		} else if text := s.read(name, maxBeside); text != nil {
			s.compare(name, text, s.Manifest.Beside[name])
		}
	}
}

// Besides returns the small files of a folder: those that ringo.json lists, or, without ringo.json, files that look
// like settings or vocabularies.
func (s *Reader) Besides() (map[string][]byte, error) {
	var names []string
	if s.Manifest != nil {
		names = slices.Sorted(maps.Keys(s.Manifest.Beside))
	}
	if s.Manifest == nil && !s.single {
		all, err := s.FS.ReadDir(s.Path)
		if err != nil {
			return nil, err
		}
		for _, name := range all {
			if name != IndexName && slices.Contains([]string{".json", ".txt", ".model", ".jinja"}, filepath.Ext(name)) {
				names = append(names, name)
			}
		}
	}
	files := map[string][]byte{}
	var errs []error
	for _, name := range names {
		text, err := disk.ReadFile(s.FS, filepath.Join(s.Path, name), maxBeside)
		files[name], errs = text, append(errs, err)
	}
	return files, errors.Join(errs...)
}

// Hashes returns the SHA-256 of small files. Ranks compare these without sending the files.
func Hashes(files map[string][]byte) map[string]string {
	hashes := map[string]string{}
	for name, text := range files {
		hashes[name] = Sum(text)
	}
	return hashes
}
