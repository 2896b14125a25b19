package data

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/where"
	"github.com/ringo-ml/ringo/tensor"
)

// callDataset calls Dataset.Batch. It returns a panic as an error.
func (l *Loader) callDataset(epoch int, idx []int, x, y tensor.Tensor) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	return batchAt(l.ds, epoch, idx, x, y)
}

// findBadSample finds the sample that made a batch fail: the first one that fails alone. It stops when the loop has ended.
func (l *Loader) findBadSample(epoch int, idx []int, v *view, err error, stop chan struct{}) error {
	sx, sy := l.ds.Shapes()
	x, y := firstRows(v.x, sx, 1), firstRows(v.y, sy, 1)
	for k, i := range idx {
		select {
		case <-stop:
			return fmt.Errorf("%v: %w", nameOf(l.ds), err)
		default:
		}
		if one := l.callDataset(epoch, idx[k:k+1:k+1], x, y); one != nil {
			return fmt.Errorf("%v, sample %d: %w", nameOf(l.ds), i, one)
		}
	}
	few := idx[:min(len(idx), 8)]
	return fmt.Errorf("%v, a batch of %d samples, the first %v, of which none fails alone: %w", nameOf(l.ds), len(idx), few, err)
}

// nameOf returns the dataset's String or, if it has none, its type.
func nameOf(ds Dataset) string {
	if s, ok := ds.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", ds)
}

// panicked makes an error from a panic in the dataset's code. It has the line of a Failure; for other panics it has the stack, because
// another goroutine than the loop's runs the code.
func panicked(r any) error {
	err, ok := r.(error)
	if f, failed := errors.AsType[*tensor.Failure](err); failed {
		if f.At == "" {
			f.At = where.Panic()
		}
		return fmt.Errorf("Dataset.Batch: %w", err)
	}
	if !ok {
		err = fmt.Errorf("%v", r)
	}
	return fmt.Errorf("Dataset.Batch panicked: %w\n%s", err, where.Stack())
}
