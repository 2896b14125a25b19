package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
)

// Difference is the result of Diff.
type Difference struct {
	Same      bool         `json:"same"`
	Steps     [2]int       `json:"steps"`
	OnlyA     []string     `json:"only_a"`    // names
	OnlyB     []string     `json:"only_b"`    //
	Structure []string     `json:"structure"` // tensors whose shape or type differs
	Tensors   []TensorDiff `json:"tensors"`   // same shape, other values; the largest difference first
}

// TensorDiff says how the values of a tensor differ.
type TensorDiff struct {
	Name     string  `json:"name"`
	Elements int64   `json:"elements"` // number that differ
	Of       int64   `json:"of"`
	Max      float64 `json:"max"` // largest absolute difference; math.MaxFloat64 if it is not finite
	A        string  `json:"a"`   // the values at Max; text, because JSON has no NaN
	B        string  `json:"b"`
}

// Diff compares two checkpoints (any that Load reads). It compares names, shapes and types first, then the values of
// all tensors that both checkpoints have in the same shape. Same means that names, shapes, types and bits of all
// tensors are equal. progress is as in VerifyConfig.
func Diff(ctx context.Context, a, b string, progress func(done, total int64)) (*Difference, error) {
	d := &Difference{OnlyA: []string{}, OnlyB: []string{}, Structure: []string{}}
	if err := d.compare(ctx, a, b, progress); err != nil {
		return nil, fmt.Errorf("ckpt: %w", err)
	}
	d.Same = len(d.OnlyA)+len(d.OnlyB)+len(d.Structure)+len(d.Tensors) == 0
	return d, nil
}

func (d *Difference) compare(ctx context.Context, a, b string, progress func(done, total int64)) error {
	srcA, err := storage.Open(disk.OS{}, a)
	if err != nil {
		return err
	}
	defer srcA.Close() // opened for reading only
	srcB, err := storage.Open(disk.OS{}, b)
	if err != nil {
		return err
	}
	defer srcB.Close() // opened for reading only
	d.Steps = [2]int{srcA.Step(), srcB.Step()}
	pairs, total := d.pair(srcA, srcB)
	done := counter{total: total, report: progress}
	d.Tensors = make([]TensorDiff, len(pairs))
	err = storage.Parallel(len(pairs), func(i int) (err error) {
		d.Tensors[i], err = diffTensor(ctx, pairs[i][0], pairs[i][1], done.add)
		return err
	})
	d.Tensors = slices.DeleteFunc(d.Tensors, func(t TensorDiff) bool { return t.Elements == 0 })
	slices.SortStableFunc(d.Tensors, func(x, y TensorDiff) int { return cmp.Compare(y.Max, x.Max) })
	return err
}

// pair returns the tensors to compare and their size in bytes, and records which names, shapes and types differ.
func (d *Difference) pair(a, b *storage.Reader) (pairs [][2]*storage.Tensor, total int64) {
	for _, key := range slices.Sorted(maps.Keys(a.Tensors)) {
		x, y := a.Tensors[key], b.Tensors[key]
		if y == nil {
			d.OnlyA = append(d.OnlyA, key)
			continue
		}
		if x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) {
			d.Structure = append(d.Structure, fmt.Sprintf("%s: %s%v and %s%v", key, x.DType, x.Shape, y.DType, y.Shape))
		}
		if slices.Equal(x.Shape, y.Shape) {
			pairs = append(pairs, [2]*storage.Tensor{x, y})
			total += x.End - x.Start
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b.Tensors)) {
		if a.Tensors[key] == nil {
			d.OnlyB = append(d.OnlyB, key)
		}
	}
	return pairs, total
}

// diffTensor compares two tensors of one shape, chunk by chunk.
func diffTensor(ctx context.Context, x, y *storage.Tensor, progress func(n int)) (TensorDiff, error) {
	t := TensorDiff{Name: storage.ItemKey(x.Model, x.Name), Of: int64(shard.Product(x.Shape))}
	sizeX, sizeY := x.ElementSize(), y.ElementSize()
	if x.DType == y.DType {
		sizeX, sizeY = 1, 1 // by bytes, because an element may have less than one
	}
	buf := storage.Buffers.Get().(*[]byte)
	defer storage.Buffers.Put(buf)
	var va, vb []float64
	at := int64(0) // elements or bytes done
	err := x.Stream(ctx, shard.WholePart(x.Shape), func(a []byte) error {
		progress(len(a))
		if sizeX == 0 || sizeY == 0 {
			return errNotComparable
		}
		for len(a) > 0 {
			n := min(len(a)/sizeX, len(*buf)/sizeY)
			b := (*buf)[:n*sizeY]
			if k, err := y.File.Content.ReadAt(b, y.Offset+at*int64(sizeY)); k < len(b) {
				return y.Failed(err)
			}
			if x.DType != y.DType || !bytes.Equal(a[:n], b) {
				if err := t.add(x.DType, a[:n*sizeX], y.DType, b, &va, &vb); err != nil {
					return err
				}
			}
			a, at = a[n*sizeX:], at+int64(n)
		}
		return nil
	})
	if errors.Is(err, errNotComparable) {
		t.Elements, t.Max = t.Of, math.MaxFloat64
		err = nil
	}
	return t, err
}

var errNotComparable = errors.New("values of this type cannot be compared")

// add compares the elements in a (of type da) with those in b (of type db). va and vb are buffers.
func (t *TensorDiff) add(da safetensors.DType, a []byte, db safetensors.DType, b []byte, va, vb *[]float64) error {
	var okA, okB bool
	*va, okA = decode(da, a, *va)
	*vb, okB = decode(db, b, *vb)
	if !okA || !okB {
		return errNotComparable
	}
	size := da.Bits() / 8
	for i, u := range *va {
		w := (*vb)[i]
		same := u == w || math.IsNaN(u) && math.IsNaN(w)
		if da == db {
			same = bytes.Equal(a[i*size:(i+1)*size], b[i*size:(i+1)*size])
		}
		if same {
			continue
		}
		t.Elements++
		dist := math.Abs(u - w)
		if math.IsNaN(dist) || math.IsInf(dist, 0) {
			dist = math.MaxFloat64
		}
		if dist > t.Max || t.Elements == 1 {
			t.Max, t.A, t.B = dist, fmt.Sprintf("%.9g", u), fmt.Sprintf("%.9g", w)
		}
	}
	return nil
}

// String is a summary for people.
func (d *Difference) String() string {
	var b strings.Builder
	for _, x := range d.OnlyA {
		fmt.Fprintf(&b, "only in A: %s\n", x)
	}
	for _, x := range d.OnlyB {
		fmt.Fprintf(&b, "only in B: %s\n", x)
	}
	for _, x := range d.Structure {
		fmt.Fprintf(&b, "structure: %s\n", x)
	}
	for _, t := range d.Tensors {
		fmt.Fprintf(&b, "%s: %d of %d elements differ, by %.6g at most (%s and %s)\n", t.Name, t.Elements, t.Of, t.Max, t.A, t.B)
	}
	if d.Same {
		fmt.Fprintf(&b, "no difference\n")
	}
	return b.String()
}
