package dist

import (
	"fmt"
	"os"

	"github.com/ringo-ml/ringo/internal/trace"
)

// WriteTrace writes the spans that all ranks recorded (see Config.Trace) to a file that Perfetto and chrome://tracing
// open: a process per rank, with a track for computation and one for communication. It is collective; rank 0 writes.
func (r *Rank) WriteTrace(path string) error {
	type spans struct {
		Spans   []trace.Span
		Dropped int
	}
	all, err := AllGatherObject(r.World, spans{r.Trace.Spans(), r.Trace.Dropped()})
	if err != nil || r.World.Rank() != 0 {
		return err
	}
	ranks := make([][]trace.Span, len(all))
	for i, s := range all {
		ranks[i] = s.Spans
		if s.Dropped > 0 {
			r.Logf("trace: the last %d spans of rank %d did not fit", s.Dropped, i)
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := trace.Write(f, ranks); err != nil {
		f.Close()
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return f.Close()
}
