package data

import "fmt"

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
		fmt.Sprintf("Shuffle %v", c.Shuffle), fmt.Sprintf("Seed %d", c.Seed), fmt.Sprintf("epoch %d, step %d", l.epoch, l.step),
	})
}
