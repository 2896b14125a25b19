package storage

import (
	"crypto/sha256"
	"maps"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/internal/bounded"
)

const (
	// FileSuffix ends the name of every safetensors file.
	FileSuffix = ".safetensors"

	// optimizerPrefix begins the names of the optimizer's tensors in a file that has the parameters too. The rest of
	// the name is as in PyTorch's torch.distributed.checkpoint: optimizer.state.0.weight.exp_avg.
	optimizerPrefix = "optimizer.state."

	// MetadataName is the key of the manifest in the file's metadata.
	MetadataName = "ringo"
)

// JoinFiles puts all tensors of a plan into one file. The hashes in its header are zeros: only their length is known
// now.
func (d *Draft) JoinFiles() error {
	for _, t := range d.Manifest.Entries() {
		t.File = ""
		for k := range t.Pieces {
			t.Pieces[k].SHA256 = strings.Repeat("0", 2*sha256.Size)
		}
	}
	bare, err := safetensors.New(d.singleTensors(), map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	d.Manifest.Files, d.Manifest.HeaderHash = nil, BareHash(bare)
	h, err := d.SingleHeader()
	if err != nil {
		return err
	}
	d.Files = []draftFile{{Size: h.Size + h.DataSize()}}
	at := map[string]place{}
	for _, t := range h.Tensors {
		at[t.Name] = place{0, h.Size + t.Start}
	}
	for model, t := range d.Manifest.Entries() {
		d.At[ItemKey(model, t.Name)] = at[SingleName(model, t.Name)]
	}
	return nil
}

// SingleName is the name of a tensor in a file that also holds the optimizer's state.
func SingleName(model bool, name string) string {
	if model {
		return name
	}
	return optimizerPrefix + name
}

// singleTensors lists the tensors of the file.
func (d *Draft) singleTensors() (list []safetensors.Tensor) {
	for model, t := range d.Manifest.Entries() {
		list = append(list, safetensors.Tensor{Name: SingleName(model, t.Name), DType: t.DType, Shape: t.Shape})
	}
	return list
}

// SingleHeader returns the header of the file, with the manifest in its metadata.
func (d *Draft) SingleHeader() (*safetensors.Header, error) {
	text, err := d.Manifest.Encode()
	if err != nil {
		return nil, err
	}
	return safetensors.New(d.singleTensors(), map[string]string{"format": "pt", MetadataName: string(text)})
}

// BareHash is the SHA-256 of a header without its manifest.
func BareHash(h *safetensors.Header) string {
	bare := *h
	bare.Metadata = maps.Clone(h.Metadata)
	delete(bare.Metadata, MetadataName)
	return Sum(bare.Encode())
}

// readSingle reads one file, written by SaveFile or by another program.
func (s *Reader) readSingle(name string) {
	f := s.openFile(name)
	if f == nil {
		return
	}
	text, ours := f.Header.Metadata[MetadataName]
	if !ours {
		for key, value := range f.Header.Metadata {
			if strings.HasPrefix(value, string(ManifestHead)) {
				s.problem("%s: its metadata has a checkpoint of this package under %s, not %q: the file is damaged", name,
					bounded.Quote(key), MetadataName)
				return
			}
		}
		s.addPlain(name)
		return
	}
	if !s.decode([]byte(text), name+": "+s.list) {
		return
	}
	if BareHash(f.Header) != s.Manifest.HeaderHash {
		s.problem("%s: the header's SHA-256 is not that of %s: the file is damaged", name, s.list)
		return
	}
	for _, t := range s.Manifest.Entries() {
		t.File = name
	}
	s.checkEntries()
}
