package ckpt

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
)

// storageReader reads a checkpoint: a folder with ringo.json, a Hugging Face folder, or one file.
type storageReader struct {
	fs       fileSystem
	path     string
	man      *manifest // nil: none, so there are no hashes
	files    map[string]*openedFile
	listed   map[string]bool // names of the files that belong to the checkpoint
	model    []*stored
	opt      []*stored          // tensors of the optimizer
	tensors  map[string]*stored // all tensors, by key
	pieces   int                // of all tensors
	manHash  string             // hash of ringo.json; "": none
	single   bool               // the checkpoint is one file
	list     string             // the list of tensors (a file's name, or the metadata), for errors
	problems []error
}

type openedFile struct {
	name   string
	list   string // see storageReader
	f      file
	header *safetensors.Header
	found  map[string]safetensors.Tensor // tensors of the header that no list has named yet
}

// stored is a tensor in a file.
type stored struct {
	safetensors.Tensor
	model  bool
	file   *openedFile
	offset int64         // in the file, in bytes
	pieces []storedPiece // none: there is no hash
	first  int           // index of its first piece among those of all tensors

	transposed bool // as in ringo.json
	rule       *Rule
	expert     *expert
}

type storedPiece struct {
	part
	rank   int
	sha256 string
}

// newReader returns a reader without files.
func newReader(fsys fileSystem, path string) *storageReader {
	return &storageReader{fs: fsys, path: path, files: map[string]*openedFile{}, listed: map[string]bool{}, tensors: map[string]*stored{}, list: manifestName}
}

// open opens a checkpoint and checks everything except the data. All problems are joined in one error.
func open(fsys fileSystem, path string) (*storageReader, error) {
	s := examine(fsys, path)
	if len(s.problems) > 0 {
		err := errors.Join(s.problems...)
		return nil, errors.Join(fmt.Errorf("%s is not sound: %w", path, err), s.Close())
	}
	return s, nil
}

// examine is open for callers that also want to see a damaged checkpoint. It collects the problems in s.problems.
func examine(fsys fileSystem, path string) *storageReader {
	s := newReader(fsys, path)
	if strings.HasPrefix(filepath.Base(path), tmpPrefix) {
		s.problem("it is being written, or a crash left it behind")
		return s
	}
	if strings.HasSuffix(path, ".safetensors") {
		s.path, s.single, s.list = filepath.Dir(path), true, "its metadata"
		s.readSingle(filepath.Base(path))
		return s
	}
	names, err := fsys.ReadDir(path)
	if err != nil {
		s.problems = append(s.problems, err)
		return s
	}
	_, step := stepOf(filepath.Base(path))
	switch {
	case slices.Contains(names, manifestName):
		s.readManifest()
	case step:
		s.problem("%s is missing: no complete checkpoint (every step of a Saver has it; give a folder of others another name)", manifestName)
	case slices.Contains(names, indexName):
		s.readIndex()
	case slices.Contains(names, "model.safetensors"):
		s.addPlain("model.safetensors")
	default:
		s.problem("there is neither %s nor %s nor model.safetensors: no complete checkpoint", manifestName, indexName)
	}
	return s
}

func (s *storageReader) problem(format string, a ...any) {
	s.problems = append(s.problems, fmt.Errorf(format, a...))
}

// Close closes the files.
func (s *storageReader) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.f.Close())
	}
	return errors.Join(errs...)
}

// openFile opens a safetensors file and reads its header, once. It returns nil if the file cannot be opened.
func (s *storageReader) openFile(name string) *openedFile {
	if f := s.files[name]; f != nil || s.listed[name] {
		return f
	}
	s.listed[name] = true
	if err := checkName(name); err != nil {
		s.problems = append(s.problems, err)
		return nil
	}
	f, err := s.fs.Open(filepath.Join(s.path, name), false)
	if err != nil {
		s.problems = append(s.problems, err)
		return nil
	}
	x := &openedFile{name: name, list: s.list, f: f, found: map[string]safetensors.Tensor{}}
	s.files[name] = x
	size, err := f.Size()
	if err == nil {
		x.header, err = safetensors.Read(name, f, size)
	}
	if err != nil {
		s.problems = append(s.problems, err)
		x.header = &safetensors.Header{}
	}
	for _, t := range x.header.Tensors {
		x.found[t.Name] = t
	}
	return x
}

