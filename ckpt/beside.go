package ckpt

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// maxBeside is the largest size of a small file (State.Files), in bytes.
const maxBeside = 64 << 20

// checkBeside refuses small files with an invalid name or with a name that the checkpoint itself uses.
func checkBeside(files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := checkName(name)
		switch {
		case err != nil:
		case strings.ContainsFunc(name, unicode.IsControl) || len(name) > 255:
			err = fmt.Errorf("%.99q is no name of a file", name)
		case strings.EqualFold(name, manifestName) || strings.EqualFold(name, indexName) || strings.HasSuffix(strings.ToLower(name), ".safetensors"):
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

// setBeside adds the small files to the plan.
func (p *draft) setBeside(files map[string][]byte) {
	p.beside, p.man.Beside = files, nil
	if len(files) == 0 {
		return
	}
	p.man.Beside = map[string]string{}
	for name, text := range files {
		p.man.Beside[name] = sum(text)
	}
}

// readBeside compares the small files with their hashes in ringo.json.
func (s *storageReader) readBeside() {
	for _, name := range slices.Sorted(maps.Keys(s.man.Beside)) {
		s.listed[name] = true
		err := checkName(name)
		var text []byte
		if err == nil {
			text, err = readFile(s.fs, filepath.Join(s.path, name), maxBeside)
		}
		if err != nil {
			s.problems = append(s.problems, err)
		} else if sum(text) != s.man.Beside[name] {
			s.problem("%s: the SHA-256 is not that of %s: the file is damaged, or of another checkpoint", name, manifestName)
		}
	}
}

// besides returns the small files of a folder: those that ringo.json lists, or, without ringo.json, files that look
// like settings or vocabularies.
func (s *storageReader) besides() (map[string][]byte, error) {
	var names []string
	if s.man != nil {
		names = slices.Sorted(maps.Keys(s.man.Beside))
	}
	if s.man == nil && !s.single {
		all, err := s.fs.ReadDir(s.path)
		if err != nil {
			return nil, err
		}
		for _, name := range all {
			if name != indexName && slices.Contains([]string{".json", ".txt", ".model", ".jinja"}, filepath.Ext(name)) {
				names = append(names, name)
			}
		}
	}
	files := map[string][]byte{}
	var errs []error
	for _, name := range names {
		text, err := readFile(s.fs, filepath.Join(s.path, name), maxBeside)
		files[name], errs = text, append(errs, err)
	}
	return files, errors.Join(errs...)
}

// sizes describes small files, so that ranks can compare them without sending them.
func sizes(files map[string][]byte) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[name] = fmt.Sprintf("%d bytes, SHA-256 %s", len(text), sum(text))
	}
	return out
}
