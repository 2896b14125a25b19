package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
)

// Draft is a checkpoint that is being written: the files, and where the tensors are in them.
type Draft struct {
	Manifest Manifest // complete except for hashes
	Files    []draftFile
	At       map[string]place  // where each tensor begins, by key
	Beside   map[string][]byte // small files
}

// NewDraft returns a draft without tensors.
func NewDraft(ranks int) *Draft {
	return &Draft{At: map[string]place{}, Manifest: Manifest{Version: formatVersion, Ranks: ranks}}
}

// draftFile is a file that is being written.
type draftFile struct {
	Name   string
	header []byte
	Size   int64
}

// place is where the data of a tensor begins.
type place struct {
	File   int
	Offset int64
}

// LayOut divides the tensors into files of at most fileBytes (a larger tensor gets its own file), and adds the files to
// the draft.
func (d *Draft) LayOut(kind string, tensors []TensorEntry, fileBytes int64) ([]TensorEntry, error) {
	var cuts [][]TensorEntry
	size := int64(0)
	for i, t := range tensors {
		n := t.bytes()
		if i == 0 || size+n > fileBytes {
			cuts, size = append(cuts, nil), 0
		}
		size += n
		cuts[len(cuts)-1] = append(cuts[len(cuts)-1], t)
	}
	for i, cut := range cuts {
		name := fmt.Sprintf("%s-%05d-of-%05d.safetensors", kind, i+1, len(cuts))
		if len(cuts) == 1 {
			name = kind + ".safetensors"
		}
		var list []safetensors.Tensor
		for k := range cut {
			cut[k].File = name
			list = append(list, safetensors.Tensor{Name: cut[k].Name, DType: cut[k].DType, Shape: cut[k].Shape})
		}
		h, err := safetensors.New(list, map[string]string{"format": "pt"})
		if err != nil {
			return nil, err
		}
		for _, t := range h.Tensors {
			d.At[ItemKey(kind == "model", t.Name)] = place{len(d.Files), h.Size + t.Start}
		}
		head := h.Encode()
		d.Files = append(d.Files, draftFile{name, head, h.Size + h.DataSize()})
		d.Manifest.Files = append(d.Manifest.Files, fileEntry{name, h.Size + h.DataSize(), Sum(head)})
	}
	return slices.Concat(cuts...), nil
}

// Names returns the names of the safetensors files.
func (d *Draft) Names() (names []string) {
	for _, f := range d.Files {
		names = append(names, f.Name)
	}
	return names
}

// Create creates the files and writes their headers.
func (d *Draft) Create(fsys disk.FS, dir string) error {
	for _, f := range d.Files {
		out, err := fsys.Create(filepath.Join(dir, f.Name), f.Size)
		if err != nil {
			return err
		}
		_, err = out.WriteAt(f.header, 0)
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Commit writes the small files, the index and ringo.json, and flushes the folder. Then it renames the folder and
// flushes the directory that holds it.
func (d *Draft) Commit(fsys disk.FS, from, to string) error {
	idx, err := encodeIndex(d.Manifest.Model)
	if err != nil {
		return err
	}
	d.Manifest.IndexHash = Sum(idx)
	text, err := d.Manifest.Encode()
	if err != nil {
		return err
	}
	last := map[string][]byte{IndexName: idx, ManifestName: text}
	maps.Copy(last, d.Beside)
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		if folder, _ := folderOf(name); folder != "" && !folders[folder] {
			folders[folder] = true
			if err := fsys.Mkdir(filepath.Join(from, folder)); err != nil {
				return err
			}
		}
		if err := disk.WriteFile(fsys, filepath.Join(from, name), last[name]); err != nil {
			return err
		}
	}
	for folder := range folders {
		if err := fsys.SyncDir(filepath.Join(from, folder)); err != nil {
			return err
		}
	}
	if err := fsys.SyncDir(from); err != nil {
		return err
	}
	if err := fsys.Rename(from, to); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(to))
}

// SetHashes stores the hashes that each rank reported, in the order of its pieces.
func (d *Draft) SetHashes(hashes [][]byte) error {
	for _, t := range d.Manifest.Entries() {
		for k := range t.Pieces {
			x := &t.Pieces[k]
			if len(hashes[x.Rank]) < sha256.Size {
				return fmt.Errorf("rank %d reported no hash of %s", x.Rank, t.Name)
			}
			x.SHA256, hashes[x.Rank] = hex.EncodeToString(hashes[x.Rank][:sha256.Size]), hashes[x.Rank][sha256.Size:]
		}
	}
	return nil
}
