package torch

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// maxPickle is the largest pickle in bytes, because pickles are read whole. For a model of 100,000 tensors it has about
// 20 MB.
const maxPickle = 512 << 20

// entryBytes is the memory of an entry of an archive's directory, besides its name and the like.
const entryBytes = 640

// archive is a file of torch.save: a pickle and storages.
type archive struct {
	name    string
	r       io.ReaderAt
	prefix  string // prefix of all entry names, ends with a slash
	entries map[string]extent
	budget  *bounded.Budget
}

// extent is the byte range of an entry.
type extent struct{ offset, size int64 }

// openArchive reads the directory of an archive of size bytes. Entries must not be compressed, so no archive holds more
// bytes than its file.
func openArchive(name string, r io.ReaderAt, size int64, budget *bounded.Budget) (*archive, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, noArchive(r, size, err))
	}
	if slices.ContainsFunc(z.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, "/constants.pkl") }) {
		return nil, fmt.Errorf("%s: it is a program, of torch.jit.save: write its tensors, by "+
			"torch.save(torch.jit.load(file).state_dict(), new)", name)
	}
	a := &archive{name: name, r: r, entries: map[string]extent{}, budget: budget}
	total := int64(0)
	for _, f := range z.File {
		x, err := locate(f, size)
		if err == nil {
			err = budget.Take(int64(entryBytes + 2*(len(f.Name)+len(f.Extra)+len(f.Comment))))
		}
		if err == nil {
			total += x.size
			_, twice := a.entries[f.Name]
			switch {
			case twice:
				err = fmt.Errorf("the name is there twice")
			case total > size:
				err = fmt.Errorf("the entries have more bytes than the archive")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: entry %s: %w", name, bounded.Quote(f.Name), err)
		}
		a.entries[f.Name] = x
		if dir, ok := strings.CutSuffix(f.Name, "/data.pkl"); ok && !strings.Contains(dir, "/") {
			if a.prefix != "" {
				return nil, fmt.Errorf("%s: entry %s: there is another data.pkl", name, bounded.Quote(f.Name))
			}
			a.prefix = dir + "/"
		}
	}
	if a.prefix == "" {
		return nil, fmt.Errorf("%s: there is no data.pkl: not an archive of torch.save", name)
	}
	return a, a.checkOrder()
}

// noArchive says what a file is that is no archive.
func noArchive(r io.ReaderAt, size int64, err error) error {
	head := make([]byte, min(size, 1024))
	if err := readFull(r, head, 0); err != nil {
		return err
	}
	err = fmt.Errorf("not an archive of torch.save: %w", err)
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return fmt.Errorf("the end is missing: the file is cut off, get it again (%w)", err)
	case bytes.HasPrefix(head, []byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9")):
		return fmt.Errorf("PyTorch before 1.6 wrote it: write it again with a newer one, by torch.save(torch.load(file), new) (%w)", err)
	case len(head) > 9 && string(head[8:10]) == `{"`:
		return fmt.Errorf("it is a safetensors file: give it a name that ends in .safetensors (%w)", err)
	}
	return bounded.Explain(err, head)
}

// locate checks an entry and returns its byte range.
func locate(f *zip.File, size int64) (extent, error) {
	if f.Method != zip.Store || f.Flags&1 != 0 || f.CompressedSize64 != f.UncompressedSize64 {
		return extent{}, fmt.Errorf("it is compressed or encrypted; torch.save stores entries as they are")
	}
	off, err := f.DataOffset()
	if err != nil {
		return extent{}, err
	}
	if off < 0 || off > size || f.UncompressedSize64 > uint64(size-off) {
		return extent{}, fmt.Errorf("%d bytes at %d lead out of the archive of %d", f.UncompressedSize64, off, size)
	}
	return extent{off, int64(f.UncompressedSize64)}, nil
}

// checkOrder refuses storages from a big-endian machine.
func (a *archive) checkOrder() error {
	if _, ok := a.entries[a.prefix+"byteorder"]; !ok {
		return nil // written before PyTorch saved big-endian files
	}
	b, err := a.read("byteorder", 16)
	if err == nil && string(b) != "little" {
		err = fmt.Errorf("%s: the byte order is %q; only little is read", a.name, b)
	}
	return err
}

// read returns an entry, or an error if it has more than limit bytes.
func (a *archive) read(entry string, limit int64) ([]byte, error) {
	x := a.entries[a.prefix+entry]
	if x.size > limit {
		return nil, fmt.Errorf("%s: %s has %d bytes; at most %d are read", a.name, entry, x.size, limit)
	}
	b := make([]byte, x.size)
	if err := readFull(a.r, b, x.offset); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", a.name, entry, err)
	}
	return b, nil
}

// value runs the archive's pickle and returns its value.
func (a *archive) value() (any, error) {
	b, err := a.read("data.pkl", maxPickle)
	if err != nil {
		return nil, err
	}
	if err := a.budget.Take(int64(len(b))); err != nil {
		return nil, err
	}
	return unpickle(a.name+": data.pkl", b, a.budget, a.storage)
}

// storage returns the storage for a persistent id of a pickle: ("storage", class, key, device, elements).
func (a *archive) storage(id any) (any, error) {
	t, _ := id.(Tuple)
	if len(t) != 5 || t[0] != "storage" {
		return nil, fmt.Errorf("a reference to %s, not to a storage", kindOf(id))
	}
	class, ok1 := t[1].(Name)
	key, ok2 := t[2].(string)
	n, ok3 := t[4].(int64)
	d := storages[class.Name]
	if !ok1 || !ok2 || !ok3 || d == "" {
		return nil, fmt.Errorf("a storage of the type %s, with the key %s and %s elements", kindOf(t[1]), show(t[2]), show(t[4]))
	}
	x, ok := a.entries[a.prefix+"data/"+key]
	if !ok {
		return nil, fmt.Errorf("there is no storage %s in the archive", bounded.Quote(key))
	}
	if size := int64(d.Bits() / 8); n < 0 || n != x.size/size || x.size%size != 0 {
		return nil, fmt.Errorf("storage %s has %d bytes, which are not %d elements of %s", bounded.Quote(key), x.size, n, d)
	}
	return &storage{r: io.NewSectionReader(a.r, x.offset, x.size), dtype: d, bytes: x.size}, nil
}
