package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/curve"
	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/train/internal/values"
	"github.com/ringo-ml/ringo/train/metrics"
	"github.com/ringo-ml/ringo/train/tensorboard"
)

// Files are names of files, "" for none.
type Files struct {
	Metrics     string // of values by step
	TensorBoard string // directory of TensorBoard's event files
	Plot        string // a picture of them
	Trace       string // a timeline of all ranks; with %r, which stands for the rank, one of each
}

// Try returns an error, on all ranks of g, unless the files can be written. They stay, empty if they are new.
func (f Files) Try(g *dist.Group) error {
	_, err := dist.OnRank0(g, func() (any, error) {
		for _, x := range [][2]string{{"-metrics", f.Metrics}, {"-plot", f.Plot}, {"-trace", f.timeline(0)}} {
			if x[1] == "" {
				continue
			}
			file, err := os.OpenFile(x[1], os.O_WRONLY|os.O_CREATE, 0o666)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", x[0], err)
			}
			if err := file.Close(); err != nil {
				return nil, fmt.Errorf("%s: %w", x[0], err)
			}
		}
		return nil, nil
	})
	return err
}

// Record has t write its values to the file, behind those of the steps that are over, to a new event file, and to where RINGO_GRADS asks
// for them.
func (f Files) Record(g *dist.Group, t *values.Table) error {
	_, err := dist.OnRank0(g, func() (any, error) {
		t.To(grads.Losses{})
		if f.TensorBoard != "" {
			events, err := tensorboard.Create(f.TensorBoard)
			if err != nil {
				return nil, fmt.Errorf("-%w", err)
			}
			t.To(events)
		}
		if f.Metrics == "" {
			return nil, nil
		}
		file, err := metrics.Open(f.Metrics, t.Done)
		if err == nil {
			t.To(file)
		}
		return nil, err
	})
	return err
}

// timeline is the name of the file with a rank's timeline.
func (f Files) timeline(rank int) string {
	return strings.ReplaceAll(f.Trace, "%r", strconv.Itoa(rank))
}

// Write writes the timeline and the picture. It is collective.
func (f Files) Write(r *dist.Rank, series []*metrics.Series) error {
	err := f.writeTrace(r)
	if f.Plot == "" || r.World.Rank() > 0 {
		return err
	}
	var run curve.Run
	for _, s := range series {
		run.Series = append(run.Series, curve.Series(*s))
	}
	return errors.Join(err, curve.Draw(f.Plot, run))
}

func (f Files) writeTrace(r *dist.Rank) error {
	write, name := r.WriteTrace, f.timeline(r.World.Rank())
	switch {
	case name == "":
		return nil
	case name != f.Trace:
		write = r.WriteOwnTrace
	case r.World.Rank() > 0:
		return r.WriteTrace(nil)
	}
	file, err := os.Create(name)
	if err != nil {
		return errors.Join(err, write(io.Discard)) // the others wait for this rank
	}
	return errors.Join(write(file), file.Close())
}
