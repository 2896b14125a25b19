package pp

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Kind is what an action computes.
type Kind uint8

// The kinds of actions.
const (
	F Kind = iota // forward pass
	B             // backward pass: I and W in one
	I             // backward pass, the gradients of activations alone
	W             // the gradients of weights that an I put off
)

const letters = "FBIW"

// Action is one computation of a microbatch on a stage. Stages count from 0 over all ranks, in the order of the model.
type Action struct {
	Kind         Kind
	Stage, Micro int
}

// String returns the form of torchtitan's files: 3F7.
func (a Action) String() string { return fmt.Sprintf("%d%c%d", a.Stage, letters[a.Kind], a.Micro) }

// ParseAction is the reverse of Action.String.
func ParseAction(text string) (a Action, err error) {
	if k := strings.IndexAny(text, letters); k > 0 {
		stage, wrong := strconv.ParseUint(text[:k], 10, 24)
		micro, bad := strconv.ParseUint(text[k+1:], 10, 24)
		if wrong == nil && bad == nil {
			return Action{Kind(strings.IndexByte(letters, text[k])), int(stage), int(micro)}, nil
		}
	}
	return a, fmt.Errorf("pp: %.20q is not an action such as 3F7", text)
}

// Schedule is what each rank does in a step, in order.
type Schedule struct {
	Name    string
	Micros  int        // microbatches of a step
	Ranks   []int      // by stage: the rank that has it
	Actions [][]Action // of each rank
}

func (s *Schedule) isLast(stage int) bool { return stage == len(s.Ranks)-1 }

// trains reports whether the schedule, which is complete, has backward passes.
func (s *Schedule) trains() bool {
	return slices.ContainsFunc(s.Actions[s.Ranks[0]], func(a Action) bool { return a.Kind != F })
}

// at is the place of an action in a table of all. That of I is B's, too.
func (s *Schedule) at(a Action) int {
	pass := [...]int{F: 0, B: 1, I: 1, W: 2}[a.Kind]
	return (a.Stage*s.Micros+a.Micro)*3 + pass
}

func (s *Schedule) places() int { return 3 * len(s.Ranks) * s.Micros }

// needs are the actions whose results an action needs. I stands for B, too.
func (s *Schedule) needs(a Action) iter.Seq[Action] {
	return func(yield func(Action) bool) {
		switch {
		case a.Kind == W:
			yield(Action{I, a.Stage, a.Micro})
		case a.Kind == F && a.Stage > 0:
			yield(Action{F, a.Stage - 1, a.Micro})
		case a.Kind != F && yield(Action{F, a.Stage, a.Micro}) && !s.isLast(a.Stage):
			yield(Action{I, a.Stage + 1, a.Micro})
		}
	}
}

// sends returns the action of another rank that needs an action's result, if there is one. I stands for B, too.
func (s *Schedule) sends(a Action) (to Action, ok bool) {
	to = Action{F, a.Stage + 1, a.Micro}
	if a.Kind != F {
		to = Action{I, a.Stage - 1, a.Micro}
	}
	return to, a.Kind != W && to.Stage >= 0 && to.Stage < len(s.Ranks) && s.Ranks[to.Stage] != s.Ranks[a.Stage]
}

// task is an action, and what else there is to know of it.
type task struct {
	Action
	number   int // among those of its rank
	to, from int // the rank to which the result goes, and from which an input comes; -1: none
	index    int // of the input, among all that come from there
}

// tasks returns those of each rank, of a complete schedule.
func (s *Schedule) tasks() [][]task {
	all, of, sent := make([][]task, len(s.Actions)), make([]*task, s.places()), map[[2]int]int{}
	for r, list := range s.Actions {
		all[r] = make([]task, len(list))
		for i, a := range list {
			all[r][i] = task{Action: a, number: i, to: -1, from: -1}
			of[s.at(a)] = &all[r][i]
		}
	}
	for r, list := range all {
		for i := range list {
			if b, ok := s.sends(list[i].Action); ok {
				pair, to := [2]int{r, s.Ranks[b.Stage]}, of[s.at(b)]
				list[i].to, to.from, to.index = pair[1], r, sent[pair]
				sent[pair]++
			}
		}
	}
	return all
}

// WriteCSV writes the form that torchtitan and torch read: a line for each rank, with its actions. If it has none, its cells are empty.
func (s *Schedule) WriteCSV(w io.Writer) error {
	for _, list := range s.Actions {
		cells := strings.Fields(strings.Trim(fmt.Sprint(list), "[]"))
		if _, err := fmt.Fprintln(w, cmp.Or(strings.Join(cells, ","), ",")); err != nil {
			return err
		}
	}
	return nil
}

// ReadCSV reads what WriteCSV wrote. Empty cells, with which torch marks a rank that waits, are skipped. A stage is on the rank whose line
// has it, and there are as many microbatches as the largest number says. Check tells whether it is complete.
func ReadCSV(name string, r io.Reader) (*Schedule, error) {
	s, rank, budget := &Schedule{Name: name}, map[int]int{}, bounded.New(0)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := lines.Text()
		budget.Grow(int64(len(line)))
		if strings.TrimSpace(line) == "" {
			continue
		}
		var list []Action
		for cell := range strings.SplitSeq(line, ",") {
			if cell = strings.TrimSpace(cell); cell == "" {
				continue
			}
			a, err := ParseAction(cell)
			if err := cmp.Or(err, budget.Take(memOfAction)); err != nil {
				return nil, fmt.Errorf("rank %d: %w", len(s.Actions), err)
			}
			if q, known := rank[a.Stage]; known && q != len(s.Actions) {
				return nil, fmt.Errorf("pp: stage %d is on ranks %d and %d", a.Stage, q, len(s.Actions))
			}
			rank[a.Stage] = len(s.Actions)
			s.Micros = max(s.Micros, a.Micro+1)
			list = append(list, a)
		}
		s.Actions = append(s.Actions, list)
	}
	for stage := range len(rank) {
		q, known := rank[stage]
		if !known {
			return nil, fmt.Errorf("pp: no rank has stage %d", stage)
		}
		s.Ranks = append(s.Ranks, q)
	}
	return s, lines.Err()
}

const maxLine, memOfAction = 16 << 20, 256 // bytes; an action may have a line and a stage of its own, and lists grow
