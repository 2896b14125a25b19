package dist

import (
	"errors"
	"fmt"
	"slices"
)

// Agree compares lines over the ranks of g, for example the names and shapes of a model's parameters. It is collective. Where
// ranks differ, all of them get the same error: it begins with what, which says who asks, and names the first line that
// differs from rank 0's, the rank, and both lines. A rank that has found a problem of its own gives it: then all ranks
// return the problem of the first one.
func Agree(g *Group, what string, lines []string, problem error) error {
	want, err := BroadcastObject(g, lines, 0)
	if err != nil {
		return err
	}
	text := ""
	if problem != nil {
		text = problem.Error()
	} else if d := difference(lines, want); d != "" {
		text = fmt.Sprintf("%s: ranks differ: rank %d has %s", what, g.rank, d)
	}
	all, err := AllGatherObject(g, text)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(t string) bool { return t != "" }); i >= 0 {
		return errors.New(all[i])
	}
	return nil
}

// difference returns the first line of mine that is not want's, with both.
func difference(mine, want []string) string {
	at := func(lines []string, i int) string {
		if i < len(lines) {
			return lines[i]
		}
		return "nothing"
	}
	for i := range max(len(mine), len(want)) {
		if m, w := at(mine, i), at(want, i); m != w {
			return fmt.Sprintf("%s where rank 0 has %s", m, w)
		}
	}
	return ""
}
