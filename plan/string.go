package plan

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// Of returns the bytes of a kind of memory.
func (p *Plan) Of(k memory.Use) int {
	n := 0
	for _, it := range p.Memory {
		if it.Kind == k {
			n += it.Bytes
		}
	}
	return n
}

// SentBy returns the bytes that all ranks together send in a step with an operation ("allgather") over axis. It is Traffic.Axis, as String
// prints it: "fsdp", but with fsdp=2,cp=2 "fsdp×cp". With experts, "fsdp" is theirs alone, and "fsdp×ep" the rest. 0: nothing is sent so.
func (p *Plan) SentBy(op, axis string) int {
	n := 0
	for _, t := range p.Traffic {
		if t.Op == op && t.Axis == axis {
			n += t.Bytes
		}
	}
	return n
}

// String returns two tables, of memory and of what is sent, with the formulas.
func (p *Plan) String() string {
	var b strings.Builder
	how := "ddp"
	if p.Stage > 0 {
		how = fmt.Sprintf("fsdp stage %d", p.Stage)
	}
	if p.Sequence {
		how += ", sequence parallel"
	}
	if p.Host > 0 {
		how += fmt.Sprintf(" on hosts of %d", p.Host)
	}
	if p.Int8 {
		how += ", values sent in int8"
	}
	if p.Int4 {
		how += ", gradients in int4"
	}
	ranks := fmt.Sprint(p.Ranks, " ranks")
	if p.Ranks == 1 {
		ranks = "1 rank"
	}
	fmt.Fprintf(&b, "%s, %s, %s, parameters in %s, gradients sent in %s\n%s\n\n", p.Layout, how, ranks, p.Params, p.Reduce,
		strings.Join(p.Legend, "\n"))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "memory of a rank\tbytes\t\tformula")
	for _, it := range p.Memory {
		fmt.Fprintf(w, "  %s\t%d\t%s\t%s\n", it.Kind, it.Bytes, memory.Format(it.Bytes), it.Formula)
	}
	fmt.Fprintf(w, "  total\t%d\t%s\n\n", p.Total, memory.Format(p.Total))
	p.writeStages(w)
	p.writeTraffic(w)
	_ = w.Flush() // writes to memory do not fail
	fmt.Fprintf(&b, "\nparameters, gradients and optimizer: %.2f bytes a parameter (ZeRO's formula: %.2f)", p.PerParam, p.ZeRO)
	return b.String()
}

func (p *Plan) writeStages(w io.Writer) {
	if len(p.Stages) == 0 {
		return
	}
	fmt.Fprintln(w, "rank of the pipeline\tlayers\tparameters\tlive\tput off\tactivations\ttotal")
	for i, s := range p.Stages {
		fmt.Fprintf(w, "  %d\t%d\t%d\t%d\t%d\t%s\t%s\n", i, s.Layers, s.Parameters, s.Live, s.PutOff, memory.Format(s.Activations),
			memory.Format(s.Total))
	}
	fmt.Fprintf(w, "  ranks wait %.1f%% of the time, if passes of all stages take as long\n\n", 100*p.Bubble)
}

func (p *Plan) writeTraffic(w io.Writer) {
	if len(p.Traffic) == 0 {
		fmt.Fprintln(w, "nothing is sent")
		return
	}
	fmt.Fprintln(w, "sent in a step by all ranks\tbytes\ta rank\tformula")
	for _, t := range p.Traffic {
		fmt.Fprintf(w, "  %s over %s\t%d\t%s\t%s\n", t.Op, t.Axis, t.Bytes, memory.Format(t.Bytes/p.Ranks), t.Formula)
	}
	fmt.Fprintf(w, "  total\t%d\t%s\n", p.Sent, memory.Format(p.Sent/p.Ranks))
}
