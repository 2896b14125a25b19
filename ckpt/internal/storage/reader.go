package storage

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/layout"
)

// Reader reads a checkpoint: a folder with ringo.json, a Hugging Face folder, or one file.
type Reader struct {
	FS           disk.FS
	Path         string
	Manifest     *Manifest // nil: none, so there are no hashes
	Files        map[string]*File
	listed       map[string]bool // names of the files that belong to the checkpoint
	Model        []*Tensor
	Optimizer    []*Tensor          // tensors of the optimizer
	Tensors      map[string]*Tensor // all tensors, by key
	Pieces       int                // of all tensors
	ManifestHash string             // hash of ringo.json; "": none
	single       bool               // the checkpoint is one file
	list         string             // the list of tensors (a file's name, or the metadata), for errors
	Problems     []error
}

// File is an open safetensors file.
type File struct {
	Name    string
	list    string // see Reader
	Content disk.File
	Header  *safetensors.Header
	found   map[string]safetensors.Tensor // tensors of the header that no list has named yet
}

// Tensor is a tensor in a file.
type Tensor struct {
	safetensors.Tensor
	Model  bool
	File   *File
	Offset int64   // in the file, in bytes
	Pieces []Piece // none: there is no hash
	First  int     // index of its first piece among those of all tensors

	Transposed bool // as in ringo.json
	Rule       *layout.Division
	Expert     *Expert
}

// Piece is a part of a tensor that has a hash.
type Piece struct {
	shard.Part
	rank   int
	sha256 string
}

// NewReader returns a reader without files.
func NewReader(fsys disk.FS, path string) *Reader {
	return &Reader{FS: fsys, Path: path, Files: map[string]*File{}, listed: map[string]bool{}, Tensors: map[string]*Tensor{},
		list: ManifestName}
}

// Open opens a checkpoint and checks everything except the data. All problems are joined in one error.
func Open(fsys disk.FS, path string) (*Reader, error) {
	s := Examine(fsys, path)
	if len(s.Problems) > 0 {
		err := errors.Join(s.Problems...)
		return nil, errors.Join(fmt.Errorf("%s is not sound: %w", path, err), s.Close())
	}
	return s, nil
}

// Examine is Open for callers that also want a damaged checkpoint: problems are in Problems.
func Examine(fsys disk.FS, path string) *Reader {
	s := NewReader(fsys, path)
	if strings.HasPrefix(filepath.Base(path), TmpPrefix) {
		s.problem("it is being written, or a crash left it behind")
		return s
	}
	if strings.HasSuffix(path, ".safetensors") {
		s.Path, s.single, s.list = filepath.Dir(path), true, "its metadata"
		s.readSingle(filepath.Base(path))
		return s
	}
	names, err := fsys.ReadDir(path)
	if err != nil {
		s.problem("%w%s", err, wayOut(filepath.Dir(path), []string{filepath.Base(path)}))
		return s
	}
	_, step := stepOf(filepath.Base(path))
	switch {
	case slices.Contains(names, ManifestName):
		s.readManifest()
	case step:
		s.problem("%s is missing: no complete checkpoint (every step of a Saver has it; give a folder of others another name)", ManifestName)
	case slices.Contains(names, IndexName):
		s.readIndex(names)
	case slices.Contains(names, "model.safetensors"):
		s.addPlain("model.safetensors")
	default:
		s.problem("there is neither %s nor %s nor model.safetensors: no complete checkpoint%s", ManifestName, IndexName, wayOut(path, names))
	}
	return s
}

func (s *Reader) problem(format string, a ...any) { s.fail(fmt.Errorf(format, a...)) }

// maxProblems is how many problems of a checkpoint are told.
const maxProblems = 1000

func (s *Reader) fail(err error) {
	if len(s.Problems) < maxProblems {
		s.Problems = append(s.Problems, err)
	}
}

// read returns the content of a small file. After a problem, it returns nil.
func (s *Reader) read(name string, limit int64) []byte {
	text, err := disk.ReadFile(s.FS, filepath.Join(s.Path, name), limit)
	if err != nil {
		s.fail(err)
		return nil
	}
	return text
}

// compare compares a file with its hash in ringo.json.
func (s *Reader) compare(name string, text []byte, hash string) {
	if Sum(text) != hash {
		s.problem("%s: the SHA-256 is not that of %s: the file is damaged, or of another checkpoint", name, ManifestName)
	}
}

// Close closes the files.
func (s *Reader) Close() error {
	var errs []error
	for _, f := range s.Files {
		errs = append(errs, f.Content.Close())
	}
	return errors.Join(errs...)
}

