package timeline

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// lateness is how often a rank was the last one in collectives, and by how much.
type lateness struct {
	of   int     // number of collectives
	by   []int64 // for each time it was last: how much later than the median of the others
	most map[string]*sum
}

// latest returns the member that began a collective last, and how much later than the median of the others. If the difference is within
// the possible error of the clocks, it does not count, and the member is -1.
func (m *collective) latest(clocks []Clock) (at int, by int64) {
	parts := slices.SortedFunc(slices.Values(m.parts), func(a, b part) int { return cmp.Compare(a.start, b.start) })
	last, others := parts[len(parts)-1], parts[:len(parts)-1]
	middle := others[len(others)/2]
	by = last.start - middle.start
	a, b, uncertainty := clocks[last.at], clocks[middle.at], int64(0)
	if a.Add != b.Add || a.Within != b.Within { // different clocks
		uncertainty = int64(max(a.Within, 0) + max(b.Within, 0))
	}
	if by <= uncertainty {
		return -1, 0
	}
	return last.at, by
}

func summarizeLate(w io.Writer, ranks []Rank, clocks []Clock) {
	late := make([]lateness, len(ranks))
	complete := 0
	for _, m := range collectives(ranks) {
		if len(m.parts) < len(m.lane.Ranks) || len(m.parts) < 2 {
			continue
		}
		complete++
		for _, p := range m.parts {
			late[p.at].of++
		}
		at, by := m.latest(clocks)
		if at < 0 {
			continue
		}
		late[at].by = append(late[at].by, by)
		if late[at].most == nil {
			late[at].most = map[string]*sum{}
		}
		name := m.name + " of " + m.lane.Group
		if late[at].most[name] == nil {
			late[at].most[name] = new(sum)
		}
		late[at].most[name].time += by
	}
	if complete == 0 {
		return
	}
	rows := [][]string{{"RANK", "LAST", "OF", "SHARE", "MS MEDIAN", "MS LARGEST", "MS IN ALL", "MOST OF IT"}}
	for i, l := range late {
		row := []string{fmt.Sprint(ranks[i].Rank), fmt.Sprint(len(l.by)), fmt.Sprint(l.of), percent(int64(len(l.by)), int64(l.of)),
			"", "", "", ""}
		if n := len(l.by); n > 0 {
			slices.Sort(l.by)
			total := int64(0)
			for _, by := range l.by {
				total += by
			}
			copy(row[4:], []string{msText(l.by[n/2]), msText(l.by[n-1]), msText(total), longest(l.most)[0]})
		}
		rows = append(rows, row)
	}
	table(w, "Who came last to collectives, and how long after the middle one of the others", rows)
}
