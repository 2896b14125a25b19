package dist

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/compare"
)

// StepCheck decides in which steps an owner of gradients compares what ranks must agree on: in the first six, in six from step 16, 64, 256
// and so on, because losses may take turns, and every Every steps. It compares the rows that ranks got with Rows.Total, by which losses
// divide. If that is wrong, gradients are too large or too small by a factor, and nothing else shows it. It remembers the values of frozen
// parameters, too. ddp and fsdp have one.
type StepCheck struct {
	Every  int // 0: none but these
	steps  int
	rows   rowCheck
	own    map[uint64]tensor.Factor      // of sums, in the last step that was compared and had them (see ownFactors)
	twice  bool                          // in that step, ranks with other rows had the same values
	sums   [len(compare.Fed{}.Sums)]byte // in that step, what inputs added up to on all ranks
	labels bool                          // in that step, ranks had other values for one label
	masks  bool                          // in that step, ranks had other constants for all of their rows
	warned bool
	// replays says that some rank captures steps: while it replays one, which compares nothing, others may run theirs.
	replays bool
	frozen  map[tensor.Tensor]values
	repeats
	scaled
}

// turns is how many steps one after another are compared.
const turns = 6

func (c *StepCheck) due() bool {
	n := c.steps
	inTurn := n < turns || n >= 16 && n < lastPower(n)+turns
	return n < 2 || inTurn && !c.replays || c.Every > 0 && n%c.Every == 0
}

// lastPower returns the largest power of 4 up to n.
func lastPower(n int) int { return 1 << ((bits.Len(uint(n)) - 1) &^ 1) }

// Values reports whether the values of parameters are compared, too, in the step for which Done has returned true: in the first step, the
// second (which shows whether the first changed the same parameters in the same way), steps 4, 16, 64 and so on, and every Every steps.
func (c *StepCheck) Values() bool {
	n := c.steps - 1
	return n < 2 || n == lastPower(n) || c.Every > 0 && n%c.Every == 0
}

// Note notes the rows that the tape of p's gradient was given. Owners call it in GradReady.
func (c *StepCheck) Note(p *tensor.Param) {
	if c.due() {
		c.rows.note(p)
		c.repeats.note(p)
	}
}

// Forget drops what was noted. Call it when a Backward failed and the step begins again.
func (c *StepCheck) Forget() { c.rows, c.repeats, c.passes = rowCheck{}, repeats{}, 0 }

// Done ends a step of the owner's parameters, which are among params; captures says that this rank captures steps. It reports whether
// ranks compare in this step; if so, call Rows.
func (c *StepCheck) Done(owner tensor.Hooks, captures bool, params []*tensor.Param) bool {
	c.replays = c.replays || captures
	due := c.due()
	if due {
		c.sample(owner, params)
	}
	if c.steps++; c.due() && !c.replays {
		for _, p := range params {
			p.CompareNext()
		}
	}
	return due
}

// Replays returns an error if a step that must be compared is captured: replays do not run the comparison.
func (c *StepCheck) Replays(what string, r *tensor.Recording) error {
	if r == nil || c.Every == 0 {
		return nil
	}
	return fmt.Errorf("%s: Config.CheckEvery is %d, and replays of a captured step (see capture.Step) compare nothing: leave it 0",
		what, c.Every)
}

// Rows returns an error unless the ranks of the first group, and of each other group in turn, have together the rows that Rows.Total
// says. It is collective, and all ranks return the same error, which begins with what. It says nothing about rows that are not known, or
// that differ along other axes than those of the groups (axes): types are not checked along them.
func (c *StepCheck) Rows(what string, axes tensor.Axes, groups ...*Group) error {
	defer c.Forget()
	c.rows.Replays, c.ranks, c.first = c.replays, 1, true
	for _, g := range groups {
		c.ranks, c.first = c.ranks*g.Size(), c.first && g.Rank() == 0
	}
	c.excuse(c.rows.given)
	all, err := c.rows.check(what, axes, groups)
	c.replays = c.rows.Replays
	if err == nil {
		c.warn(what, all)
	}
	return err
}

// rowCheck is what a rank was given in one step.
type rowCheck struct {
	given
	unknown bool
}

// given is what one rank was given: parts of the global batch, and the numbers by which it multiplied sums over their rows.
type given struct {
	Rank    int
	Fed     []compare.Fed
	Factors []tensor.Factor
	Replays bool // it, or another rank that it has heard of, captures steps
}

// fed is a part of the global batch that a rank was given.
type fed struct {
	Rank int
	compare.Fed
}

func (c *rowCheck) note(p *tensor.Param) {
	list, all := p.Fed()
	c.unknown = c.unknown || !all
	c.Fed, c.Factors = union(c.Fed, list), union(c.Factors, p.Factors())
}

// union adds to list what it lacks of others.
func union[T comparable](list, others []T) []T {
	for _, x := range others {
		if !slices.Contains(list, x) {
			list = append(list, x)
		}
	}
	return list
}

