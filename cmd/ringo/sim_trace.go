package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/dist/sim/training"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/timeline"
)

// replayReport is what `ringo sim -trace` prints.
type replayReport struct {
	Topology *sim.Topology      `json:"topology"`
	LeftOut  int                `json:"left_out"` // exchanges at the end that not all ranks recorded
	Late     *training.Replayed `json:"late"`     // what nobody waited for is needed when its step ends
	Soon     *training.Replayed `json:"soon"`     // as soon as it was over in the recording
}

// replay is Run with -trace.
func (c *simCmd) replay() error {
	if c.Op != nil || c.Ranks != nil || c.Bytes != nil || c.Algo != "" || c.Plot != "" {
		return usageOf("sim", "-trace has operations, ranks and bytes: -op, -algo, -ranks, -bytes and -plot are for simulations without it")
	}
	top, err := sim.Open(c.Topo)
	if err != nil {
		return usageOf("sim", "-topo: %v", err)
	}
	ranks, _, err := readTimelines(split(c.Trace))
	if err != nil {
		return usageOf("sim", "-trace: %v", err)
	}
	report := &replayReport{Topology: top}
	for soon, to := range map[bool]**training.Replayed{false: &report.Late, true: &report.Soon} {
		rec, err := timeline.Record(ranks, soon)
		if err == nil {
			report.LeftOut = rec.LeftOut
			*to, err = training.Replay(top, rec)
		}
		if err != nil {
			return usageOf("sim", "-trace %s: %v", c.Trace, err)
		}
	}
	if c.JSON {
		return printJSON(report)
	}
	out := bufio.NewWriter(os.Stdout)
	report.write(out, len(ranks))
	return out.Flush()
}

func (r *replayReport) write(out io.Writer, ranks int) {
	x := r.Late
	fmt.Fprintf(out, "step %d of %s on %s, the median one of %d: %v, of which a rank waits %v\n", x.Step, viz.Counted(ranks, "rank"),
		r.Topology.Name, x.Steps, x.Time, x.Exposed)
	if r.Soon.Time != x.Time {
		fmt.Fprintf(out, "or up to %v, %v: if what nobody waited for was needed as soon as it was over in the recording\n", r.Soon.Time,
			r.Soon.Exposed)
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(out, "left out: %s at the end, which not all ranks recorded\n", viz.Counted(r.LeftOut, "operation"))
	}
	fmt.Fprintf(out, "%-40s  %5s  %12s  %12s  %12s\n", "operation", "calls", "bytes", "in flight", "exposed")
	for _, e := range x.Ops {
		fmt.Fprintf(out, "%-40s  %5d  %12d  %12v  %12v\n", bounded.Plain(e.Op+" of "+e.Group), e.Calls, e.Bytes, e.Flight,
			e.Exposed/sim.Time(ranks))
	}
}
