package cp

import (
	"fmt"
	"hash/crc64"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// agree compares the first two tensors of Part, which are input and labels: parts of different batches would be joined to sequences that
// nobody has, without a sign. Values on a device are not compared: that would wait for it.
func (u *Ulysses) agree(x tensor.Tensor) {
	if u.parts == 2 || u.Group.Size() == 1 {
		return
	}
	mine := fmt.Sprintf("%v, rows %d of %d", x.Shape(), x.Rows().First, x.Rows().Total)
	if x.Device().Host() {
		mine += fmt.Sprintf(", with the checksum %016x", crc64.Checksum(x.Bytes(), crc64.MakeTable(crc64.ECMA)))
	}
	g := u.Group.With(dist.Name("cp-checks"))
	all, err := dist.AllGatherObject(g, mine)
	if err != nil {
		panic(&tensor.Failure{Op: "cp.Ulysses.Part", Err: err})
	}
	for rank, other := range all {
		if other != all[0] {
			fail("Ulysses.Part", "ranks that divide sequences need the same batch: rank %d of %d has %s, "+
				"rank 0 %s (give the loader the group of the ranks with other rows)",
				rank, len(all), other, all[0])
		}
	}
	u.parts++
}
