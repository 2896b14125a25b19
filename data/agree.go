package data

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"log/slog"
)

// agreer is a Sharder whose ranks can compare lines: a group of package dist.
type agreer interface {
	Agree(what string, lines []string) error
}

// agree returns an error on all ranks, before their first batch, unless they cut the same batches. With another order of the samples, some
// would be trained on twice, and others never, and nobody would notice.
func (l *Loader) agree() error {
	g, ok := l.cfg.Sharder.(agreer)
	if l.agreed || !ok || l.cfg.Sharder.Size() == 1 {
		return nil
	}
	l.agreed = true
	c := l.cfg
	return g.Agree("data: loaders", []string{
		fmt.Sprintf("a dataset of %d samples", l.n), fmt.Sprintf("Batch %d", c.Batch), fmt.Sprintf("Group %d", c.Group),
		fmt.Sprintf("DropLast %v", c.DropLast),
		l.contents(),
		fmt.Sprintf("Shuffle %v", c.Shuffle), fmt.Sprintf("Seed %d", c.Seed), fmt.Sprintf("epoch %d, step %d", l.epoch, l.step),
	})
}

// readings is how often a rank reads a sample to see whether it is always the same. Images that are turned by chance are not, and seem to
// be only on one rank of hundreds.
const readings = 8

// contents describes the first and the last sample. It is "", which is equal to all, where a rank cannot say: they are other ones each
// time, or only zeros, or errors, or there is no memory for them.
func (l *Loader) contents() string {
	v := &l.slots[0].views[full] // no batch is in it yet
	if v.Rows == 0 {
		return ""
	}
	first, ok := l.checksum(v)
	for range readings - 1 {
		again, known := l.checksum(v)
		if ok && known && again != first && l.cfg.Sharder.Rank() == 0 {
			slog.Warn("data: samples are other ones each time they are read, as with random augmentation: ranks draw other numbers than one rank, " +
				"or all draw the same; let them depend on the epoch and the sample's number, rand.NewPCG(epoch, uint64(idx[i]))")
		}
		if !ok || !known || again != first {
			return ""
		}
	}
	return fmt.Sprintf("first and last samples of checksum %08x", first)
}

// checksum reads the first and the last sample into v.
func (l *Loader) checksum(v *view) (sum uint32, ok bool) {
	sx, sy := l.ds.Shapes()
	x, y := firstRows(v.x, sx, 1), firstRows(v.y, sy, 1)
	for _, i := range []int{0, l.n - 1} {
		if l.callDataset([]int{i}, x, y) != nil {
			return 0, false
		}
		ok = ok || len(bytes.Trim(x.Bytes(), "\x00")) > 0
		sum = crc32.Update(crc32.Update(sum, crc32.IEEETable, x.Bytes()), crc32.IEEETable, y.Bytes())
	}
	return sum, ok
}
