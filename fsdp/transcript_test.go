package fsdp

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
)

// player is a rank that does at once what its order says.
type player struct {
	order
	units []*Unit
	sent  []string // what all ranks must do alike
}

// newPlayer returns a player with a unit for each letter. One in upper case is kept.
func newPlayer(names string) *player {
	p := &player{}
	for i, name := range strings.Split(names, "") {
		u := &Unit{index: i, name: name, keep: name == strings.ToUpper(name)}
		u.trained().n = 1
		p.units = append(p.units, u)
	}
	return p
}

// event does what a tape or an optimizer does, such as "forward a", "Backward", "Backward a", "done" or "step". It returns what follows.
func (p *player) event(event string) string {
	what, name, one := strings.Cut(event, " ")
	var todo []action
	var err error
	switch {
	case one:
		u := p.units[slices.IndexFunc(p.units, func(u *Unit) bool { return u.name == name })]
		todo, err = p.next(u, map[string]tensor.Phase{"forward": tensor.Forward, "Backward": tensor.Backward}[what])
	case what == "Backward":
		todo = p.beginBackward()
	case what == "done":
		todo = p.endBackward()
	case what == "step":
		todo = p.reshardAll()
		defer func() {
			for _, u := range p.units {
				u.trained().change()
			}
		}()
	}
	if err != nil {
		return err.Error()
	}
	return p.perform(todo)
}

// perform does what Sharding.perform does, without values.
func (p *player) perform(todo []action) string {
	var lines []string
	for _, a := range todo {
		u := a.u
		switch a.do {
		case unshard:
			u.gathered, u.trained().fresh = false, true
		case waitUnshard:
			u.gathered = true
		case reshard:
			u.gathered = u.gathered && u.keep
		}
		line := []string{"agree forward", "agree Backward", "agree new forward", "unshard", "wait", "reshard"}[a.do] + " " + u.name
		lines = append(lines, line)
		if a.do <= unshard {
			p.sent = append(p.sent, line)
		}
	}
	return strings.Join(lines, ", ")
}

// transcript plays the events at the beginning of lines, and writes what follows behind them.
func (p *player) transcript(script string) string {
	var b strings.Builder
	for line := range strings.Lines(script) {
		event, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		b.WriteString(strings.TrimSpace(event+": "+p.event(event)) + "\n")
	}
	return b.String()
}

const learnThree = `forward a: agree forward a, unshard a, wait a
forward b: reshard a, agree forward b, unshard b, wait b
forward c: reshard b, agree forward c, unshard c, wait c
Backward:
Backward c:
Backward b: reshard c, agree Backward b, unshard b, wait b
Backward a: reshard b, agree Backward a, unshard a, wait a
done: reshard a
step:
`

// What a rank does in turn: in the first step, which learns the order, and in later ones.
func TestOrderTranscripts(t *testing.T) {
	for name, c := range map[string]struct{ units, want string }{
		"a step gathers the next unit while one is in use": {"abc", learnThree + `forward a: unshard a, wait a, unshard b
forward b: reshard a, wait b, unshard c
forward b:
forward c: reshard b, wait c
Backward: unshard b
Backward c:
Backward b: reshard c, wait b, unshard a
Backward a: reshard b, wait a
done: reshard a
step:
`},
		"a unit of Keep is gathered once": {"Kb", `forward K: agree forward K, unshard K, wait K
forward b: agree forward b, unshard b, wait b
forward K:
Backward:
Backward K:
Backward b:
done: reshard b
forward K:
step:
forward K: unshard K, wait K, unshard b
forward b: wait b
`},
		"what is not used is gathered all the same": {"abc", learnThree + `forward a: unshard a, wait a, unshard b
forward c: reshard a, wait b, reshard b, unshard c, wait c
Backward: unshard b
Backward c:
Backward a: reshard c, wait b, reshard b, unshard a, wait a
done: reshard a
step:
forward a: unshard a, wait a, unshard b
Backward: wait b, reshard b, unshard c, wait c, reshard c, unshard b
done: wait b, reshard b, unshard a, wait a, reshard a
`},
		"an evaluation ends where the next forward pass begins": {"abc", learnThree + `forward a: unshard a, wait a, unshard b
forward b: reshard a, wait b, unshard c
forward a: reshard b, wait c, reshard c, agree new forward a, unshard a, wait a, unshard b
forward b: reshard a, wait b, unshard c
step: wait c, reshard c, reshard b
`},
		"another tape's Backward comes first": {"ab", `forward a: agree forward a, unshard a, wait a
forward b: reshard a, agree forward b, unshard b, wait b
Backward:
Backward b:
Backward a: reshard b, agree Backward a, unshard a, wait a
done: reshard a
Backward: unshard a
Backward b: agree Backward b, unshard b, wait b
Backward a: reshard b, wait a
done: reshard a
`},
		"a unit that is used twice": {"ab", `forward a: agree forward a, unshard a, wait a
forward b: reshard a, agree forward b, unshard b, wait b
forward a: reshard b, agree new forward a, unshard a, wait a, unshard b
`},
		"Backward changes the order": {"abc", learnThree + `forward a: unshard a, wait a, unshard b
forward b: reshard a, wait b, unshard c
forward c: reshard b, wait c
Backward: unshard b
Backward a: reshard c, wait b, reshard b, unshard a, wait a
Backward b: b is used at another place in Backward than in the first step
`},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, newPlayer(c.units).transcript(c.want)) })
	}
}

// Whatever ranks leave out, they compare and gather the same units, in one order; what is used is there, and at most two units are whole.
func TestOrderIsThatOfAllRanks(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		names := ""
		for _, letter := range "abcdef"[:2+rng.IntN(5)] {
			if rng.IntN(4) == 0 {
				letter += 'A' - 'a'
			}
			names += string(letter)
		}
		ranks := []*player{newPlayer(names), newPlayer(names), newPlayer(names)}
		for step := range 6 {
			for _, p := range ranks {
				p.pass(t, rng, names, step == 0)
			}
			for _, p := range ranks {
				require.Equal(t, ranks[0].sent, p.sent, "seed %d, step %d of %s", seed, step, names)
			}
		}
	}
}

// pass plays a forward pass, and Backward and a step. All ranks use the first unit, and in the first step all units.
func (p *player) pass(t *testing.T, rng *rand.Rand, names string, first bool) {
	var used []string
	for i, name := range strings.Split(names, "") {
		if first || i == 0 || rng.IntN(3) > 0 {
			used = append(used, name)
			p.use(t, "forward "+name)
		}
	}
	p.event("Backward")
	for _, name := range slices.Backward(used) {
		p.use(t, "Backward "+name)
	}
	p.event("done")
	p.event("step")
}

func (p *player) use(t *testing.T, event string) {
	p.event(event)
	whole := 0
	for _, u := range p.units {
		if strings.HasSuffix(event, u.name) {
			require.True(t, u.gathered, event)
		}
		if u.gathered && !u.keep {
			whole++
		}
	}
	require.LessOrEqual(t, whole, 1, event) // and another one is being gathered
}
