package plan

import "fmt"

// traffic returns what ddp and fsdp send in a step with one microbatch. An all-gather or reduce-scatter of S bytes among n ranks
// sends S·(n−1), an all-reduce 2·S·(n−1).
func (s *sizes) traffic() []Traffic {
	dp, n := s.Layout.dp(), s.ranks
	var list []Traffic
	add := func(op, axis string, groups, bytes int, formula string) {
		if bytes == 0 {
			return
		}
		if groups > 1 { // that do the same
			formula += fmt.Sprintf("·%d", groups)
		}
		list = append(list, Traffic{op, axis, bytes * groups, formula})
	}
	tp := s.Layout.tp()
	if s.Stage == 0 {
		r := s.Config.reduce().Size()
		add("allreduce", "dp", tp, 2*r*s.trained.total*(dp-1), fmt.Sprintf("2·%d·%s·%d", r, s.of("P"), dp-1))
		return list
	}
	gathered, elements := s.gathers()
	add("allgather", "fsdp", dp*tp, s.c*gathered*(n-1), fmt.Sprintf("%d·%s·%d", s.c, elements, n-1))
	grads, p := s.trained.total, s.of("P")
	add("reducescatter", "fsdp", dp*tp, s.g*grads*(n-1), fmt.Sprintf("%d·%s·%d", s.g, p, n-1))
	add("allreduce", "dp", tp, 2*s.g*grads*(dp-1), fmt.Sprintf("2·%d·%s·%d", s.g, p, dp-1)) // each rank's part with its copies
	return list
}

// gathers returns how many elements are gathered in a step. Frozen ones of units that stay are gathered once, not in a step.
// In stage 3, units that do not stay are gathered in Backward too, but the last one is still there, and Backward does not reach
// those in front of the first one that is trained.
func (s *sizes) gathers() (n int, formula string) {
	if s.Stage < 3 {
		return s.trained.total, s.of("P")
	}
	n, formula = s.total-s.kept+s.trained.kept, "P"
	if s.trained.kept < s.kept {
		formula = "P−K+Kt"
	}
	if s.blocks <= 1 {
		return n, formula
	}
	last := "U"
	if s.last != s.loose {
		last = "Z"
	}
	twice := "2·P−K−"
	if s.trained.kept < s.kept {
		twice = "2·P−2·K+Kt−"
	}
	formula = twice + last
	if s.early > 0 {
		formula += "−E"
	}
	return n + s.total - s.kept - s.last - s.early, "(" + formula + ")"
}
