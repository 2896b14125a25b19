package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// MaxJSON is the largest size in bytes of ringo.json and of the index, which are read as a whole. Tests make it
// smaller.
var MaxJSON int64 = 256 << 20

// Names of the files of a folder, and the version of the format.
const (
	ManifestName = "ringo.json"
	IndexName    = "model.safetensors.index.json"

	// entryBytes is the memory of a tensor, or of another value, of ringo.json or of the index.
	entryBytes = 320

	// formatVersion is the version that this package writes. Newer versions are refused.
	formatVersion = 1
)

// Manifest is the content of ringo.json: what a folder contains, and a hash of every byte of it.
type Manifest struct {
	Version    int           `json:"version"`
	Ranks      int           `json:"ranks"` // number of ranks that saved it
	IndexHash  string        `json:"index_sha256"`
	Files      []fileEntry   `json:"files,omitempty"`
	HeaderHash string        `json:"header_sha256,omitempty"` // for a single file: of its header without the manifest
	Model      []TensorEntry `json:"model"`
	Training
	Beside map[string]string `json:"beside,omitempty"` // SHA-256 of the small files, by name
}

// Training is what a checkpoint has of a training besides the parameters.
type Training struct {
	Step      int                        `json:"step"`
	Random    *tensor.TapeState          `json:"random,omitempty"`
	Optimizer *OptimizerEntry            `json:"optimizer,omitempty"`
	Extra     map[string]json.RawMessage `json:"extra,omitempty"`
	Base      *Base                      `json:"base,omitempty"`
}

// Entries yields all tensors; model is false for those of the optimizer. The order is the same on all ranks.
func (m *Manifest) Entries() iter.Seq2[bool, *TensorEntry] {
	return func(yield func(model bool, t *TensorEntry) bool) {
		for i := range m.Model {
			if !yield(true, &m.Model[i]) {
				return
			}
		}
		for i := 0; m.Optimizer != nil && i < len(m.Optimizer.Tensors); i++ {
			if !yield(false, &m.Optimizer.Tensors[i]) {
				return
			}
		}
	}
}

// fileEntry describes a safetensors file.
type fileEntry struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	HeaderHash string `json:"header_sha256"` // of the bytes before the data
}

// TensorEntry describes a tensor. The header of its file says where its bytes are.
type TensorEntry struct {
	Name       string            `json:"name"`
	DType      safetensors.DType `json:"dtype"`
	Shape      []int             `json:"shape"`
	Transposed bool              `json:"transposed,omitempty"` // in memory it is the transposed matrix
	File       string            `json:"file"`
	TP         *layout.Division  `json:"tp,omitempty"`
	Expert     *Expert           `json:"expert,omitempty"`
	Pieces     []PieceEntry      `json:"pieces"`
}

func (t *TensorEntry) bytes() int64 { return int64(shard.Product(t.Shape)) * int64(t.DType.Bits()) / 8 }

// Expert is the position of a stored tensor in a stack of experts: one parameter whose rows are stored as tensors of
// their own. Expert parallelism divides the stack over the ranks in this order.
type Expert struct {
	Index int `json:"index"`
	Of    int `json:"of"`
}

// OptimizerEntry is an optim.State whose tensors are in files.
type OptimizerEntry struct {
	Steps   int            `json:"steps"`
	LR      float64        `json:"lr"`
	Scaler  *optim.Scaler  `json:"scaler,omitempty"`
	Counts  map[string]int `json:"counts"`
	Tensors []TensorEntry  `json:"tensors"`
}

// Base identifies the frozen parameters that adapters were trained with. A checkpoint of adapters does not contain
// them.
type Base struct {
	Path   string `json:"path"`   // where they were loaded from; the folder may have moved since
	SHA256 string `json:"sha256"` // of their tensors as stored: names, types, shapes and bytes
}

// String returns the path and the first digits of the hash.
func (b *Base) String() string { return fmt.Sprintf("%s (SHA-256 %.16s…)", b.Path, b.SHA256) }

// PieceEntry is the part of a tensor that one rank wrote.
type PieceEntry struct {
	Rank   int          `json:"rank"`
	Boxes  []tensor.Box `json:"boxes,omitempty"` // none: the whole tensor
	Flat   [2]int       `json:"flat,omitzero"`   // {0,0}: all elements of the boxes
	SHA256 string       `json:"sha256"`          // of the elements, in the order of the boxes
}

// part checks the piece and returns it as a part.
func (p PieceEntry) part(shape []int) (shard.Part, error) {
	return shard.NewPart(shape, p.Boxes, p.Flat)
}

// ringo.json begins with the hash of its body, so that every flipped bit in it is found.
var (
	ManifestHead = []byte(`{"sha256":"`)
	ManifestBody = []byte(`","checkpoint":`)
	ManifestEnd  = []byte("}\n")
)

