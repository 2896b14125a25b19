package torch

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// place is where an item of a distributed checkpoint is stored.
type place struct {
	file           string
	offset, length int64
}

// folder reads a distributed checkpoint.
type folder struct {
	*Checkpoint
	dir    string
	places map[string]place // by placeKey
}

func placeKey(fqn string, offset []int) string { return fmt.Sprintf("%s %v", fqn, offset) }

// placeBytes is the memory of a place, besides its name.
const placeBytes = 256

// readFolder reads .metadata and the directories of all archives that it lists.
func (c *Checkpoint) readFolder(dir string) error {
	f, err := c.open(dir, metadataFile)
	if err != nil {
		return err
	}
	if f.size > maxPickle {
		return fmt.Errorf("%s has %d bytes; at most %d are read", metadataFile, f.size, maxPickle)
	}
	b := make([]byte, f.size)
	if err := readFull(f, b, 0); err != nil {
		return err
	}
	if err := c.budget.Take(f.size); err != nil {
		return err
	}
	v, err := unpickle(metadataFile, b, c.budget, nil)
	if err != nil {
		return err
	}
	d := &folder{Checkpoint: c, dir: dir, places: map[string]place{}}
	if err := d.read(v); err != nil {
		return fmt.Errorf("%s: %w", metadataFile, err)
	}
	return nil
}

// field returns an attribute of a record of this class, or nil if the record does not have it.
func field(v any, class, name string) (any, error) {
	x, ok := v.(*Object)
	if !ok || x.Class.Name != class {
		return nil, fmt.Errorf("%s where %s should be", kindOf(v), class)
	}
	d, ok := x.State.(*Dict)
	if !ok {
		return nil, fmt.Errorf("%s has the attributes %s", class, kindOf(x.State))
	}
	return d.Get(name), nil
}

// dictField is field for an attribute that is a dict.
func dictField(v any, class, name string) (*Dict, error) {
	x, err := field(v, class, name)
	if err != nil {
		return nil, err
	}
	d, ok := x.(*Dict)
	if !ok {
		return nil, fmt.Errorf("%s is %s, no dict", name, kindOf(x))
	}
	return d, nil
}

func (d *folder) read(v any) error {
	stored, err := dictField(v, "Metadata", "storage_data")
	if err != nil {
		return err
	}
	for i, k := range stored.Keys {
		if err := d.addPlace(k, stored.Values[i]); err != nil {
			return err
		}
	}
	list, err := dictField(v, "Metadata", "state_dict_metadata")
	if err != nil {
		return err
	}
	x, err := field(v, "Metadata", "planner_data")
	if err != nil {
		return err
	}
	paths, _ := x.(*Dict) // nil: only the flat names are known
	root := &Dict{}
	for i, k := range list.Keys {
		fqn, ok := k.(string)
		if !ok {
			return fmt.Errorf("%s where a name should be", kindOf(k))
		}
		value, err := d.item(fqn, list.Values[i])
		if err != nil {
			return fmt.Errorf("%s: %w", bounded.Quote(fqn), err)
		}
		path := []any{fqn}
		if paths != nil && paths.Has(fqn) {
			path, _ = items(paths.Get(fqn))
		}
		err = d.budget.Take(int64(len(path)) * 2 * pairBytes)
		if err == nil {
			err = put(root, path, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", bounded.Quote(fqn), err)
		}
	}
	d.Root = root
	return nil
}

// addPlace records where an item is stored.
func (d *folder) addPlace(k, v any) error {
	name, err := field(k, "MetadataIndex", "fqn")
	if err != nil {
		return err
	}
	at, err := field(k, "MetadataIndex", "offset")
	if err != nil {
		return err
	}
	var offset []int // nil for bytes
	if at != nil {
		if offset, err = ints(at); err != nil {
			return err
		}
	}
	info, ok := v.(*Object)
	if !ok || info.Class.Name != "_StorageInfo" {
		return fmt.Errorf("%s: %s where _StorageInfo should be", show(name), kindOf(v))
	}
	attributes, _ := info.State.(*Dict)
	if attributes == nil {
		return fmt.Errorf("%s: _StorageInfo has no attributes", show(name))
	}
	if list, _ := items(attributes.Get("transform_descriptors")); len(list) > 0 {
		return fmt.Errorf("%s: it was stored with %d transforms, such as %s, which are not read", show(name), len(list), show(list[0]))
	}
	file, ok1 := attributes.Get("relative_path").(string)
	start, ok2 := attributes.Get("offset").(int64)
	length, ok3 := attributes.Get("length").(int64)
	fqn, ok4 := name.(string)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return fmt.Errorf("%s: _StorageInfo lacks relative_path, offset or length", show(name))
	}
	if err := d.budget.Take(int64(placeBytes + 2*len(fqn) + 40*len(offset))); err != nil {
		return err
	}
	key := placeKey(fqn, offset)
	if _, twice := d.places[key]; twice {
		return fmt.Errorf("%s: the chunk at %v is there twice", bounded.Quote(fqn), offset)
	}
	d.places[key] = place{file, start, length}
	return nil
}

