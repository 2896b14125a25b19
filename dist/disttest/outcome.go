package disttest

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
)

// End is all interfaces of a Backend over messages or memory. A test that adds a bug to an engine embeds it.
type End interface {
	backend.Backend
	backend.Closer
	backend.Suspecter
	backend.Peeker
	backend.Algorithms
}

// Outcome is how a program ended.
type Outcome struct {
	Errs []error         // of each rank; nil if its function succeeded
	Took []time.Duration // of each rank
	Wire []int           // the two ranks whose connection had a fault; empty: none
	Text string          // describes the fault
}

// String says what happened.
func (o *Outcome) String() string {
	if o == nil {
		return "no outcome"
	}
	s := cmp.Or(o.Text, "no fault") + "\n"
	for rank, err := range o.Errs {
		s += fmt.Sprintf("  rank %d after %v: %v\n", rank, o.Took[rank], err)
	}
	return s
}

// Judge returns what is wrong with the outcome of a program, or nil. These must hold:
//
//   - No rank takes a wrong result for a right one.
//   - Each rank except the one that sleeps ends within four timeouts. (A timeout counts from the last progress, and one rank may
//     have to wait for another to time out.)
//   - Without a mishap and without a fault no rank fails.
//   - A rank may succeed in spite of a mishap or a fault that does not affect its operations. A rank that fails has a *dist.Error
//     whose cause is the mishap or the fault: it names the rank that slept, left, failed, aborted or differed, or one side of the
//     connection that had the fault. A timeout may also name a rank that waits itself, if that one fails, too.
//   - If one rank knows the cause (it fails or aborts), all errors say the same. If a rank differs, several others may notice it at
//     the same time: then each error names that rank and the one that noticed. The rank that differs may also wait in vain for ranks
//     that have finished. If messages and collectives were mixed up, all ranks may wait in vain.
func (p *Program) Judge(o *Outcome) error {
	text := ""
	for rank, err := range o.Errs {
		var w *wrong
		late := o.Took[rank] > 4*p.Timeout && !(p.Mishap == Sleeps && rank == p.Who)
		switch {
		case errors.As(err, &w):
			return fmt.Errorf("rank %d: %w", rank, err)
		case late:
			return fmt.Errorf("rank %d took %v: %w", rank, o.Took[rank], err)
		case err == nil || p.excused(o, rank, err):
			continue
		case !p.explained(o, rank, err):
			return fmt.Errorf("rank %d fails without a cause: %w", rank, err)
		}
		if len(o.Wire) == 0 && (p.Mishap == Fails || p.Mishap == Aborts) {
			var e *dist.Error
			errors.As(err, &e)
			if text == "" {
				text = e.Error()
			}
			if text != e.Error() {
				return fmt.Errorf("rank %d says %q, another rank %q", rank, e.Error(), text)
			}
		}
	}
	return nil
}

// excused: the rank that caused the mishap may get any error of a group.
func (p *Program) excused(o *Outcome, rank int, err error) bool {
	if p.Mishap == Nothing || rank != p.Who {
		return false
	}
	var e *dist.Error
	return p.Mishap == Fails && strings.Contains(err.Error(), p.boom().Error()) ||
		(p.Mishap == Sleeps || p.Mishap == Leaves) && errors.As(err, &e)
}

func (p *Program) explained(o *Outcome, rank int, err error) bool {
	var e *dist.Error
	if !errors.As(err, &e) {
		return false
	}
	guilty := append([]int(nil), o.Wire...)
	if p.Mishap != Nothing {
		guilty = append(guilty, p.Who)
	}
	if len(o.Wire) == 2 && (e.Rank == o.Wire[0] || e.Rank == o.Wire[1] || p.timedOut(o, e, guilty)) {
		return true
	}
	blamed := fmt.Sprintf("rank %d", p.Who)
	switch p.Mishap {
	case Sleeps:
		return p.timedOut(o, e, guilty)
	case Leaves:
		return e.Rank == p.Who && strings.Contains(e.Error(), "has left the job")
	case Fails, Aborts:
		return e.Rank == p.Who && strings.Contains(e.Error(), p.boom().Error())
	case Differs:
		return e.Want != "" && strings.Contains(e.Error(), blamed) || p.departed(o, e) ||
			actions[p.steps[p.At].what].messages() && p.timedOut(o, e, guilty)
	}
	return false
}

// departed reports whether e says that a rank has left, and that rank really had nothing more to do.
func (p *Program) departed(o *Outcome, e *dist.Error) bool {
	return strings.Contains(e.Error(), "has left the job") && e.Rank >= 0 && e.Rank < len(o.Errs) && o.Errs[e.Rank] == nil
}

var missing = regexp.MustCompile(`ranks? ([0-9, -]+)(: no progress| did not arrive)`)

// timedOut reports whether e is a timeout that names ranks that caused it, or that failed themselves.
func (p *Program) timedOut(o *Outcome, e *dist.Error, guilty []int) bool {
	if strings.Contains(e.Error(), "nothing arrived from any rank") { // no rank can tell which one should have sent
		return len(guilty) > 0
	}
	m := missing.FindStringSubmatch(e.Error())
	if m == nil {
		return false
	}
	for _, s := range strings.Split(m[1], ", ") {
		first, last, through := strings.Cut(s, "-")
		if !through {
			last = first
		}
		lo, err := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || hi >= len(o.Errs) {
			return false
		}
		for named := lo; named <= hi; named++ {
			if !slices.Contains(guilty, named) && o.Errs[named] == nil {
				return false
			}
		}
	}
	return true
}
