package data_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
)

// shifted adds the epoch, if there is one in its samples, to 20 numbers.
type shifted struct{ by float32 }

func (shifted) Len() int { return 20 }

func (shifted) Shapes() (x, y tensor.Shape) { return tensor.Shape{}, tensor.Shape{} }

func (s shifted) Batch(idx []int, x, y tensor.Tensor) error { return s.BatchAt(0, idx, x, y) }

func (s shifted) BatchAt(epoch int, idx []int, x, y tensor.Tensor) error {
	for row, i := range idx {
		tensor.Data[float32](x)[row] = float32(i) + float32(epoch)*s.by
		tensor.Data[float32](y)[row] = 0
	}
	return nil
}

// Users' types around a Dataset, with methods by value and by pointer.
type (
	same     struct{ *data.Subset }   // nothing of its own
	labeled  struct{ *data.Subset }   // its own Batch
	labeledP struct{ data.Augmented } // its own Batch, of a pointer
	both     struct{ shifted }        // its own Batch and BatchAt
	bothP    struct{ *data.Subset }   // the same, of a pointer
	hidden   struct{ data.Dataset }   // nothing of its own; BatchAt is not in the interface
	hiddenP  struct{ data.Dataset }   // its own Batch, of a pointer
)

func (d labeled) Batch(idx []int, x, y tensor.Tensor) error   { return d.Subset.Batch(idx, x, y) }
func (d *labeledP) Batch(idx []int, x, y tensor.Tensor) error { return d.Augmented.Batch(idx, x, y) }
func (d *hiddenP) Batch(idx []int, x, y tensor.Tensor) error  { return d.Dataset.Batch(idx, x, y) }
func (d both) Batch(idx []int, x, y tensor.Tensor) error      { return d.shifted.Batch(idx, x, y) }
func (d both) BatchAt(epoch int, idx []int, x, y tensor.Tensor) error {
	return d.shifted.BatchAt(epoch, idx, x, y)
}
func (d *bothP) Batch(idx []int, x, y tensor.Tensor) error { return d.Subset.Batch(idx, x, y) }
func (d *bothP) BatchAt(epoch int, idx []int, x, y tensor.Tensor) error {
	return d.Subset.BatchAt(epoch, idx, x, y)
}

// A Loader calls BatchAt where there is one. Where this is not the user's own method, beside a Batch that is, or where an embedded
// interface has lost it, samples would be other ones than those that the program shows.
func TestEmbeddedDatasets(t *testing.T) {
	moving, still := shifted{0.25}, shifted{}
	all := make([]int, 20)
	sub, err := data.NewSubset(moving, all)
	require.NoError(t, err)
	for _, ds := range []data.Dataset{moving, &moving, sub, same{sub}, &same{sub}, both{moving}, &both{moving}, &bothP{sub}, hidden{still},
		&hiddenP{still}, struct{ data.Augmented }{sub}} {
		require.NoError(t, tensor.Try(func() { data.NewLoader(ds, data.Config{Batch: 3}) }), "%T", ds)
	}
	const own, lost = "but its BatchAt, which a Loader calls, is that of what it embeds: write func (d D) BatchAt(", "hides BatchAt of the "
	for _, c := range []struct {
		ds   data.Dataset
		want string
	}{
		{labeled{sub}, "data_test.labeled has a Batch, " + own}, {&labeled{sub}, own}, {&labeledP{moving}, own},
		{hidden{moving}, "data_test.hidden " + lost + "data_test.shifted that it embeds as a data.Dataset"}, {&hidden{sub}, lost},
		{&hiddenP{moving}, lost},
	} {
		require.ErrorContains(t, tensor.Try(func() { data.NewLoader(c.ds, data.Config{Batch: 3}) }), c.want)
	}
}

// known has the classes 0, 1 and 2, and says them without reading.
type known struct{ n int }

func (d known) Len() int                  { return d.n }
func (known) Shapes() (x, y tensor.Shape) { return tensor.Shape{}, tensor.Shape{DType: tensor.Int64} }
func (known) Label(i int) int             { return i % 3 }
func (d known) Batch(idx []int, x, y tensor.Tensor) error {
	for row, i := range idx {
		tensor.Data[float32](x)[row], tensor.Data[int64](y)[row] = 0, int64(d.Label(i))
	}
	return nil
}

// Users' types that write other classes than what they embed, or the same.
type (
	knownToo   struct{ known }  // nothing of its own
	inBatch    struct{ *known } // its own Batch
	inBatchAt  struct{ known }  // its own BatchAt, of a pointer
	inSubset   struct{ *data.Subset }
	withLabel  struct{ known } // its own Batch and Label
	ownPointer struct{ known } // the same, of a pointer
)

func addOne(err error, y tensor.Tensor) error {
	for i := range tensor.Data[int64](y) {
		tensor.Data[int64](y)[i]++
	}
	return err
}

func (d inBatch) Batch(idx []int, x, y tensor.Tensor) error {
	return addOne(d.known.Batch(idx, x, y), y)
}
func (d *inBatchAt) BatchAt(epoch int, idx []int, x, y tensor.Tensor) error {
	return addOne(d.known.Batch(idx, x, y), y)
}
func (d inSubset) BatchAt(epoch int, idx []int, x, y tensor.Tensor) error {
	return addOne(d.Subset.Batch(idx, x, y), y)
}
func (d withLabel) Batch(idx []int, x, y tensor.Tensor) error   { panic("read") }
func (d withLabel) Label(i int) int                             { return 7 }
func (d *ownPointer) Batch(idx []int, x, y tensor.Tensor) error { panic("read") }
func (d *ownPointer) Label(i int) int                           { return 7 }

// The Label of what a type embeds is not asked where the type writes its own targets: a split and weights would be those of other classes.
func TestEmbeddedLabels(t *testing.T) {
	all := known{4}
	sub, err := data.NewSubset(all, []int{0, 1, 2, 3})
	require.NoError(t, err)
	of := func(ds data.Dataset) *data.Subset { s, _ := data.NewSubset(ds, []int{3, 2}); return s }
	for _, c := range []struct {
		ds   data.Dataset
		want []int
	}{
		{all, []int{0, 1, 2, 0}}, {&knownToo{all}, []int{0, 1, 2, 0}}, {sub, []int{0, 1, 2, 0}},
		{inBatch{&all}, []int{1, 2, 3, 1}}, {&inBatch{&all}, []int{1, 2, 3, 1}}, {&inBatchAt{all}, []int{1, 2, 3, 1}},
		{inSubset{sub}, []int{1, 2, 3, 1}}, {of(inBatch{&all}), []int{1, 3}},
		{withLabel{all}, []int{7, 7, 7, 7}}, {&withLabel{all}, []int{7, 7, 7, 7}}, {&ownPointer{all}, []int{7, 7, 7, 7}},
	} {
		labels, err := data.Labels(c.ds)
		require.NoError(t, err)
		require.Equal(t, c.want, labels, "%T", c.ds)
	}
}
