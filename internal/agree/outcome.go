package agree

import (
	"fmt"
	"slices"

	names "github.com/ringo-ml/ringo/internal/ranks"
)

// Outcome returns the ranks of the new group after a decision. ranks are those of the old group, whose generation is gen. A member that
// is not in the new group gets an error.
func Outcome(decided []int, me int, ranks []int, gen uint32) ([]int, error) {
	if !slices.Contains(decided, me) {
		return nil, fmt.Errorf("generation %d is over: %s went on without this rank", gen, names.Names(pick(decided, ranks)...))
	}
	return pick(decided, ranks), nil
}

// TooFew returns the error of members that are not a quorum.
func TooFew(here []int, ranks []int, gen uint32) error {
	return fmt.Errorf("generation %d is over: of %d ranks only %s asked for a new one: it takes more than half, or half with rank %d",
		gen, len(ranks), names.Names(pick(here, ranks)...), ranks[0])
}

func pick(list, ranks []int) []int {
	out := make([]int, len(list))
	for i, m := range list {
		out[i] = ranks[m]
	}
	return out
}
