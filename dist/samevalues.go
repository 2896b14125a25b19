package dist

import (
	"fmt"
	"hash/crc32"

	"github.com/ringo-ml/ringo/internal/ranks"
	"github.com/ringo-ml/ringo/tensor"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SameValues compares tensors that must be the same on all ranks of g, by a checksum of each one. names are their names, in the same
// order on all ranks. It is collective, and all ranks return the same error. It begins with what, and names the first tensor that differs
// and the ranks where it does. Tensors in device memory are copied to the host, one at a time.
func SameValues(g *Group, what string, names []string, tensors []tensor.Tensor) error {
	if g.Size() == 1 || len(tensors) == 0 {
		return nil
	}
	sums := make([]int32, len(tensors))
	for i, x := range tensors {
		sums[i] = int32(crc32.Checksum(tensor.ToHost(x).Bytes(), castagnoli))
	}
	all := make([]int32, len(sums)*g.Size())
	if err := g.AllGather(tensor.FromSlice(all, len(all)), tensor.FromSlice(sums, len(sums))).Wait(); err != nil {
		return err
	}
	for i, name := range names {
		var others []int
		for r, rank := range g.ranks {
			if all[r*len(sums)+i] != all[i] {
				others = append(others, rank)
			}
		}
		if others != nil {
			return fmt.Errorf(
				"%s: %s must have the same values on all ranks of %s, and those of %s are not rank %d's: something changed it on these alone",
				what, name, g.name, ranks.Names(others...), g.ranks[0])
		}
	}
	return nil
}
