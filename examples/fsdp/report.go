package main

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// kinds are the columns of the table. Other memory (batches, and the workspace of kernels) is not planned.
var kinds = []memory.Use{memory.Parameters, memory.Gradients, memory.OptimizerState, memory.Activations, memory.Gathered,
	memory.Communication}

func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.String())
	}
	return names
}

// result holds the results of training.
type result struct {
	first, last float64 // loss
	sent        int     // bytes of the last step, by all ranks
	peaks       [][]int // peak bytes of each kind, by rank
}

// peaksOf returns the peak bytes of each kind on each rank.
func peaksOf(r *dist.Rank) ([][]int, error) {
	mine := make([]int, len(kinds))
	for i, k := range kinds {
		mine[i] = r.Device.Memory().Of(k).Peak
	}
	return dist.AllGatherObject(r.World, mine)
}

// most returns, for each kind, the bytes of the rank that has the most.
func (res *result) most() []int {
	most := make([]int, len(kinds))
	for _, peaks := range res.peaks {
		for i := range most {
			most[i] = max(most[i], peaks[i])
		}
	}
	return most
}

// report prints a line with the result, and one with the plan.
func (res *result) report(r *dist.Rank, stage int, p *plan.Plan) {
	name := "ddp"
	if stage > 0 {
		name = fmt.Sprint("stage ", stage)
	}
	most, planned := res.most(), make([]int, len(kinds))
	for i, k := range kinds {
		planned[i] = p.Of(k)
	}
	r.Logf("%-7s %6.3f %6.3f%s", name, res.first, res.last, columns(inKiB(most...), inKiB(sum(most))[0], inKiB(res.sent)[0]))
	r.Logf("  plan%15s%s", "", columns(inKiB(planned...), inKiB(p.Total)[0], inKiB(p.Sent)[0]))
}

func sum(x []int) (n int) {
	for _, v := range x {
		n += v
	}
	return n
}

func inKiB(bytes ...int) (out []string) {
	for _, n := range bytes {
		out = append(out, fmt.Sprintf("%.1f", float64(n)/1024))
	}
	return out
}

// columns formats the kinds of memory, their total, and the bytes sent.
func columns(kinds []string, total, sent string) string {
	var b strings.Builder
	for _, s := range kinds {
		fmt.Fprintf(&b, "%14s", s)
	}
	fmt.Fprintf(&b, "%9s%9s", total, sent)
	return b.String()
}
