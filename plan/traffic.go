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
		add("allreduce", "dp", tp, 2*r*s.total*(dp-1), fmt.Sprintf("2·%d·P·%d", r, dp-1))
		return list
	}
	gathered, elements := s.total, "P"
	if s.Stage == 3 && s.blocks > 1 { // those that do not stay are gathered in Backward too, but the last one is still there
		gathered += s.total - s.kept - s.last
		elements = "(2·P−K−U)"
		if s.last != s.loose {
			elements = "(2·P−K−Z)"
		}
	}
	add("allgather", "fsdp", dp*tp, s.c*gathered*(n-1), fmt.Sprintf("%d·%s·%d", s.c, elements, n-1))
	add("reducescatter", "fsdp", dp*tp, s.g*s.total*(n-1), fmt.Sprintf("%d·P·%d", s.g, n-1))
	add("allreduce", "dp", tp, 2*s.g*s.total*(dp-1), fmt.Sprintf("2·%d·P·%d", s.g, dp-1)) // each rank's part with its copies
	return list
}