// addPlain adds all tensors of a file.
func (s *storageReader) addPlain(name string) {
	f := s.openFile(name)
	if f == nil {
		return
	}
	for _, t := range f.header.Tensors {
		s.add(true, f, t)
	}
	clear(f.found)
}

// readIndex reads a Hugging Face folder with an index.
func (s *storageReader) readIndex() {
	text, err := readFile(s.fs, filepath.Join(s.path, indexName), maxJSON)
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	s.listed[indexName] = true
	files, err := decodeIndex(text)
	if err != nil {
		s.problem("%s: %w", indexName, err)
		return
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s.take(true, name, files[name], indexName)
	}
	s.checkRest(indexName)
}

// strip removes a prefix from the names of tensors and of the optimizer's parameters that begin with it.
func (s *storageReader) strip(prefix string) error {
	if s.man != nil && s.man.Optimizer != nil {
		counts := map[string]int{}
		for name, n := range s.man.Optimizer.Counts {
			counts[strings.TrimPrefix(name, prefix)] = n
		}
		s.man.Optimizer.Counts = counts
	}
	all := s.each()
	clear(s.tensors)
	for _, x := range all {
		x.Name = strings.TrimPrefix(x.Name, prefix)
		key := itemKey(x.model, x.Name)
		if s.tensors[key] != nil {
			return fmt.Errorf("tensor %q is there twice, with and without the prefix %q", x.Name, prefix)
		}
		s.tensors[key] = x
	}
	return nil
}

// take adds a tensor that, according to list, is in a file.
func (s *storageReader) take(model bool, name, fileName, list string) *stored {
	f := s.openFile(fileName)
	if f == nil {
		return nil
	}
	as := name
	if s.single {
		as = singleName(model, name)
	}
	t, ok := f.found[as]
	if !ok {
		s.problem("%s: tensor %q: %s has it in this file, which has not", fileName, as, list)
		return nil
	}
	delete(f.found, as)
	t.Name = name
	return s.add(model, f, t)
}

func (s *storageReader) add(model bool, f *openedFile, t safetensors.Tensor) *stored {
	x := &stored{Tensor: t, model: model, file: f, offset: f.header.Size + t.Start}
	if model {
		s.model = append(s.model, x)
	} else {
		s.opt = append(s.opt, x)
	}
	s.tensors[itemKey(model, t.Name)] = x
	return x
}

// checkRest reports tensors in the files that are not in list.
func (s *storageReader) checkRest(list string) {
	for _, f := range s.files {
		for _, t := range f.header.Tensors {
			if _, left := f.found[t.Name]; left {
				s.problem("%s: tensor %q: %s does not list it", f.name, t.Name, list)
			}
		}
	}
}

// readManifest reads a folder that a Saver wrote.
func (s *storageReader) readManifest() {
	text, err := readFile(s.fs, filepath.Join(s.path, manifestName), maxJSON)
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	if s.man, err = decodeManifest(text); err != nil {
		s.problem("%s: %w", manifestName, err)
		return
	}
	s.listed[manifestName], s.manHash = true, sum(text)
	for _, e := range s.man.Files {
		s.checkFile(e)
	}
	s.checkEntries()
	s.checkIndex()
	s.readBeside()
}

// checkEntries compares all tensors with the manifest.
func (s *storageReader) checkEntries() {
	for i := range s.man.Model {
		s.checkEntry(true, &s.man.Model[i])
	}
	if s.man.Optimizer != nil {
		for i := range s.man.Optimizer.Tensors {
			s.checkEntry(false, &s.man.Optimizer.Tensors[i])
		}
	}
	s.checkRest(s.list)
}

