package plan

import "fmt"

// shared are parameters that the same ranks share: all parameters of a model or, if experts are on other ranks, either the experts or the
// rest.
type shared struct {
	axis     string // axis of the ranks over which a copy is sharded
	over     string // axis of the ranks that have copies
	ranks    int    // ranks over which a copy is sharded
	copies   int
	groups   int    // groups of copies·ranks ranks that do the same
	trained  int    // elements
	gathered int    // elements that a step gathers
	letter   string // letter of trained
	elements string // formula of gathered
}

// adder adds what groups of ranks do to a list.
type adder func(op, axis string, groups, bytes int, formula string)

// traffic returns what ddp and fsdp send in a step with one microbatch. An all-gather or reduce-scatter of S bytes among n ranks sends
// S·(n−1), an all-reduce 2·S·(n−1).
func (s *sizes) traffic() (list []Traffic) {
	for _, p := range s.sharing() {
		add := func(op, axis string, groups, bytes int, formula string) {
			if bytes == 0 {
				return
			}
			if groups > 1 { // several groups do the same
				formula += fmt.Sprintf("·%d", groups)
			}
			list = append(list, Traffic{op, axis, bytes * groups, formula})
		}
		g := s.g
		if s.Stage == 0 {
			g = s.Config.reduce().Size()
		}
		s.addGathers(add, &p)
		if s.Int4 {
			s.addHops(add, &p)
		} else {
			add("reducescatter", p.axis, p.copies*p.groups, g*p.trained*(p.ranks-1), fmt.Sprintf("%d·%s·%d", g, p.letter, p.ranks-1))
		}
		// each rank's part with its copies
		add("allreduce", p.over, p.groups, 2*g*p.trained*(p.copies-1), fmt.Sprintf("2·%d·%s·%d", g, p.letter, p.copies-1))
	}
	return list
}

// addGathers adds those of all ranks, and, if hosts have copies, those in hosts: all but the first one after each change.
func (s *sizes) addGathers(add adder, p *shared) {
	bytes, formula, groups := s.c*p.gathered, fmt.Sprintf("%d·%s", s.c, p.elements), p.copies*p.groups
	if s.Int8 {
		bytes, _ = s.gathers(&s.quantized.all, &s.quantized.trained, s.quantized.early)
		formula = "65/64·" + p.elements
	}
	if s.Host > 0 {
		bytes, formula = s.c*p.trained, fmt.Sprintf("%d·%s", s.c, p.letter)
		if s.Int8 {
			bytes, formula = s.quantized.trained.total, "65/64·"+p.letter
		}
		add("allgather", "host", groups*p.ranks/s.Host, s.c*(p.gathered-p.trained)*(s.Host-1),
			fmt.Sprintf("%d·(%s−%s)·%d", s.c, p.elements, p.letter, s.Host-1))
	}
	add("allgather", p.axis, groups, bytes*(p.ranks-1), fmt.Sprintf("%s·%d", formula, p.ranks-1))
}

// addHops adds the sums of gradients in hosts, and between them.
func (s *sizes) addHops(add adder, p *shared) {
	groups, hosts := p.copies*p.groups, p.ranks/s.Host
	for _, hop := range []struct {
		axis          string
		groups, peers int
	}{{"host", groups * hosts, s.Host - 1}, {"hosts", groups, hosts - 1}} {
		add("alltoall", hop.axis, hop.groups, s.quantized.grads*hop.peers, fmt.Sprintf("33/64·%s·%d", p.letter, hop.peers))
	}
}

// sharing returns which parameters are shared by which ranks.
func (s *sizes) sharing() []shared {
	dp, fsdp, ep, tp, n := s.Layout.dp(), s.Layout.fsdp(), s.Layout.ep(), s.Layout.tp(), s.Layout.positions()
	all := shared{"fsdp", "dp", fsdp, dp, tp, s.trained.total, 0, s.of("P"), ""}
	all.gathered, all.elements = s.gathers(&s.extent, &s.trained, s.early)
	if !s.apart() {
		if more := ep * s.Layout.positions(); s.Stage == 0 {
			all.over, all.copies = s.Layout.with("dp"), dp*more
		} else {
			all.axis, all.ranks = s.Layout.with("fsdp"), fsdp*more
		}
		return []shared{all}
	}
	l := s.Layout
	l.EP = 0
	x := shared{l.with("fsdp"), "dp", fsdp * n, dp, tp * ep, s.experts.total, s.experts.total, "X", "X"}
	rest := shared{s.Layout.with("fsdp"), "dp", fsdp * ep * n, dp, tp, s.trained.total - s.experts.total, 0, "(" + s.of("P") + "−X)", ""}
	if s.Stage == 0 {
		x.axis, x.over, x.ranks, x.copies = "fsdp", l.with("dp"), 1, dp*n
		rest.axis, rest.over, rest.ranks, rest.copies = "fsdp", s.Layout.with("dp"), 1, dp*ep*n
	}
	if rest.elements = rest.letter; s.Stage == 3 && s.blocks > 1 {
		x.gathered, x.elements = 2*s.experts.total, "2·X"
		rest.elements = "(2·(P−X)−K)"
		if s.inLast {
			x.gathered, x.elements = x.gathered-s.last, "(2·X−"+s.lastLetter()+")"
		} else {
			rest.elements = "(2·(P−X)−K−" + s.lastLetter() + ")"
		}
	}
	rest.gathered = all.gathered - x.gathered
	return []shared{rest, x}
}

// lastLetter is the letter of the last unit that is not kept.
func (s *sizes) lastLetter() string {
	if s.last != s.loose {
		return "Z"
	}
	return "U"
}

// gathers returns how many elements a step gathers, or, of their codes, how many bytes. Frozen ones of kept units are gathered once, before
// the first step. In stage 3, units that are not kept are gathered again in Backward. But the last one is still there, and Backward does
// not reach those before the first trained one.
func (s *sizes) gathers(all, trained *extent, early int) (n int, formula string) {
	if s.Stage < 3 {
		return trained.total, s.of("P")
	}
	n, formula = all.total-all.kept+trained.kept, "P"
	if s.trained.kept < s.kept {
		formula = "P−K+Kt"
	}
	if s.blocks <= 1 {
		return n, formula
	}
	twice := "2·P−K−"
	if s.trained.kept < s.kept {
		twice = "2·P−2·K+Kt−"
	}
	formula = twice + s.lastLetter()
	if early > 0 {
		formula += "−E"
	}
	return n + all.total - all.kept - all.last - early, "(" + formula + ")"
}
