package dist

import (
	"io"
	"os"

	"github.com/ringo-ml/ringo/internal/timeline"
)

// WriteTrace gathers what all ranks recorded (see Config.Trace), on one clock, and writes it to w on rank 0. The format is the Trace
// Event format of Perfetto and chrome://tracing: a process per rank, with tracks for steps and their phases, computation, communication,
// and waiting for it. It is collective; other ranks may give nil.
func (r *Rank) WriteTrace(w io.Writer) error {
	all, err := AllGatherObject(r.World, r.recorded())
	if err != nil || r.World.Rank() != 0 {
		return err
	}
	for _, x := range all {
		if x.Dropped > 0 {
			r.Logf("trace: the last %d spans of rank %d did not fit", x.Dropped, x.Rank)
		}
	}
	for _, c := range timeline.Align(all) {
		if c.Add != 0 || c.Within != 0 {
			r.Logf("trace: added to the clock of %v", c)
		}
	}
	return timeline.Write(w, all)
}

// WriteOwnTrace writes what this rank recorded to w. `ringo trace merge` joins such files of several ranks.
func (r *Rank) WriteOwnTrace(w io.Writer) error {
	return timeline.Write(w, []timeline.Rank{r.recorded()})
}

func (r *Rank) recorded() timeline.Rank {
	host, _ := os.Hostname() // ranks without a host name count as one host
	return timeline.Of(r.World.Rank(), host, r.Trace)
}
