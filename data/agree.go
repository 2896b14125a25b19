package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// summer is a Sharder whose ranks can compare: a group of package dist.
type summer interface {
	SumFloats(x []float64) error
}

// agree returns an error on all ranks, before their first batch, unless they cut the same batches. With another order of the samples, some
// would be trained on twice, and others never, and nobody would notice.
func (l *Loader) agree() error {
	g, ok := l.cfg.Sharder.(summer)
	if l.agreed || !ok || l.cfg.Sharder.Size() == 1 {
		return nil
	}
	l.agreed = true
	c := l.cfg
	lines := []string{
		fmt.Sprintf("a dataset of %d samples", l.n), fmt.Sprintf("Batch %d", c.Batch), fmt.Sprintf("Shuffle %v", c.Shuffle),
		fmt.Sprintf("DropLast %v", c.DropLast), fmt.Sprintf("Seed %d", c.Seed), fmt.Sprintf("epoch %d, step %d", l.epoch, l.step),
	}
	sums := make([]float64, len(lines))
	for i, line := range lines {
		sums[i] = key(line)
	}
	if err := g.SumFloats(sums); err != nil {
		return err
	}
	for i, line := range lines {
		if sums[i] != float64(c.Sharder.Size())*key(line) {
			return errorf("ranks that share batches have different loaders: rank %d of %d has %s, and not all have", c.Sharder.Rank(), c.Sharder.Size(), line)
		}
	}
	return nil
}

// key is a hash that float64 adds up exactly.
func key(line string) float64 { return float64(uint32(tensor.HashName(line))) }
