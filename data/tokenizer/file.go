package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

const (
	fileName = "tokenizer.json"
	maxFile  = 64 << 20 // Llama 3's has 9 MB
	maxVocab = 1 << 21
	maxAdded = 1 << 20 // bytes of all added tokens
)

// Open reads tokenizer.json in a folder with Hugging Face's layout.
func Open(dir string) (*Tokenizer, error) {
	path := filepath.Join(dir, fileName)
	text, err := bounded.ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; transformers writes it, by AutoTokenizer.from_pretrained(%q).save_pretrained(%[2]q)", err, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, bounded.Explain(err, text))
	}
	return t, nil
}

type file struct {
	Version    string          `json:"version"`
	Truncation json.RawMessage `json:"truncation"`
	Padding    json.RawMessage `json:"padding"`
	Added      []addedToken    `json:"added_tokens"`
	Normalizer json.RawMessage `json:"normalizer"`
	Words      json.RawMessage `json:"pre_tokenizer"`
	Around     json.RawMessage `json:"post_processor"`
	Decoder    json.RawMessage `json:"decoder"`
	Model      json.RawMessage `json:"model"`
}

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"` // no effect on Encode
}

// bpeFile is a model of byte pair encoding in a file.
type bpeFile struct {
	Type         string         `json:"type"`
	Dropout      float64        `json:"dropout"`
	Unknown      *string        `json:"unk_token"` // never used: there is a token for each byte
	Prefix       string         `json:"continuing_subword_prefix"`
	Suffix       string         `json:"end_of_word_suffix"`
	FuseUnknown  bool           `json:"fuse_unk"`
	ByteFallback bool           `json:"byte_fallback"`
	IgnoreMerges bool           `json:"ignore_merges"`
	Vocab        map[string]int `json:"vocab"`
	Merges       []mergeNames   `json:"merges"`
}

// mergeNames are two tokens: "a b" in old files, ["a", "b"] in new ones.
type mergeNames [2]string

func (m *mergeNames) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		left, right, ok := strings.Cut(s, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("the merge %s is not of two tokens", bounded.Quote(s))
		}
		*m = mergeNames{left, right}
		return nil
	}
	var both []string
	if err := json.Unmarshal(text, &both); err != nil {
		return err
	}
	if len(both) != 2 {
		return fmt.Errorf("a merge of %d tokens, not of two", len(both))
	}
	*m = mergeNames(both)
	return nil
}

// strict is json.Unmarshal, but unknown fields are errors.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is data after the JSON value")
	}
	return nil
}

// typed reads an object with the field "type", whose value is named in errors. It must be in known.
func typed(text []byte, into any, known ...string) error {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	for _, k := range known {
		if head.Type == k {
			if err := strict(text, into); err != nil {
				return fmt.Errorf("%s: %w", head.Type, err)
			}
			return nil
		}
	}
	return fmt.Errorf("the type %s is not supported", bounded.Quote(head.Type))
}

// valueBytes is the memory of a token or a merge, also while its list and maps grow.
const valueBytes = 256

func parse(text []byte) (*Tokenizer, error) {
	if err := bounded.JSON(text, valueBytes); err != nil {
		return nil, err
	}
	var f file
	if err := strict(text, &f); err != nil {
		return nil, err
	}
	t := &Tokenizer{pieces: map[int]string{}, names: map[int]string{}, ids: map[string]int{}}
	if err := t.pipeline(&f); err != nil {
		return nil, err
	}
	if err := t.readModel(f.Model); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := t.added(f.Added); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	for id, name := range t.names {
		t.pieces[id] = t.decoder.piece(name, false)
	}
	if !t.decoder.first {
		t.names = nil
	}
	if err := t.around(f.Around); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	return t, nil
}

