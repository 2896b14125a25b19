package tp

import (
	"hash/crc64"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// seen is what ranks that divide layers must have alike, and no type says.
type seen struct {
	Labels uint64
	Rows   tensor.Rows
	Tape   tensor.TapeState
}

// agree compares what the ranks are given, in the first of every 1000 calls: gradients of ranks with other labels, or other random numbers,
// would be wrong without a sign. Labels on a device are not compared: that would wait for it.
func (f *CrossEntropy) agree(t *tensor.Tape, labels nn.T) {
	if f.calls++; f.group.Size() == 1 || f.calls%1000 != 1 || t.Recording() != nil {
		return
	}
	mine := seen{Rows: t.Rows(), Tape: t.State()}
	if labels.Device().Host() {
		mine.Labels = crc64.Checksum(labels.Bytes(), crc64.MakeTable(crc64.ECMA))
	}
	all, err := dist.AllGatherObject(f.checks, mine)
	if err != nil {
		panic(&tensor.Failure{Op: f.Name(), Err: err})
	}
	const same = "ranks that divide layers need the same %s: rank %d of %d has others than rank 0"
	for rank, s := range all {
		switch {
		case s.Labels != all[0].Labels:
			fail("CrossEntropy", same+" (give the loader the group of the ranks with other rows)", "batch", rank, len(all))
		case s.Rows != all[0].Rows:
			fail("CrossEntropy", same+": %+v and %+v", "rows of the batch", rank, len(all), s.Rows, all[0].Rows)
		case s.Tape != all[0].Tape:
			fail("CrossEntropy", same+": %+v and %+v", "seed and step of the tape", rank, len(all), s.Tape, all[0].Tape)
		}
	}
}