// load reads the item at this name and offset.
func (d *folder) load(fqn string, offset []int) (any, error) {
	p, ok := d.places[placeKey(fqn, offset)]
	if !ok {
		return nil, fmt.Errorf("it is not said where the chunk at %v lies", offset)
	}
	f, err := d.open(d.dir, p.file)
	if err != nil {
		return nil, err
	}
	if p.offset < 0 || p.length < 0 || p.offset > f.size || p.length > f.size-p.offset {
		return nil, fmt.Errorf("%d bytes at %d lead out of %s, which has %d", p.length, p.offset, p.file, f.size)
	}
	if f.read += p.length; f.read > f.size {
		return nil, fmt.Errorf("the items in %s have more bytes than the file", p.file)
	}
	return d.Checkpoint.load(p.file, io.NewSectionReader(f, p.offset, p.length), p.length)
}

// item returns a tensor or another value.
func (d *folder) item(fqn string, v any) (any, error) {
	x, ok := v.(*Object)
	if !ok || x.Class.Module != metadata {
		return nil, fmt.Errorf("%s where the metadata of a tensor or of bytes should be", kindOf(v))
	}
	if x.Class.Name == "BytesStorageMetadata" {
		return d.load(fqn, nil)
	}
	t, err := d.tensor(v)
	if err != nil {
		return nil, err
	}
	list, err := field(v, "TensorStorageMetadata", "chunks")
	if err != nil {
		return nil, err
	}
	chunks, _ := items(list)
	left := t.n
	for _, x := range chunks {
		c, err := d.chunk(fqn, x, t)
		if err != nil {
			return nil, err
		}
		n, err := product(c.size)
		if err != nil {
			return nil, err
		}
		left -= n
		t.chunks = append(t.chunks, c)
	}
	if left != 0 {
		return nil, fmt.Errorf("the chunks have %d elements, the shape %v has %d", t.n-left, t.Shape, t.n)
	}
	return t, nil
}

// tensor returns a tensor without chunks, from its TensorStorageMetadata.
func (d *folder) tensor(v any) (*Tensor, error) {
	p, err := field(v, "TensorStorageMetadata", "properties")
	if err != nil {
		return nil, err
	}
	props, _ := p.(*Object)
	if props == nil || props.Class.Name != "TensorProperties" {
		return nil, fmt.Errorf("%s where TensorProperties should be", kindOf(p))
	}
	var dtype any
	switch state := props.State.(type) {
	case Tuple:
		if len(state) > 0 {
			dtype = state[0]
		}
	case *Dict:
		dtype = state.Get("dtype")
	}
	name, _ := dtype.(Name)
	if name.Module != "torch" || types[name.Name] == "" {
		return nil, fmt.Errorf("the dtype is %s", kindOf(dtype))
	}
	size, err := field(v, "TensorStorageMetadata", "size")
	if err != nil {
		return nil, err
	}
	if err := d.budget.Take(tensorBytes + 8*maxDims); err != nil {
		return nil, err
	}
	t := &Tensor{DType: types[name.Name]}
	if t.Shape, err = ints(size); err != nil {
		return nil, err
	}
	t.n, err = product(t.Shape)
	return t, err
}

// chunk reads one ChunkStorageMetadata of t, and compares it with the stored tensor.
func (d *folder) chunk(fqn string, v any, t *Tensor) (*chunk, error) {
	get := func(name string) ([]int, error) {
		x, err := field(v, "ChunkStorageMetadata", name)
		if err != nil {
			return nil, err
		}
		return ints(x)
	}
	offset, err1 := get("offsets")
	size, err2 := get("sizes")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if len(offset) != len(t.Shape) || len(size) != len(t.Shape) {
		return nil, fmt.Errorf("a chunk at %v of %v in the shape %v", offset, size, t.Shape)
	}
	for i, n := range t.Shape {
		if size[i] > n || offset[i] > n-size[i] {
			return nil, fmt.Errorf("the chunk at %v of %v leads out of the shape %v", offset, size, t.Shape)
		}
	}
	x, err := d.load(fqn, offset)
	if err != nil {
		return nil, err
	}
	stored, ok := x.(*Tensor)
	if !ok {
		return nil, fmt.Errorf("%s where a tensor should be", kindOf(x))
	}
	if stored.DType != t.DType || !slices.Equal(stored.Shape, size) {
		return nil, fmt.Errorf("the chunk at %v is %s%v in its file, and %s%v in %s",
			offset, stored.DType, stored.Shape, t.DType, size, metadataFile)
	}
	c := stored.chunks[0]
	c.offset = offset
	return c, nil
}

// put stores a value in nested dicts.
func put(root *Dict, path []any, value any) error {
	if len(path) == 0 || len(path) > maxDepth {
		return fmt.Errorf("a path of %d names", len(path))
	}
	for _, key := range path[:len(path)-1] {
		next, ok := root.Get(key).(*Dict)
		if !ok {
			if root.Has(key) {
				return fmt.Errorf("%s is both a value and a folder of values", bounded.Plain(keyText(key)))
			}
			next = &Dict{}
			if err := root.set(key, next); err != nil {
				return err
			}
		}
		root = next
	}
	key := path[len(path)-1]
	if root.Has(key) {
		return fmt.Errorf("the path is there twice")
	}
	return root.set(key, value)
}
