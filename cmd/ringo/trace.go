package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/timeline"
)

// traceCmd is `ringo trace`.
type traceCmd struct {
	Merge   traceMergeCmd   `cmd:"" help:"Join the timelines of several ranks, on one clock."`
	Summary traceSummaryCmd `cmd:"" help:"Say what the time went into, and which rank was late."`
}

// Help is the text below the flags of `ringo trace -h`.
func (*traceCmd) Help() string {
	return `A timeline is what a training with -trace FILE writes: all ranks in one file, or with %r in its name a file for each rank.

  ringo run -n 2 ./examples/ddp-mnist -epochs 1 -trace 'trace-%r.json'
  ringo trace merge -o trace.json trace-*.json     # open it with ui.perfetto.dev
  ringo trace summary trace-*.json

Several files are put on one clock. Clocks of hosts differ; communication tells by how much: no collective ends on a rank before all have begun it,
and no message arrives before it is sent. So a collective bounds the difference of two clocks from both sides, and a message from one side. Of what
all bounds leave, the middle is taken. How far it may be wrong is printed: not more than what the fastest collective took on both ranks together.
Ranks of one host share its clock. A clock that runs faster than another one by 10 µs a second adds an error of that much for each second.`
}

type traceMergeCmd struct {
	Out   string   `short:"o" required:"" placeholder:"FILE" help:"The file to write."`
	Files []string `arg:"" help:"The timelines to join."`
}

// Run writes the file.
func (c *traceMergeCmd) Run() error {
	ranks, clocks, err := readTimelines(c.Files)
	if err != nil {
		return err
	}
	f, err := os.Create(c.Out)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(timeline.Write(w, ranks), w.Flush(), f.Close()); err != nil {
		return err
	}
	fmt.Printf("%s: %s; added to clocks:\n", c.Out, viz.Counted(len(ranks), "rank"))
	for _, clock := range clocks {
		fmt.Printf("  %v\n", clock)
	}
	return nil
}

type traceSummaryCmd struct {
	Files []string `arg:"" help:"One timeline, or those of several ranks."`
}

// Help is the text below the flags of `ringo trace summary -h`.
func (*traceSummaryCmd) Help() string {
	return `Prints the phases of steps, the operations that took longest, and communication: how long it was in flight, how long ranks waited for it
(exposed), and which rank came last to collectives of groups whose members are all there. A rank that often comes last, by much, is what the
others wait for: look at its phases. Times of a GPU's kernels are those of their launch.`
}

// Run prints the summary.
func (c *traceSummaryCmd) Run() error {
	ranks, clocks, err := readTimelines(c.Files)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(os.Stdout)
	timeline.Summarize(w, ranks, clocks)
	return w.Flush()
}

// readTimelines returns the ranks of several files, on one clock.
func readTimelines(names []string) ([]timeline.Rank, []timeline.Clock, error) {
	var all [][]timeline.Rank
	for _, name := range names {
		f, _, err := bounded.Open(name)
		if err != nil {
			return nil, nil, err
		}
		ranks, err := timeline.Read(bufio.NewReader(f))
		_ = f.Close() // the file was only read
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, ranks)
	}
	ranks, err := timeline.Join(all...)
	if err != nil {
		return nil, nil, err
	}
	return ranks, timeline.Align(ranks), nil
}
