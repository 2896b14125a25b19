package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/ringo-ml/ringo/dist/algo"
)

// explain writes which algorithm runs each operation between processes, and why.
func (c *benchCmd) explain(out io.Writer, ops []string, ranks []int) error {
	sizes, err := parseSizes(c.Sizes)
	if err != nil {
		return err
	}
	for _, n := range ranks {
		if c.Hosts < 1 || c.Hosts > n {
			return usage("-hosts %d: %d ranks lie on 1 to %d hosts", c.Hosts, n, n)
		}
		tuner := algo.NewTuner(evenly(n, c.Hosts))
		for _, op := range ops {
			for i, size := range sizes {
				choice := tuner.Explain(findBenchOp(op).kind, size)
				if i > 0 && len(choice.Candidates) == 0 {
					continue
				}
				what := fmt.Sprintf("%s of %s, %d ranks on %d hosts", op, sizeName(size), n, c.Hosts)
				if err := explainChoice(out, choice, what, size, c.Hosts); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// explainChoice writes one choice: a line, and one for each candidate.
func explainChoice(out io.Writer, c algo.Choice, what string, size, hosts int) error {
	why := "the cheapest by the model"
	switch {
	case len(c.Candidates) == 0:
		why = "there is no other"
	case c.Measured:
		why = "as measured: dist/algo/tuner.json"
	}
	if _, err := fmt.Fprintf(out, "%s: %s (%s)\n", what, c.Algo, why); err != nil || len(c.Candidates) == 0 {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  algorithm\tmodel µs\trounds inside\tacross\tS × busiest rank\tbusiest host\tbetween hosts\t")
	for _, x := range c.Candidates {
		mark := "  "
		if x.Algo == c.Algo {
			mark = "* "
		}
		fmt.Fprintf(w, "%s%s\t%.0f\t%d\t%d\t%.4g\t%.4g\t%.4g\t\n", mark, x.Algo, x.Cost.Nanoseconds(size)/1e3, x.Cost.Inside, x.Cost.Across,
			x.Cost.Rank, x.Cost.Host, x.Cost.Network*float64(hosts))
	}
	return w.Flush()
}

// evenly divides the ranks over the hosts; some hosts have one more than others.
func evenly(ranks, hosts int) algo.Layout {
	l := algo.OneHost(ranks)
	for r := range l {
		l[r] = r * hosts / ranks
	}
	return l
}
