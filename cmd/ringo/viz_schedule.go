package main

import (
	"os"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/pp"
)

// vizCmds are `ringo viz` of a collective, of a schedule, and of buckets.
type vizCmds struct {
	Collective vizCmd      `cmd:"" default:"withargs" help:"Draw the messages of a collective."`
	Schedule   scheduleCmd `cmd:"" help:"Draw a schedule of pipeline parallelism."`
	DDP        ddpCmd      `cmd:"" name:"ddp" help:"Draw what the buckets of ddp hide."`
}

// scheduleCmd is `ringo viz schedule`.
type scheduleCmd struct {
	Name         string `arg:"" help:"The schedule, such as 1f1b, or a CSV file."`
	Stages       int    `default:"4" placeholder:"N" help:"Number of ranks; each has a stage, or several; 4 if absent."`
	Microbatches int    `default:"8" placeholder:"M" help:"Number of microbatches; 8 if absent."`
	Chunks       int    `default:"2" placeholder:"C" help:"Stages of each rank, for interleaved; 2 if absent."`
	CSV          string `placeholder:"FILE" help:"Also write the list of actions."`
	Out          string `short:"o" required:"" placeholder:"FILE" help:"The SVG file to write."`
}

// Help is the text below the flags of `ringo viz schedule -h`.
func (*scheduleCmd) Help() string {
	return `Draws who computes what when, if a forward pass (F), the gradients of activations (I) and those of weights (W) take equally long.
Nothing is run. B is I and W in one. A darker box is of a rank's second stage, or of a later one.

  ringo viz schedule 1f1b -stages 4 -microbatches 8 -o 1f1b.svg
  ringo viz schedule zbv -stages 4 -microbatches 8 -csv zbv.csv -o zbv.svg
  ringo viz schedule my.csv -o my.svg

Schedules: ` + strings.Join(pp.Names(), ", ") + `. A CSV file, as
torchtitan's, has a line for each rank, with actions such as 3F7: stage 3, microbatch 7. An error says what is wrong with it, and who would wait for whom.`
}

// maxUnits is the longest time in a picture: more cannot be read.
const maxUnits = 400

// Run writes the picture.
func (c *scheduleCmd) Run() error {
	s, err := c.schedule()
	if err != nil {
		return err
	}
	rep, err := s.Check(unitCosts, pp.Limit{})
	switch {
	case err != nil:
		return err
	case rep.Time > maxUnits || len(s.Actions) > vizRanks:
		return usageOf("viz schedule", "%d ranks, and %v units of time: a picture has at most %d and %d", len(s.Actions), rep.Time, vizRanks,
			maxUnits)
	}
	if c.CSV != "" {
		var text strings.Builder
		if err := s.WriteCSV(&text); err != nil {
			return err
		}
		if err := os.WriteFile(c.CSV, []byte(text.String()), 0o666); err != nil {
			return err
		}
	}
	return os.WriteFile(c.Out, []byte(viz.Schedule(s, rep)), 0o666)
}

func (c *scheduleCmd) schedule() (*pp.Schedule, error) {
	switch {
	case !strings.HasSuffix(c.Out, ".svg"):
		return nil, usageOf("viz schedule", "-o %s: the name must end in .svg", c.Out)
	case strings.HasSuffix(c.Name, ".csv"):
		f, _, err := bounded.Open(c.Name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return pp.ReadCSV(c.Name, f)
	case !slices.Contains(pp.Names(), c.Name):
		return nil, usageOf("viz schedule", "%q is no schedule; there are a file .csv and: %s", c.Name, strings.Join(pp.Names(), ", "))
	case min(c.Stages, c.Microbatches, c.Chunks) < 1 || max(c.Stages, c.Microbatches, c.Chunks) > maxUnits:
		return nil, usageOf("viz schedule", "-stages %d, -microbatches %d, -chunks %d: want 1 to %d of each", c.Stages, c.Microbatches, c.Chunks,
			maxUnits)
	}
	return pp.ByName(c.Name, c.Stages, c.Chunks, c.Microbatches)
}

var unitCosts = pp.Costs{F: 1, I: 1, W: 1}
