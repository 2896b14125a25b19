package viz

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/ringo-ml/ringo/dist/backend"
)

func (c *canvas) title() string {
	text := fmt.Sprintf("%v by %s on %d ranks", c.s.kind, c.s.algo, c.s.ranks)
	if h := c.s.at.Hosts(); h > 1 {
		text += fmt.Sprintf(" of %d hosts", h)
	}
	return text
}

// captions are the lines below the title.
func (c *canvas) captions() []string {
	s := c.s
	sum, most, empty, away := 0, 0, 0, 0
	for r := range s.ranks {
		sum += s.sent[r]
		most = max(most, s.sent[r])
	}
	for _, a := range s.arrows {
		if a.bytes == 0 {
			empty++
		}
		if s.crosses(a) {
			away += a.bytes
		}
	}
	messages, steps := s.Size()
	first := fmt.Sprintf("%s in %s", Counted(messages, "message"), Counted(steps, "step"))
	if empty > 0 {
		first += fmt.Sprintf(", %d of them empty (dashed): ranks learn that the others are there", empty)
	}
	lines := []string{first}
	if s.bytes > 0 {
		second := fmt.Sprintf("S = %s; all ranks send %s", bytesText(s.bytes), bytesText(sum))
		if want, text := formula(s.kind, s.algo, s.ranks, s.bytes); want == sum {
			second += " = " + text
		}
		second += fmt.Sprintf(", the busiest %s", bytesText(most))
		if s.at.Hosts() > 1 {
			second += fmt.Sprintf("; between hosts %s (thick)", bytesText(away))
		}
		lines = append(lines, second, c.notation())
	}
	if uneven(s.kind) {
		lines = append(lines, "rank r's part is r+1 times as long as rank 0's")
	}
	return lines
}

// Counted returns a number with its noun.
func Counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Roughly writes bytes with three digits, such as 1.75M.
func Roughly(bytes int) string {
	x, unit := float64(bytes), ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if x >= 999.5 { // three digits
			x, unit = x/1024, u
		}
	}
	return fmt.Sprintf("%.3g%s", x, unit)
}

// notation explains the labels.
func (c *canvas) notation() string {
	switch {
	case !c.manyOwners():
		return "a, b, …: chunks of the buffer"
	case !c.s.kind.Reduces():
		return "a1: chunk a of rank 1's input"
	}
	text := "a1: chunk a of rank 1's input; Σa: its sum over all ranks"
	if n := c.s.ranks; n > 3 {
		text += fmt.Sprintf("; a%d…1: over ranks %d to %d, 0 and 1", n-2, n-2, n-1)
	}
	return text
}

// formula returns the bytes that all ranks send together, and their formula in S and the number of ranks n.
func formula(kind backend.Kind, name string, n, s int) (int, string) {
	switch {
	case name == "bruck" && kind == backend.AllToAll:
		ones := 0
		for j := range n {
			ones += bits.OnesCount(uint(j))
		}
		return ones * s, fmt.Sprintf("%d·S (the ones in the binary numbers below n)", ones)
	case kind == backend.AllReduce:
		return 2 * (n - 1) * s, "2(n−1)·S"
	case kind == backend.Send:
		return s, "S"
	case kind == backend.Gather, kind == backend.Scatter:
		return (n - 1) * s / n, "(n−1)/n·S"
	}
	return (n - 1) * s, "(n−1)·S"
}

// bytesText writes a number of bytes. It uses KiB and MiB only if that is exact.
func bytesText(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<18) == 0:
		return fmt.Sprintf("%g MiB", float64(n)/(1<<20))
	case n >= 1<<10 && n%(1<<8) == 0:
		return fmt.Sprintf("%g KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// manyOwners reports whether several ranks have elements for the same place. Then labels must name the rank.
func (c *canvas) manyOwners() bool {
	k := c.s.kind
	return k.Reduces() || k == backend.AllToAll || k == backend.AllToAllV
}

// label names a chunk and the ranks whose inputs are in it.
func (c *canvas) label(h held) string {
	letter := string(rune('a' + h.chunk%26))
	if h.chunk >= 26 { // after z comes aa
		letter = string(rune('a'+h.chunk/26-1)) + letter
	}
	if !c.manyOwners() {
		return letter
	}
	n, count := c.s.ranks, bits.OnesCount64(h.ranks)
	if count == n {
		return "Σ" + letter
	}
	var ranks []int
	for r := range n {
		if h.ranks>>r&1 == 1 {
			ranks = append(ranks, r)
		}
	}
	if count <= 2 {
		var parts []string
		for _, r := range ranks {
			parts = append(parts, fmt.Sprintf("%s%d", letter, r))
		}
		return strings.Join(parts, "+")
	}
	// Consecutive ranks, also across the end: 6, 7, 0, 1 is written 6…1.
	for _, first := range ranks {
		run := uint64(0)
		for i := range count {
			run |= 1 << ((first + i) % n)
		}
		if run == h.ranks {
			return fmt.Sprintf("%s%d…%d", letter, first, (first+count-1)%n)
		}
	}
	return letter + strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ","), "[]")
}
