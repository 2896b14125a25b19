package ranks

import (
	"fmt"
	"slices"
	"strings"
)

// most is how many parts a list has. The rest is only counted.
const most = 16

// Names returns "rank 2", "ranks 1, 2" or "ranks 1-7, 12" for the list, in ascending order.
func Names(list ...int) string { return List("rank", list) }

// Count returns "1 rank" or "7 ranks".
func Count(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", n)
}

// List is Names for another noun.
func List(noun string, list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("%s %d", noun, list[0])
	}
	rest := slices.Compact(slices.Sorted(slices.Values(list)))
	var parts []string
	for len(rest) > 0 && len(parts) < most {
		n := 1
		for n < len(rest) && rest[n] == rest[0]+n {
			n++
		}
		if n > 2 {
			parts = append(parts, fmt.Sprintf("%d-%d", rest[0], rest[n-1]))
		} else {
			n = 1
			parts = append(parts, fmt.Sprint(rest[0]))
		}
		rest = rest[n:]
	}
	s := noun + "s " + strings.Join(parts, ", ")
	if len(rest) > 0 {
		s += fmt.Sprintf(" and %d more", len(rest))
	}
	return s
}
