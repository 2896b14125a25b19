package storage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/internal/bounded"
)

// maxBeside is the largest size of a small file (State.Files), in bytes.
const maxBeside = 64 << 20

// CheckBeside refuses small files with an invalid name or with a name that the checkpoint itself uses.
func CheckBeside(files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		folder, err := folderOf(name)
		top := cmp.Or(folder, name)
		_, both := files[folder]
		switch {
		case err != nil:
		case strings.ContainsFunc(name, unicode.IsControl) || len(name) > 255:
			err = fmt.Errorf("%.99q is no name of a file", name)
		case strings.EqualFold(top, ManifestName) || strings.EqualFold(top, IndexName) ||
			strings.HasSuffix(strings.ToLower(name), ".safetensors") || strings.HasSuffix(strings.ToLower(top), ".safetensors"):
			err = fmt.Errorf("%q is a name of the checkpoint itself", name)
		case both:
			err = fmt.Errorf("%q is the name of a file and of a folder", folder)
		case len(files[name]) > maxBeside:
			err = fmt.Errorf("%q has %d bytes; at most %d are allowed", name, len(files[name]), maxBeside)
		}
		if err != nil {
			return fmt.Errorf("State.Files: %w", err)
		}
	}
	return nil
}

// folderOf returns the folder in a small file's name, which may be in one below the checkpoint's own, or "".
func folderOf(name string) (string, error) {
	folder, file, is := strings.Cut(name, "/")
	if !is {
		return "", disk.CheckName(name)
	}
	return folder, errors.Join(disk.CheckName(folder), disk.CheckName(file))
}

// readBeside compares the small files with their hashes in ringo.json.
func (s *Reader) readBeside() {
	for _, name := range slices.Sorted(maps.Keys(s.Manifest.Beside)) {
		folder, err := folderOf(name)
		if s.listed[name] = true; folder != "" {
			s.listed[folder] = true
			if is, _ := s.FS.IsDir(filepath.Join(s.Path, folder)); !is && err == nil {
				err = fmt.Errorf("%s: %s is no folder", bounded.Quote(name), bounded.Quote(folder))
			}
		}
		if err != nil {
			s.fail(err)
		} else if text := s.read(name, maxBeside); text != nil {
			s.compare(name, text, s.Manifest.Beside[name])
		}
	}
}

// Besides returns the small files of a folder: those that ringo.json lists, or, without ringo.json, files that look
// like settings or vocabularies, also in the folders of sentence-transformers' modules.
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
			if name != IndexName && isSettings(name) {
				names = append(names, name)
			}
		}
		below, err := s.modules(all)
		if err != nil {
			return nil, err
		}
		names = append(names, below...)
	}
	files := map[string][]byte{}
	var errs []error
	for _, name := range names {
		text, err := disk.ReadFile(s.FS, filepath.Join(s.Path, name), maxBeside)
		files[name], errs = text, append(errs, err)
	}
	return files, errors.Join(errs...)
}

// isSettings reports whether a file looks like settings or a vocabulary.
func isSettings(name string) bool {
	return slices.Contains([]string{".json", ".txt", ".model", ".jinja"}, filepath.Ext(name))
}

// modules returns the files of sentence-transformers' modules in folders below, such as 1_Pooling/config.json, if the folder has all. What
// is not settings, such as the tensors of a Dense, is an error: a checkpoint has no place for it.
func (s *Reader) modules(all []string) (names []string, err error) {
	const list = "modules.json"
	if !slices.Contains(all, list) {
		return nil, nil
	}
	text, err := disk.ReadFile(s.FS, filepath.Join(s.Path, list), maxBeside)
	var modules []struct{ Path string }
	if err == nil {
		err = json.Unmarshal(text, &modules)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list, bounded.Explain(err, text))
	}
	for _, m := range modules {
		if m.Path == "" || !slices.Contains(all, m.Path) { // the folder itself, or a module without files, such as Normalize
			continue
		}
		files, err := s.FS.ReadDir(filepath.Join(s.Path, m.Path))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name := m.Path + "/" + file
			if !isSettings(file) {
				return nil, fmt.Errorf("%s: %s is not copied: only settings of a module are", list, bounded.Quote(name))
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// Hashes returns the SHA-256 of small files. Ranks compare these without sending the files.
func Hashes(files map[string][]byte) map[string]string {
	hashes := map[string]string{}
	for name, text := range files {
		hashes[name] = Sum(text)
	}
	return hashes
}
