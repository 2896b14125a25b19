package plan

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// memory returns what ddp or fsdp, and the optimizer, allocate on the rank with the largest part.
func (s *sizes) memory() []Item {
	list := []Item{s.values(), s.gradients(), s.optimizer()}
	if s.Stage == 3 {
		list = append(list, s.gathered())
	}
	if it := s.buffers(); it.Bytes > 0 {
		list = append(list, it)
	}
	return list
}

// values: ddp and stages 1 and 2 have whole parameters, fsdp in 16 bits also this rank's masters, and stage 3 only this rank's part.
func (s *sizes) values() Item {
	it := Item{Kind: memory.Parameters}
	var terms []string
	if s.Stage < 3 {
		it.Bytes = s.c * s.total
		terms = append(terms, fmt.Sprintf("%d·P", s.c))
	}
	if s.Stage == 3 || s.Stage > 0 && !s.inPlace() {
		it.Bytes += s.m * s.part
		terms = append(terms, s.cut(s.m, "P"))
	}
	if s.Int8 {
		it.Bytes += s.quantized.mine
		terms = append(terms, fmt.Sprintf("65/64·P/%d", s.ranks))
	}
	it.Formula = strings.Join(terms, " + ")
	return it
}

// inPlace reports whether this rank's part is inside what is gathered, in units that stay.
func (s *sizes) inPlace() bool { return s.c == s.m && !s.Int8 }

// cut is the formula of this rank's part of the parameters with a letter, with so many bytes for each.
func (s *sizes) cut(bytes int, letter string) string {
	switch {
	case s.Stage == 0:
		return fmt.Sprintf("%d·%s", bytes, letter)
	case s.apart():
		return fmt.Sprintf("%d·((%s−X)/%d + X/%d)", bytes, letter, s.ranks, s.ranks/s.Layout.ep())
	}
	return fmt.Sprintf("%d·%s/%d", bytes, letter, s.ranks)
}

// apart reports whether experts are on other ranks than the rest of the model.
func (s *sizes) apart() bool { return s.experts.total > 0 && s.Layout.ep() > 1 }

// of returns the letter of the trained ones among the parameters with a letter.
func (s *sizes) of(letter string) string {
	if s.trained.total == s.total {
		return letter
	}
	return letter + "t"
}

func (s *sizes) gradients() Item {
	if s.Stage < 2 {
		return Item{Kind: memory.Gradients, Bytes: s.g * s.trained.total, Formula: fmt.Sprintf("%d·%s", s.g, s.of("P"))}
	}
	return Item{Kind: memory.Gradients, Bytes: s.g * s.trained.part, Formula: s.cut(s.g, s.of("P"))}
}

// optimizerBytes is how many bytes the optimizer has for a parameter: moments, and masters unless fsdp has them.
func (s *sizes) optimizerBytes() int {
	if s.Stage == 0 && s.c != s.m {
		return (s.moments + 1) * s.m
	}
	return s.moments * s.m
}

// normFloats is how many numbers optim keeps for the norm: the sum of squares, the factor of the gradients, the norm, and what is known of
// one that is not finite.
const normFloats = 6

// optimizer: its state; 8 bytes for each block of a parameter, for the sums of squares of the norm; and memory to widen one gradient, if
// gradients of fsdp are narrower than what they update.
func (s *sizes) optimizer() Item {
	n := s.optimizerBytes()
	it := Item{Kind: memory.OptimizerState, Bytes: n*s.trained.part + 8*(s.sums+normFloats),
		Formula: s.cut(n, s.of("P")) + " + sums for the norm"}
	if s.g < s.m && s.Stage != 0 {
		it.Bytes += s.m * s.longest
		it.Formula += ", a widened gradient"
	}
	return it
}