// readModel reads the model. Old files do not name its type.
func (t *Tokenizer) readModel(text json.RawMessage) error {
	var head struct {
		Type string          `json:"type"`
		Most json.RawMessage `json:"max_input_chars_per_word"`
		Unk  json.RawMessage `json:"unk_id"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	kind := head.Type
	switch {
	case kind == "" && head.Most != nil:
		kind = "WordPiece"
	case kind == "" && head.Unk != nil:
		kind = "Unigram"
	}
	if t.ofBytes && (kind == "Unigram" || kind == "WordPiece") {
		return fmt.Errorf("%s behind ByteLevel is not supported", kind)
	}
	switch kind {
	case "WordPiece":
		var m wordPieceFile
		if err := typed(text, &m, "WordPiece", ""); err != nil {
			return err
		}
		return t.readWordPiece(&m)
	case "Unigram":
		var m unigramFile
		if err := typed(text, &m, "Unigram", ""); err != nil {
			return err
		}
		return t.readUnigram(&m)
	}
	var m bpeFile
	if err := typed(text, &m, "BPE", ""); err != nil {
		return err
	}
	return t.readBPE(&m)
}

// name gives a token its id.
func (t *Tokenizer) name(name string, id int) error {
	if id < 0 || id >= maxVocab {
		return fmt.Errorf("%s has the id %d, which must be from 0 to %d", bounded.Quote(name), id, maxVocab-1)
	}
	if _, ok := t.names[id]; ok {
		return fmt.Errorf("%s is not the only token with the id %d", bounded.Quote(name), id)
	}
	t.ids[name], t.names[id] = id, name
	t.vocab = max(t.vocab, id+1)
	return nil
}

func (t *Tokenizer) readBPE(m *bpeFile) error {
	if m.Dropout != 0 || m.Prefix != "" || m.Suffix != "" {
		return fmt.Errorf("dropout %v, continuing_subword_prefix %q and end_of_word_suffix %q are not supported", m.Dropout, m.Prefix, m.Suffix)
	}
	if m.ByteFallback == t.ofBytes {
		return fmt.Errorf("BPE with byte_fallback %v is not supported here: there are ByteLevel without it, and others with it", m.ByteFallback)
	}
	b := &bpe{chars: m.ByteFallback, whole: m.IgnoreMerges, tokens: make(map[string]int32, len(m.Vocab)),
		merges: make(map[pair]merge, len(m.Merges))}
	t.model = b
	for name, id := range m.Vocab {
		if err := t.name(name, id); err != nil {
			return err
		}
		if !b.chars {
			name = fromVisible(name)
		}
		b.tokens[name] = int32(id)
	}
	for i := range 256 {
		name := string(visible[i])
		if b.chars {
			name = fmt.Sprintf("<0x%02X>", i)
		}
		id, ok := m.Vocab[name]
		if !ok {
			return fmt.Errorf("the vocabulary has no token %q for the byte %d", name, i)
		}
		b.bytes[i] = int32(id)
	}
	for rank, names := range m.Merges {
		left, okLeft := m.Vocab[names[0]]
		right, okRight := m.Vocab[names[1]]
		id, ok := m.Vocab[names[0]+names[1]]
		if !okLeft || !okRight || !ok {
			return fmt.Errorf("merge %d, of %s and %s: the vocabulary must have both and what they make", rank, bounded.Quote(names[0]),
				bounded.Quote(names[1]))
		}
		b.merges[pair{int32(left), int32(right)}] = merge{int32(rank), int32(id)}
	}
	return nil
}

// added reads added tokens. Some are in the vocabulary, too.
func (t *Tokenizer) added(tokens []addedToken) error {
	plain, normalized := map[string]addedToken{}, map[string]addedToken{}
	size := 0
	for _, a := range tokens {
		in, found := plain, a.Content
		if a.Normalized { // as in the text that is searched
			if (len(a.Content)+t.longer)*t.times > maxAdded {
				return fmt.Errorf("longer than %d bytes in all", maxAdded)
			}
			in, found = normalized, t.normalize(a.Content)
		}
		size += len(found)
		other, twice := in[found]
		switch {
		case found == "" || strings.ContainsRune(found, '\uFFFD'):
			return fmt.Errorf("%s is empty or not UTF-8", bounded.Quote(a.Content))
		case size > maxAdded:
			return fmt.Errorf("longer than %d bytes in all", maxAdded)
		case twice && other.ID != a.ID:
			return fmt.Errorf("%s and %s are normalized to the same text", bounded.Quote(other.Content), bounded.Quote(a.Content))
		}
		if id, ok := t.ids[a.Content]; !ok {
			if err := t.name(a.Content, a.ID); err != nil {
				return err
			}
		} else if id != a.ID {
			return fmt.Errorf("%s has the ids %d and %d", bounded.Quote(a.Content), id, a.ID)
		}
		in[found] = a
		t.names[a.ID] = found
	}
	var err error
	if t.plain, err = newMatcher(plain); err != nil {
		return err
	}
	t.normalized, err = newMatcher(normalized)
	return err
}