// checkFile compares a file's size and header with ringo.json.
func (s *storageReader) checkFile(e fileEntry) {
	f := s.openFile(e.Name)
	if f == nil || f.header.Size == 0 {
		return
	}
	size, err := f.f.Size()
	if err != nil || size != e.Bytes {
		s.problem("%s: %d bytes, %s says %d (%v)", e.Name, size, manifestName, e.Bytes, err)
		return
	}
	head := make([]byte, f.header.Size)
	if _, err := f.f.ReadAt(head, 0); err != nil && err != io.EOF {
		s.problem("%s: %w", e.Name, err)
	} else if sum(head) != e.Header {
		s.problem("%s: the header's SHA-256 is not that of %s: the file is damaged, or of another checkpoint", e.Name, manifestName)
	}
}

// checkEntry compares a tensor in a file with the manifest, and checks that its pieces cover it.
func (s *storageReader) checkEntry(model bool, e *tensorEntry) {
	x := s.take(model, e.Name, e.File, s.list)
	if x == nil {
		return
	}
	if x.DType != e.DType || !slices.Equal(x.Shape, e.Shape) {
		s.problem("%s: tensor %q is %s%v; %s says %s%v", e.File, e.Name, x.DType, x.Shape, s.list, e.DType, e.Shape)
		return
	}
	x.transposed, x.rule, x.expert = e.Transposed, e.TP, e.Expert
	if x.transposed && len(x.Shape) != 2 {
		s.problem("%s: tensor %q: transposed, in the shape %v", s.list, e.Name, x.Shape)
		return
	}
	var parts []part
	x.first = s.pieces
	s.pieces += len(e.Pieces)
	for _, p := range e.Pieces {
		part, err := p.part(x.Shape)
		if err != nil {
			s.problem("%s: tensor %q: %w", s.list, e.Name, err)
			return
		}
		parts = append(parts, part)
		x.pieces = append(x.pieces, storedPiece{part, p.Rank, p.SHA256})
	}
	if err := tile(x.Shape, parts); err != nil {
		s.problem("%s: tensor %q: %w", s.list, e.Name, err)
	}
}

// checkIndex compares the index with ringo.json, because other programs read the folder by its index.
func (s *storageReader) checkIndex() {
	s.listed[indexName] = true
	text, err := readFile(s.fs, filepath.Join(s.path, indexName), maxJSON)
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	if _, err := decodeIndex(text); err != nil {
		s.problem("%s: %w", indexName, err)
	}
	if sum(text) != s.man.Index {
		s.problem("%s: the SHA-256 is not that of %s: the file is damaged, or of another checkpoint", indexName, manifestName)
	}
}

// each returns all tensors, in an order that is the same on all ranks.
func (s *storageReader) each() []*stored { return slices.Concat(s.model, s.opt) }

// elementSize returns the size of an element in bytes, or 0 if it is not a whole number of bytes.
func (x *stored) elementSize() int {
	if x.DType.Bits()%8 != 0 {
		return 0
	}
	return x.DType.Bits() / 8
}

// config is a file that Hugging Face's libraries expect beside the tensors. It has a hash only if it came from
// State.Files.
const config = "config.json"

// unlisted returns an error for every file that does not belong to the checkpoint. Folders of other programs may have
// further files, but no further tensors.
func (s *storageReader) unlisted() (errs []error) {
	if s.single || len(s.listed) == 0 { // or nothing could be read
		return nil
	}
	names, err := s.fs.ReadDir(s.path)
	if err != nil {
		return []error{err}
	}
	for _, name := range names {
		if !s.listed[name] && (s.man != nil && name != config || strings.HasSuffix(name, fileSuffix)) {
			errs = append(errs, fmt.Errorf("%s: the file is not part of the checkpoint", name))
		}
	}
	return errs
}
