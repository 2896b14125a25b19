package dist

import (
	"errors"
	"fmt"
	"slices"
)

// Agree compares lines over the ranks of g, for example the names and shapes of a model's parameters. It is collective. If ranks differ,
// all of them get the same error. It begins with what (who asks), and names the first line that differs from that of g's rank 0, both ranks
// as Ranks does, and both lines. An empty line is equal to all. A rank that found a problem by itself gives it as problem: then all ranks
// return the problem of the lowest such rank.
func Agree(g *Group, what string, lines []string, problem error) error {
	want, err := BroadcastObject(g, lines, 0)
	if err != nil {
		return err
	}
	text := ""
	if problem != nil {
		text = problem.Error()
	} else if mine, first := difference(lines, want); mine != first {
		ranks := g.Ranks()
		text = fmt.Sprintf("%s: ranks differ: rank %d has %s where rank %d has %s", what, ranks[g.rank], mine, ranks[0], first)
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

// Agree is the function Agree in a lane of its own, for packages that do not know groups: the order with other operations of g does not
// matter, and they count no bytes of it.
func (g *Group) Agree(what string, lines []string) error {
	if g.must().checks == nil {
		g.checks = g.With(Name(g.name + " checks"))
	}
	return Agree(g.checks, what, lines, nil)
}

// difference returns the first line that differs, of both lists: two equal ones if none does.
func difference(mine, want []string) (string, string) {
	at := func(lines []string, i int) string {
		if i < len(lines) {
			return lines[i]
		}
		return "nothing"
	}
	for i := range max(len(mine), len(want)) {
		if m, w := at(mine, i), at(want, i); m != w && m != "" && w != "" {
			return m, w
		}
	}
	return "", ""
}
