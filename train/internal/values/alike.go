package values

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/ranks"
	"github.com/ringo-ml/ringo/train/metrics"
)

// logged is a value that Add has changed.
type logged struct {
	Name  string
	Step  int
	Value metrics.Number
}

// logged returns the values that Add has changed since the last Gather, in the order of their names.
func (t *Table) logged() []logged {
	list := t.added
	for i, x := range list {
		s := t.series(x.Name)
		k, _ := slices.BinarySearch(s.Steps, x.Step)
		list[i].Value = metrics.Number(s.Values[k] + 0) // no -0
	}
	slices.SortFunc(list, func(a, b logged) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Step, b.Step)) })
	return slices.CompactFunc(list, func(a, b logged) bool { return a.Name == b.Name && a.Step == b.Step })
}

// takeFirst replaces what Add got on this rank by what it got on the first one: so checkpoints have the same of all. It is collective.
func (t *Table) takeFirst(mine []logged) error {
	type has struct {
		Logged []logged
		Series []string
	}
	names := []string(nil)
	for _, s := range t.Series {
		names = append(names, s.Name)
	}
	all, err := dist.AllGatherObject(t.g, has{mine, names})
	if err != nil {
		return err
	}
	first := all[0]
	for i, of := range all {
		for _, x := range slices.Concat(of.Logged, first.Logged) {
			if err := t.compare(x, find(first.Logged, x), find(of.Logged, x), t.g.Ranks()[i]); err != nil {
				return err
			}
		}
	}
	for _, x := range mine {
		s := t.series(x.Name)
		k, _ := slices.BinarySearch(s.Steps, x.Step)
		s.Steps, s.Values = slices.Delete(s.Steps, k, k+1), slices.Delete(s.Values, k, k+1)
		delete(t.rows[x.Step], x.Name)
	}
	for _, x := range first.Logged {
		t.add(x.Name, x.Step, float64(x.Value))
	}
	t.Series = slices.DeleteFunc(t.Series, func(s *metrics.Series) bool {
		return len(s.Steps) == 0 && !slices.Contains(first.Series, s.Name)
	})
	slices.SortStableFunc(t.Series, func(a, b *metrics.Series) int {
		return cmp.Compare(slices.Index(first.Series, a.Name), slices.Index(first.Series, b.Name))
	})
	return nil
}

// compare warns once for a name of which a rank has logged another value than the first one. It is an error where that decides.
func (t *Table) compare(x logged, first, other string, rank int) error {
	if first == other || t.warned[x.Name] {
		return nil
	}
	t.warned[x.Name] = true
	text := fmt.Sprintf("train: ranks gave Log other values of %q in step %d: rank %d %s, and rank %d %s", x.Name, x.Step,
		t.g.Ranks()[0], first, rank, other)
	if x.Name == t.Best {
		return fmt.Errorf("%s: what is the best needs a value that all know, such as of Sum or Evaluate", text)
	}
	if t.g.Rank() == 0 {
		slog.Warn(text + ": that of the first counts; Log takes what all ranks know, and Sum adds up parts")
	}
	return nil
}

// find says which value a list has of a name and step.
func find(list []logged, x logged) string {
	i := slices.IndexFunc(list, func(y logged) bool { return y.Name == x.Name && y.Step == x.Step })
	if i < 0 {
		return "none"
	}
	return fmt.Sprint(float64(list[i].Value))
}

// differ returns an error that says how often which ranks called Sum, where not all did alike. It is collective.
func (t *Table) differ() error {
	mine, calls, says := map[string]int{}, map[string]int{}, []string(nil)
	for _, c := range t.columns {
		for _, step := range c.steps {
			mine[fmt.Sprintf("calls of Sum(%q, …) in step %d", c.name, step)]++
		}
	}
	all, err := dist.AllGatherObject(t.g, mine)
	for _, of := range all {
		maps.Copy(calls, of)
	}
	for call := range calls {
		by := map[int][]int{}
		for i, of := range all {
			by[of[call]] = append(by[of[call]], t.g.Ranks()[i])
		}
		parts := []string(nil)
		for _, n := range slices.Sorted(maps.Keys(by)) {
			parts = append(parts, fmt.Sprintf("%d on %s", n, ranks.Names(by[n]...)))
		}
		if len(by) > 1 {
			says = append(says, call+": "+strings.Join(parts, " and "))
		}
	}
	slices.Sort(says)
	return cmp.Or(err, fmt.Errorf("train: %s; all ranks call Sum alike, and one that has no part gives zero, as Step of a pipeline "+
		"returns it where the last stage is not, or tensor.FromSlice([]float64{0}, 1)", strings.Join(says[:min(len(says), 4)], "; ")))
}
