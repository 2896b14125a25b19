package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/ranks"
)

// Error is the failure of a group. A group has only one: after the first failure every later call on every rank returns it.
type Error struct {
	Rank      int    // the rank that failed, or that noticed the failure; -1 if it is not one rank
	Host      string // where Rank runs, such as "node1, pid 4711"; may be empty
	Group     string // name of the group
	Op        string // such as "allreduce"; empty if no operation failed
	Seq       uint64 // number of the operation in the group, from 1; 0 if it has none yet, as a receive from any rank
	Want, Got string // the two sides of a mismatch, each with its rank
	Cause     error  // what went wrong, if it is not a mismatch
}

// Error returns text such as "rank 1: allreduce seq 7 of group world: count 10 (rank 0) vs 12 (rank 1)".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Rank >= 0 {
		fmt.Fprintf(&b, "rank %d", e.Rank)
		if e.Host != "" {
			fmt.Fprintf(&b, " (host %s)", e.Host)
		}
		b.WriteString(": ")
	}
	switch {
	case e.Op != "" && e.Seq > 0:
		fmt.Fprintf(&b, "%s seq %d of group %s: ", e.Op, e.Seq, e.Group)
	case e.Op != "":
		fmt.Fprintf(&b, "%s of group %s: ", e.Op, e.Group)
	}
	switch {
	case e.Want != "" || e.Got != "":
		fmt.Fprintf(&b, "%s vs %s", e.Want, e.Got)
		if e.Cause != nil {
			fmt.Fprintf(&b, ", %v", e.Cause)
		}
	case e.Cause != nil:
		b.WriteString(e.Cause.Error())
	default:
		b.WriteString("failed")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// ErrLeft and ErrClosed are causes of the failure of an operation that a member will never issue, because its function has returned, or
// because it has closed the group. The Error's Rank is that member.
var (
	ErrLeft   = errors.New("has left the job: it ran fewer operations")
	ErrClosed = errors.New("has closed the group: it ran fewer operations")
)

// OpError returns an Error about op in the group of s. This rank noticed it.
func OpError(s *Spec, op *Op, cause error) *Error {
	return &Error{Rank: s.Ranks[s.Rank], Group: s.Name, Op: op.Asked().String(), Seq: op.Seq, Cause: cause}
}

// Late is the cause of a timeout, on the rank that noticed it. Processes of other ranks get its text only.
type Late struct {
	Ranks []int // world ranks that the operation waits for; none: not known
	text  string
}

// Error returns text such as "ranks 1-3 did not arrive within 5s".
func (e *Late) Error() string { return e.text }

// TimedOut is the cause of a timeout: operation seq of a group with these world ranks made no progress for the time after. If b can tell,
// it names the ranks that the operation waits for.
func TimedOut(b Backend, world []int, seq uint64, after time.Duration) *Late {
	e, why := &Late{}, "no progress"
	if s, ok := b.(Suspecter); ok {
		switch absent, stalled := s.Suspects(seq); {
		case len(absent) > 0:
			e.Ranks, why = worldRanks(world, absent), Names(world, absent)+" did not arrive"
		case len(stalled) > 0:
			e.Ranks, why = worldRanks(world, stalled), Names(world, stalled)+": no progress"
		}
	}
	e.text = fmt.Sprintf("%s within %v", why, after)
	if w, ok := b.(Witness); ok {
		e.text += ": " + w.Whereabouts(seq)
	}
	return e
}

// Names returns text such as "rank 2" or "ranks 1-3, 7". members are indices into world; the text has world ranks.
func Names(world, members []int) string { return ranks.Names(worldRanks(world, members)...) }

func worldRanks(world, members []int) []int {
	list := make([]int, len(members))
	for i, m := range members {
		list[i] = world[m]
	}
	return list
}

// wireError is an Error in a message.
type wireError struct {
	Rank                              int
	Host, Group, Op, Want, Got, Cause string
	Seq                               uint64
	Lost                              bool
}

// Encode returns e as a message of at most limit bytes. lost: the cause is that contact with its rank was lost.
func (e *Error) Encode(lost bool, limit int) []byte {
	w := wireError{Rank: e.Rank, Host: e.Host, Group: e.Group, Op: e.Op, Want: e.Want, Got: e.Got, Seq: e.Seq, Lost: lost}
	if e.Cause != nil {
		w.Cause = e.Cause.Error()
		w.Cause = w.Cause[:min(len(w.Cause), limit/8)] // JSON may need six bytes for one
	}
	return EncodeJSON(w, limit)
}

// EncodeJSON returns the JSON of v, or of nothing if it is longer than limit.
func EncodeJSON(v any, limit int) []byte {
	b, err := json.Marshal(v)
	if err != nil || len(b) > limit {
		return []byte("{}")
	}
	return b
}

// DecodeError returns what Encode was given.
func DecodeError(b []byte) (e *Error, lost bool, err error) {
	var w wireError
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, false, err
	}
	e = &Error{Rank: w.Rank, Host: w.Host, Group: w.Group, Op: w.Op, Seq: w.Seq, Want: w.Want, Got: w.Got}
	if w.Cause != "" {
		e.Cause = errors.New(w.Cause)
	}
	return e, w.Lost, nil
}
