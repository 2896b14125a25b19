package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/trace"
)

// kind is what kernels of a step are grouped by: the operation and the number of elements of its result.
type kind struct {
	name  string
	elems int64
}

// printKernels prints the time per step in each kind of kernel of the tape (not the optimizer's), the longest first. It counts only whole
// steps, as many as fit into the recorder.
func (t *trainer) printKernels(w io.Writer) {
	spans, steps, end := t.r.Trace.Spans(), 0, int64(0)
	for _, s := range spans {
		if s.Track == trace.Steps && s.Name == trace.StepName {
			steps, end = steps+1, s.End
		}
	}
	total, calls := map[kind]time.Duration{}, map[kind]int{}
	for _, s := range spans {
		if s.Start >= end || s.Track != trace.Compute && s.Track != trace.Comm {
			continue
		}
		k := kind{s.Name, s.Arg}
		if s.Track == trace.Comm {
			k.name = "issue to end of " + s.Name
		}
		total[k] += time.Duration(s.End - s.Start)
		calls[k]++
	}
	kinds := slices.SortedFunc(maps.Keys(total), func(a, b kind) int { return cmp.Compare(total[b], total[a]) })
	for _, k := range kinds {
		fmt.Fprintf(w, "%9.1f µs  %5.1f calls  %s of %d\n", float64(total[k].Nanoseconds())/1e3/float64(steps),
			float64(calls[k])/float64(steps), k.name, k.elems)
	}
}