// check returns what all ranks were given, if it is known.
func (c *rowCheck) check(what string, axes tensor.Axes, groups []*Group) ([]given, error) {
	if c.unknown { // on a rank without rows, which the others cannot know
		c.Fed = []compare.Fed{{N: -1}}
	}
	c.Rank = groups[0].GlobalRank()
	all := []given{c.given}
	for _, g := range groups {
		if g.Size() == 1 {
			continue
		}
		lists, err := AllGatherObject(g, all)
		if err != nil {
			return nil, err
		}
		all = slices.Concat(lists...)
	}
	c.Replays = slices.ContainsFunc(all, func(g given) bool { return g.Replays })
	if axes == 0 && len(all) > 1 {
		return nil, nil
	}
	var parts []fed
	for _, of := range all {
		for _, f := range of.Fed {
			if f.N < 0 || f.Over != axes {
				return nil, nil
			}
			parts = append(parts, fed{of.Rank, f})
		}
	}
	if slices.ContainsFunc(parts, func(f fed) bool { return f.Number == compare.Alike }) {
		for i, f := range parts {
			if f.Number > 1 {
				parts[i].Number = compare.Alike
			}
		}
	}
	return all, cmp.Or(sameCounts(what, parts), addUp(what, parts), sameFactors(what, all), sameTerms(what, all))
}

// sameCounts compares by what losses divided. A rank may have left a loss out that would be 0 there; but if each of two ranks divided by a
// number that the other did not, they had rows with other numbers of elements, and divided by their own.
func sameCounts(what string, all []fed) error {
	counts := map[int]map[int]bool{}
	for _, f := range all {
		if counts[f.Rank] == nil {
			counts[f.Rank] = map[int]bool{}
		}
		for _, n := range f.Counts {
			counts[f.Rank][n] = true
		}
	}
	var others []int // ranks with different counts
	for _, a := range slices.Sorted(maps.Keys(counts)) {
		if slices.ContainsFunc(others, func(b int) bool { return maps.Equal(counts[a], counts[b]) }) {
			continue
		}
		for _, b := range others {
			x, y := only(counts[b], counts[a]), only(counts[a], counts[b])
			if x > 0 && y > 0 && !counts[a][-1] && !counts[b][-1] {
				return fmt.Errorf("%s: a loss divides by the %d elements of the batch on rank %d, and by %d on rank %d: "+
					"their rows have other numbers of elements, such as padding to a rank's longest row; divide a Sum by a count that you "+
					"add up over the ranks (CrossEntropyOptions.Count), or let all pad alike", what, x, b, y, a)
			}
		}
		others = append(others, a)
	}
	return nil
}

// only returns the largest number that x has and y has not; 0 if there is none.
func only(x, y map[int]bool) (most int) {
	for n := range x {
		if !y[n] {
			most = max(most, n)
		}
	}
	return most
}

// batchOf is what all parts of one global batch have in common.
type batchOf struct{ rows, positions, number int }

func (f *fed) batch() batchOf { return batchOf{f.Total, max(f.Seq.Total, 1), f.Number} }

// addUp adds up the parts of each global batch and compares the sum with the batch.
func addUp(what string, all []fed) error {
	batches := map[batchOf][]fed{}
	for _, f := range all {
		batches[f.batch()] = append(batches[f.batch()], f)
	}
	var says []string
	wrong, twice := false, false
	for b, parts := range batches {
		ranks := map[int][]fed{}
		for _, f := range parts {
			ranks[f.Rank] = append(ranks[f.Rank], f)
		}
		sum, union := 0, elements(parts)
		for rank, mine := range ranks {
			n := elements(mine)
			sum += n
			says = append(says, fmt.Sprintf("rank %d has %s", rank, b.say(n)))
		}
		wrong, twice = wrong || union != b.rows*b.positions || union != sum, twice || union != sum
	}
	if !wrong {
		return nil
	}
	slices.Sort(says)
	if twice {
		says = append(says, "some of them twice (microbatches that ranks divide in other ways need a Rows.Number)")
	}
	return fmt.Errorf("%s: the rows of a step do not add up: %s; losses divide by the total, "+
		"so Rows.Total must be what all ranks have together, in all microbatches, and no rank may have another one's rows (see Group.Rows)", what,
		strings.Join(says, ", "))
}

func (b batchOf) say(n int) string {
	if b.positions == 1 {
		return fmt.Sprintf("%d of %d", n, b.rows)
	}
	return fmt.Sprintf("%d of %d×%d positions", n, b.rows, b.positions)
}

// elements returns how many rows, or positions of rows, the parts have. What is in several parts counts once.
func elements(parts []fed) (n int) {
	rows := map[tensor.Span]map[int]bool{} // the rows of each span of positions
	for _, f := range parts {
		all, at := max(f.Positions, 1), f.Seq.Break
		for _, span := range [2]tensor.Span{{First: f.Seq.First, Total: at}, {First: f.Seq.First + at + f.Seq.Skip, Total: all - at}} {
			if rows[span] == nil {
				rows[span] = map[int]bool{}
			}
			for i := range f.N {
				rows[span][f.First+i*f.Stride] = true
			}
		}
	}
	for span, r := range rows {
		n += len(r) * span.Total
	}
	return n
}