// Sum returns the SHA-256 of b in hexadecimal.
func Sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Encode returns the text of ringo.json, or an error if it is too large to read again.
func (m *Manifest) Encode() ([]byte, error) {
	body, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	return checkSize(ManifestName, bytes.Join([][]byte{ManifestHead, []byte(Sum(body)), ManifestBody, body, ManifestEnd}, nil))
}

// checkSize returns an error if a text is larger than MaxJSON.
func checkSize(name string, text []byte) ([]byte, error) {
	if int64(len(text)) > MaxJSON {
		return nil, fmt.Errorf("%s would have %d bytes; at most %d can be read: State.Extra is for small things", name, len(text), MaxJSON)
	}
	return text, nil
}

// DecodeManifest checks the hash and the version, and returns the manifest.
func DecodeManifest(text []byte) (*Manifest, error) {
	head := len(ManifestHead) + 2*sha256.Size + len(ManifestBody)
	if len(text) < head+len(ManifestEnd) || !bytes.HasPrefix(text, ManifestHead) || !bytes.HasSuffix(text, ManifestEnd) ||
		!bytes.Equal(text[head-len(ManifestBody):head], ManifestBody) {
		return nil, fmt.Errorf("not a ringo.json: it must begin with %s and end with a brace and a line feed", ManifestHead)
	}
	body := text[head : len(text)-len(ManifestEnd)]
	if got, want := Sum(body), string(text[len(ManifestHead):head-len(ManifestBody)]); got != want {
		return nil, fmt.Errorf("the SHA-256 is %.16s…, not %.16s…", got, want)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return nil, err
	}
	if version.Version < 1 || version.Version > formatVersion {
		return nil, fmt.Errorf("format version %d; this program reads 1 to %d", version.Version, formatVersion)
	}
	if err := bounded.JSON(body, entryBytes); err != nil {
		return nil, err
	}
	m := &Manifest{}
	return m, json.Unmarshal(body, m) // older programs also wrote fsdp's units, which are not used
}

// encodeIndex returns the text of model.safetensors.index.json, as Hugging Face's libraries write and read it.
func encodeIndex(model []TensorEntry) ([]byte, error) {
	size, files := int64(0), map[string]string{}
	for _, t := range model {
		size += t.bytes()
		files[t.Name] = t.File
	}
	b, err := json.MarshalIndent(map[string]any{"metadata": map[string]any{"total_size": size}, "weight_map": files}, "", "  ")
	if err != nil {
		return nil, err
	}
	return checkSize(IndexName, append(b, '\n'))
}

// decodeIndex returns the file of each tensor. It refuses file names that are not plain, and names that appear twice.
func decodeIndex(text []byte) (map[string]string, error) {
	if err := bounded.JSON(text, entryBytes); err != nil {
		return nil, err
	}
	var x struct {
		WeightMap json.RawMessage `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(x.WeightMap))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("weight_map is no object")
	}
	files := map[string]string{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		value, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, file := fmt.Sprint(key), fmt.Sprint(value)
		if _, ok := value.(string); !ok {
			return nil, fmt.Errorf("tensor %s: the file is %s", bounded.Quote(name), bounded.Plain(file))
		}
		if err := disk.CheckName(file); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", bounded.Quote(name), err)
		}
		if _, there := files[name]; there {
			return nil, fmt.Errorf("tensor %s: the name is there twice", bounded.Quote(name))
		}
		files[name] = file
	}
	return files, nil
}

// DTypes has the types of safetensors for those of package tensor.
var DTypes = map[tensor.DType]safetensors.DType{
	tensor.Float32: safetensors.F32, tensor.Float64: safetensors.F64, tensor.BFloat16: safetensors.BF16, tensor.Float16: safetensors.F16,
	tensor.Int32: safetensors.I32, tensor.Int64: safetensors.I64, tensor.Uint8: safetensors.U8, tensor.Bool: safetensors.Bool,
}

// DTypeOf returns the tensor.DType of a safetensors type; ok is false if package tensor does not have it.
func DTypeOf(d safetensors.DType) (tensor.DType, bool) {
	for t, s := range DTypes {
		if s == d {
			return t, true
		}
	}
	return 0, false
}

// ParamName returns the name of a tensor's parameter. Names of the optimizer's tensors are that name, a dot and a key.
func ParamName(model bool, name string) string {
	if i := strings.LastIndexByte(name, '.'); !model && i >= 0 {
		return name[:i]
	}
	return name
}

// ItemKey is the key of a tensor. It distinguishes a parameter from an optimizer tensor of the same name.
func ItemKey(model bool, name string) string {
	if model {
		return "model:" + name
	}
	return "optimizer:" + name
}
