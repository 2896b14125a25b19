package algo

import "slices"

// hierarchicalAllReduce: slices go around inside the host, in two phases, and each segment of a slice goes around the hosts, in two
// phases. Segments that are in the same slice on any host wait for each other.
func (s *shape) hierarchicalAllReduce() Cost {
	n := len(s.size)
	segments, apart := s.segments()
	c := Cost{Inside: 2 * (s.g - 1), Across: 2 * (n - 1) * segments / apart, Messages: 4*s.g*(s.g-1) + 4*(n-1)*segments, Overlap: true}
	c.Host = 2 * float64(n-1) / float64(n)
	c.Local, c.Rank = 2*float64(s.g-1)/float64(s.g), c.Host/float64(slices.Min(s.size))
	return s.network(c, float64(2*(n-1)))
}

// segments returns into how many pieces the ends of all hosts' slices cut the buffer, and at how many of these ends a slice ends on every
// host.
func (s *shape) segments() (pieces, common int) {
	ends := map[[2]int]bool{} // as fractions
	for _, g := range s.size {
		common = gcd(g, common)
	}
	for g := range slices.Values(slices.Compact(slices.Sorted(slices.Values(s.size)))) {
		for i := range g {
			d := gcd(g, i)
			ends[[2]int{i / d, g / d}] = true
		}
	}
	return len(ends), common
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// hierarchicalParts: each part goes to one rank of each other host. There, and on its own host, it goes to the other ranks of the host.
func (s *shape) hierarchicalParts() Cost {
	c := Cost{Overlap: true}
	n, all := len(s.size), float64(s.n)
	for _, g := range s.size {
		across, parts := 0, 1
		for _, h := range s.size {
			parts += (h + g - 1) / g
			across += (h + g - 1) / g
		}
		parts, across = parts-1, across-1 // not to its own host
		c.Across = max(c.Across, across)
		c.Inside = max(c.Inside, (g-1)*parts)
		c.Messages = max(c.Messages, g*(n-1)+g*across+2*g*(g-1)*parts)
		out, in := float64(g*(n-1))/all, (all-float64(g))/all
		c.Host = max(c.Host, out, in)
		c.Local, c.Rank = max(c.Local, float64(g-1)/float64(g)), max(c.Rank, max(out, in)/float64(g))
	}
	return s.network(c, float64(n-1))
}

// bruck: to the rank at distance d go the parts whose distance has that binary digit, S/n each.
func (s *shape) bruck() Cost {
	s.begin()
	c := Cost{Columns: true}
	for d := 1; d < s.n; d *= 2 {
		parts := 0
		for j := range s.n {
			if j&d != 0 {
				parts++
			}
		}
		b := float64(parts) / float64(s.n)
		c.Rank += b
		for r := range s.n {
			s.send(r, (r+d)%s.n, b)
		}
	}
	return s.disseminate(s.busiest(c))
}

// bruckParts: from the rank at distance d come d parts, or as many as are missing.
func (s *shape) bruckParts() Cost {
	s.begin()
	for d := 1; d < s.n; d *= 2 {
		for r := range s.n {
			s.send(r, (r+d)%s.n, float64(min(d, s.n-d))/float64(s.n))
		}
	}
	return s.disseminate(s.busiest(Cost{Rank: s.share(), Columns: true}))
}