// openFile opens a safetensors file and reads its header, once. It returns nil if the file cannot be opened.
func (s *Reader) openFile(name string) *File {
	if f := s.Files[name]; f != nil || s.listed[name] {
		return f
	}
	s.listed[name] = true
	err := disk.CheckName(name)
	var f disk.File
	if err == nil {
		f, err = s.FS.Open(filepath.Join(s.Path, name), false)
	}
	if err != nil {
		s.fail(err)
		return nil
	}
	x := &File{Name: name, list: s.list, Content: f, found: map[string]safetensors.Tensor{}}
	s.Files[name] = x
	size, err := f.Size()
	if err == nil {
		x.Header, err = safetensors.Read(name, f, size)
	}
	if err != nil {
		s.fail(err)
		x.Header = &safetensors.Header{}
	}
	for _, t := range x.Header.Tensors {
		x.found[t.Name] = t
	}
	return x
}

// addPlain adds all tensors of a file.
func (s *Reader) addPlain(name string) {
	f := s.openFile(name)
	if f == nil {
		return
	}
	for _, t := range f.Header.Tensors {
		s.Add(true, f, t)
	}
	clear(f.found)
}

// readIndex reads a Hugging Face folder with an index, which has files of these names.
func (s *Reader) readIndex(names []string) {
	text := s.read(IndexName, MaxJSON)
	if text == nil {
		return
	}
	s.listed[IndexName] = true
	files, err := decodeIndex(text)
	if err != nil {
		s.problem("%s: %w", IndexName, bounded.Explain(err, text))
		return
	}
	if slices.Contains(names, "model.safetensors") && !slices.Contains(slices.Collect(maps.Values(files)), "model.safetensors") {
		s.problem("model.safetensors is one model, and the files that %s names are another: remove the one that is old", IndexName)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s.take(true, name, files[name], IndexName)
	}
	s.checkRest(IndexName)
}

// Rename gives tensors and the optimizer's parameters other names.
func (s *Reader) Rename(as func(name string) string) error {
	if as == nil {
		return nil
	}
	if s.Manifest != nil && s.Manifest.Optimizer != nil {
		counts := map[string]int{}
		for name, n := range s.Manifest.Optimizer.Counts {
			counts[as(name)] = n
		}
		s.Manifest.Optimizer.Counts = counts
	}
	all := s.Each()
	clear(s.Tensors)
	for _, x := range all {
		x.Name = as(x.Name)
		key := ItemKey(x.Model, x.Name)
		if s.Tensors[key] != nil {
			return fmt.Errorf("tensor %s is there twice, under two names", bounded.Quote(x.Name))
		}
		s.Tensors[key] = x
	}
	return nil
}

// take adds a tensor that, according to list, is in a file.
func (s *Reader) take(model bool, name, fileName, list string) *Tensor {
	f := s.openFile(fileName)
	if f == nil {
		return nil
	}
	as := name
	if s.single {
		as = SingleName(model, name)
	}
	t, ok := f.found[as]
	if !ok {
		s.problem("%s: tensor %s: %s has it in this file, which has not", bounded.Plain(fileName), bounded.Quote(as), list)
		return nil
	}
	delete(f.found, as)
	t.Name = name
	return s.Add(model, f, t)
}

// Add adds a tensor of a file.
func (s *Reader) Add(model bool, f *File, t safetensors.Tensor) *Tensor {
	x := &Tensor{Tensor: t, Model: model, File: f, Offset: f.Header.Size + t.Start}
	if model {
		s.Model = append(s.Model, x)
	} else {
		s.Optimizer = append(s.Optimizer, x)
	}
	s.Tensors[ItemKey(model, t.Name)] = x
	return x
}

// checkRest reports tensors in the files that are not in list.
func (s *Reader) checkRest(list string) {
	for _, f := range s.Files {
		for _, t := range f.Header.Tensors {
			if _, left := f.found[t.Name]; left {
				s.problem("%s: tensor %s: %s does not list it", f.Name, bounded.Quote(t.Name), list)
			}
		}
	}
}

// readManifest reads a folder that a Saver wrote.
func (s *Reader) readManifest() {
	text := s.read(ManifestName, MaxJSON)
	if text == nil || !s.decode(text, ManifestName) {
		return
	}
	if n, is := stepOf(filepath.Base(s.Path)); is && n != s.Manifest.Step {
		s.problem("%s is of step %d: the folder had another name, which is %s", ManifestName, s.Manifest.Step, StepName(s.Manifest.Step))
	}
	s.listed[ManifestName], s.listed[IndexName] = true, true
	for _, e := range s.Manifest.Files {
		s.checkFile(e)
	}
	s.checkEntries()
	s.checkIndex()
	s.readBeside()
}

// decode reads the manifest; where says where it is. It returns false after a problem.
func (s *Reader) decode(text []byte, where string) bool {
	man, err := DecodeManifest(text)
	if err != nil {
		s.problem("%s: %w", where, bounded.Explain(err, text))
		return false
	}
	s.Manifest, s.ManifestHash = man, Sum(text)
	return true
}

