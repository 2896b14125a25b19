package plan

import "fmt"

// quantized is a model as the codes that fsdp sends, in bytes, and what it needs for them (ZeRO++).
type quantized struct {
	all, trained extent // values, in Int8
	early        int
	mine, buffer int // codes of this rank's part, and of the largest section of a unit
	second       int // elements of this rank's part of its host's copy
	grads        int // trained ones, in Int4
	hops, sums   int // codes of both hops, and elements of the sums in a host, of the largest unit
	stay         int // trained units of Keep: their gradients can be on the way beside those of two others
}

// checkHost refuses hosts and codes that do not fit the rest.
func (c Config) checkHost() error {
	switch ranks := c.Layout.fsdp() * c.Layout.positions(); {
	case c.Host == 0 && !c.Int8 && !c.Int4:
		return nil
	case c.Layout.FSDP == 0:
		return fmt.Errorf("hosts and codes of 8 or 4 bits need an fsdp axis in the layout, such as fsdp=%d", c.Layout.dp())
	case c.Host < 0 || c.Host > 0 && ranks%c.Host != 0:
		return fmt.Errorf("the %d ranks that share a copy do not divide into hosts of %d", ranks, c.Host)
	case c.Host > 0 && c.Stage != 0 && c.Stage != 3:
		return fmt.Errorf("hosts have copies in stage 3 alone, not in stage %d", c.Stage)
	case c.Int4 && c.Host == 0:
		return fmt.Errorf("gradients in int4 are added up in each host first: say how many ranks a host has (-host, Config.Host)")
	case c.Int4 && c.reduce() != c.master():
		return fmt.Errorf("gradients in int4 are added up in %v, not in %v", c.master(), c.reduce())
	case c.Layout.EP > 1:
		return fmt.Errorf("ep=%d with hosts, or codes of 8 or 4 bits: this is not planned yet", c.Layout.EP)
	}
	return nil
}

// codeBytes returns the bytes of n elements in so many bits: each block of 256 has a scale.
func codeBytes(n, bits int) int { return 4*((n+255)/256) + (n*bits+7)/8 }

// codesOf returns those of all ranks' parts of n elements, and those of the first rank's, which is the largest one.
func codesOf(n, ranks, bits int) (all, first int) {
	first = codeBytes(share(n, ranks), bits)
	return n%ranks*first + (ranks-n%ranks)*codeBytes(n/ranks, bits), first
}

// addCodes counts a unit.
func (s *sizes) addCodes(trained, frozen int, keep bool) {
	q := &s.quantized
	codes, mine := codesOf(trained, s.ranks, 8)
	more, own := codesOf(frozen, s.ranks, 8)
	q.all.add(codes+more, mine+own, keep)
	q.mine, q.buffer = q.mine+mine+own, max(q.buffer, codes, more)
	if trained > 0 {
		q.trained.add(codes, mine, keep)
		if keep {
			q.stay++
		}
	} else if s.trained.total == 0 && !keep {
		q.early += more
	}
	if s.Host == 0 {
		return
	}
	if !keep {
		q.second += share(trained, s.Host) + share(frozen, s.Host)
	}
	all, part := codesOf(trained, s.ranks, 4)
	hosts, peers, elems := s.ranks/s.Host, 0, 0 // of the first ranks of all hosts
	for h := range hosts {
		n := trained / s.ranks
		if h*s.Host < trained%s.ranks {
			n++
		}
		peers, elems = peers+codeBytes(n, 4), elems+n
	}
	q.grads += all
	q.hops, q.sums = max(q.hops, all+(s.Host+1)*peers+hosts*part), max(q.sums, elems)
}
