package dist

import (
	"io"

	"github.com/ringo-ml/ringo/internal/trace"
)

// WriteTrace gathers what all ranks recorded (see Config.Trace) and writes it to w on rank 0, in the Trace Event format
// that Perfetto and chrome://tracing open: a process per rank, with a track for computation and one for communication.
// It is collective; other ranks may give nil.
func (r *Rank) WriteTrace(w io.Writer) error {
	type recorded struct {
		Spans   []trace.Span
		Dropped int
	}
	all, err := AllGatherObject(r.World, recorded{r.Trace.Spans(), r.Trace.Dropped()})
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
	return trace.Write(w, ranks)
}