// checkEntries compares all tensors with the manifest.
func (s *Reader) checkEntries() {
	for model, e := range s.Manifest.Entries() {
		s.checkEntry(model, e)
	}
	s.checkRest(s.list)
}

// checkFile compares a file's size and header with ringo.json.
func (s *Reader) checkFile(e fileEntry) {
	f := s.openFile(e.Name)
	if f == nil || f.Header.Size == 0 {
		return
	}
	size, err := f.Content.Size()
	if err != nil || size != e.Bytes {
		s.problem("%s: %d bytes, %s says %d (%v)", e.Name, size, ManifestName, e.Bytes, err)
		return
	}
	head := make([]byte, f.Header.Size)
	if _, err := f.Content.ReadAt(head, 0); err != nil && err != io.EOF {
		s.problem("%s: %w", e.Name, err)
	} else if Sum(head) != e.HeaderHash {
		s.problem("%s: the header's SHA-256 is not that of %s: the file is damaged, or of another checkpoint", e.Name, ManifestName)
	}
}

// checkEntry compares a tensor in a file with the manifest, and checks that its pieces cover it.
func (s *Reader) checkEntry(model bool, e *TensorEntry) {
	x := s.take(model, e.Name, e.File, s.list)
	if x == nil {
		return
	}
	if x.DType != e.DType || !slices.Equal(x.Shape, e.Shape) {
		s.problem("%s: tensor %s is %s%v; %s says %s", e.File, bounded.Quote(e.Name), x.DType, x.Shape, s.list,
			bounded.Plain(fmt.Sprintf("%s%v", e.DType, e.Shape)))
		return
	}
	x.Transposed, x.Rule, x.Expert = e.Transposed, e.TP, e.Expert
	if x.Transposed && len(x.Shape) != 2 {
		s.problem("%s: tensor %s: transposed, in the shape %v", s.list, bounded.Quote(e.Name), x.Shape)
		return
	}
	var parts []shard.Part
	x.First = s.Pieces
	s.Pieces += len(e.Pieces)
	for _, p := range e.Pieces {
		part, err := p.part(x.Shape)
		if err != nil {
			s.problem("%s: tensor %s: %w", s.list, bounded.Quote(e.Name), err)
			return
		}
		parts = append(parts, part)
		x.Pieces = append(x.Pieces, Piece{part, p.Rank, p.SHA256})
	}
	if err := shard.Tile(x.Shape, parts); err != nil {
		s.problem("%s: tensor %s: %w", s.list, bounded.Quote(e.Name), err)
	}
}

// checkIndex compares the index with ringo.json, because other programs read the folder by its index.
func (s *Reader) checkIndex() {
	text := s.read(IndexName, MaxJSON)
	if text == nil {
		return
	}
	if _, err := decodeIndex(text); err != nil {
		s.problem("%s: %w", IndexName, err)
	}
	s.compare(IndexName, text, s.Manifest.IndexHash)
}

// Step returns the step, or 0 if the checkpoint has none.
func (s *Reader) Step() int {
	if s.Manifest == nil {
		return 0
	}
	return s.Manifest.Step
}

// Each returns all tensors, in an order that is the same on all ranks.
func (s *Reader) Each() []*Tensor { return slices.Concat(s.Model, s.Optimizer) }

// ElementSize returns the size of an element in bytes, or 0 if it is not a whole number of bytes.
func (x *Tensor) ElementSize() int {
	if x.DType.Bits()%8 != 0 {
		return 0
	}
	return x.DType.Bits() / 8
}

// config is a file that Hugging Face's libraries expect beside the tensors. It has a hash only if it came from
// State.Files.
const config = "config.json"

// Unlisted returns an error for every file that does not belong to the checkpoint. Folders of other programs may have
// further files, but no further tensors.
func (s *Reader) Unlisted() (errs []error) {
	if s.single || len(s.listed) == 0 { // or nothing could be read
		return nil
	}
	names, err := s.FS.ReadDir(s.Path)
	if err != nil {
		return []error{err}
	}
	for _, folder := range names {
		if is, _ := s.FS.IsDir(filepath.Join(s.Path, folder)); is && s.listed[folder] {
			below, err := s.FS.ReadDir(filepath.Join(s.Path, folder))
			if err != nil {
				errs = append(errs, err)
			}
			for _, name := range below {
				names = append(names, folder+"/"+name)
			}
		}
	}
	for _, name := range names {
		if !s.listed[name] && (s.Manifest != nil && name != config || strings.HasSuffix(name, FileSuffix)) {
			errs = append(errs, fmt.Errorf("%s: the file is not part of the checkpoint", name))
		}
	}
	return errs
}