// gathered: kept units without this rank's part (if that is inside them), and memory for the unit in use and the next one.
func (s *sizes) gathered() Item {
	k := min(2, s.blocks)
	it := Item{Kind: memory.Gathered, Bytes: s.c*s.kept + k*s.c*s.loose, Formula: fmt.Sprintf("%d·K + %d·%d·U", s.c, k, s.c)}
	if s.inPlace() {
		it.Bytes -= s.c * s.mine
		it.Formula = fmt.Sprintf("%d·(K−K/%d) + %d·%d·U", s.c, s.ranks, k, s.c)
	}
	if s.Host > 0 {
		it.Bytes += s.c * s.quantized.second
		it.Formula += fmt.Sprintf(" + %d·(P−K)/%d", s.c, s.Host)
	}
	return it
}

// buffers: memory for whole gradients of kept units, of the unit that is being written and of the one that is being reduced, and for
// fsdp's votes.
func (s *sizes) buffers() Item {
	it := Item{Kind: memory.Communication}
	if s.Stage == 0 {
		if r := s.reduce(); r != s.Params {
			it.Bytes, it.Formula = r.Size()*s.trained.total, fmt.Sprintf("%d·%s", r.Size(), s.of("P"))
		}
		return it
	}
	it.Bytes, it.Formula = 4*(2+3+s.units+s.params), "votes"
	k := min(2, s.trained.blocks, s.ranks) // with one rank, reductions end at once
	if s.Stage > 1 {
		it.Bytes += s.g*s.trained.kept + k*s.g*s.trained.loose
		it.Formula = fmt.Sprintf("%d·%s + %d·%d·%s + votes", s.g, s.of("K"), k, s.g, s.of("U"))
	}
	if s.Host > 0 {
		it.Bytes += 2 * 4
	}
	if s.Int8 {
		it.Bytes += s.quantized.buffer
		it.Formula += ", codes of the values of a unit"
	}
	if s.Int4 {
		it.Bytes += (k+s.quantized.stay)*s.quantized.hops + s.g*s.quantized.sums
		it.Formula += ", codes of the gradients of units"
	}
	return it
}

// zero is the formula of the ZeRO paper: bytes of values, gradients and optimizer state for each parameter.
func (s *sizes) zero() float64 {
	trained := float64(s.trained.total) / float64(s.total)
	c, g, x := float64(s.c), float64(s.g)*trained, float64(s.experts.total)/float64(s.total)
	n := 1 / ((1-x)/float64(s.ranks) + x*float64(s.Layout.ep())/float64(s.ranks)) // on average
	opt := float64(s.moments*s.m) * trained
	if s.c != s.m {
		opt += float64(s.m)
	}
	switch s.Stage {
	case 1:
		return c + g + opt/n
	case 2:
		return c + (g+opt)/n
	case 3:
		return (c + g + opt) / n
	}
	return c + g + opt
}

func (s *sizes) legend() []string {
	list := []string{fmt.Sprintf("P = %d parameters", s.total)}
	if s.Layout.TP > 1 {
		list[0] += " of a tp rank"
	}
	if s.apart() {
		list[0] += " of an ep rank"
		list = append(list, fmt.Sprintf("X = %d of them of experts", s.experts.total))
	}
	if s.trained.total < s.total {
		list = append(list, fmt.Sprintf("Pt = %d of them trained", s.trained.total))
	}
	if s.Stage > 1 {
		list = append(list, fmt.Sprintf("K = %d in units of Keep", s.kept), fmt.Sprintf("U = %d in the largest one of the others", s.loose))
	}
	if s.Stage == 3 && s.last != s.loose {
		list = append(list, fmt.Sprintf("Z = %d in the last one of these", s.last))
	}
	if s.Stage > 1 && s.trained.total < s.total {
		list = append(list, fmt.Sprintf("Kt = %d, Ut = %d: of the trained ones", s.trained.kept, s.trained.loose))
	}
	if s.Stage == 3 && s.early > 0 {
		list = append(list, fmt.Sprintf("E = %d in units in front of the first one that is trained", s.early))
	}
	return list
}
