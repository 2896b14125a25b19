package order

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what follows events into testdata")

// player is a rank that does at once what its order says.
type player struct {
	*Order
	names []string
	sent  map[bool][]string // what all ranks must do alike: gathers, and reductions, which are apart from them
}

// newPlayer makes the units of a list such as "a B/mixed c/hops". One in upper case is kept.
func newPlayer(list string) *player {
	p := &player{sent: map[bool][]string{}}
	var units []Unit
	for i, word := range strings.Fields(list) {
		name, kind, _ := strings.Cut(word, "/")
		u := Unit{Keep: name == strings.ToUpper(name), Has: Trained, Pool: 1, Hops: kind == "hops"}
		if u.Keep {
			u.Pool = 2 + i
		}
		switch kind {
		case "frozen":
			u.Has = Frozen
		case "mixed":
			u.Has |= Frozen
		case "whole": // whole gradients stay
			u.Pool = 0
		}
		units, p.names = append(units, u), append(p.names, name)
	}
	p.Order = New(units)
	return p
}

// event does what a tape or an optimizer does, such as "forward a" or "step". It returns what follows.
func (p *player) event(event string) string {
	words := strings.Fields(event)
	u := -1
	if len(words) > 1 {
		u = slices.Index(p.names, words[1])
	}
	switch words[0] {
	case "forward":
		return p.do(p.Use(u, Forward))
	case "begin":
		return p.begin(words[1:])
	case "backward":
		return p.do(p.Use(u, Backward))
	case "gradient":
		return p.do(p.GradReady(u))
	case "over":
		return p.finish(func(unit int) bool { return slices.Contains(words[1:], p.names[unit]) })
	case "end":
		return p.end()
	case "step":
		defer p.Stepped()
		return p.do(p.ReshardAll())
	case "changed":
		part := Trained
		if len(words) > 2 {
			part = Frozen
		}
		p.Changed(u, part)
	case "record":
		return p.do(p.Record(u)) + p.do(p.Replay())
	case "replay":
		return p.do(p.Replay())
	case "failed":
		p.Forget()
	case "abandoned":
		p.Abandon()
	default:
		panic("event " + event)
	}
	return ""
}

// begin begins Backward, in which every unit gets a gradient, but for those that are named. With "more" it puts reductions off.
func (p *player) begin(words []string) string {
	s := p.do(p.BeginBackward(!slices.Contains(words, "more"), slices.Contains(words, "recorded")))
	for _, unit := range p.Reduces() {
		n := 1
		if slices.Contains(words, "-"+p.names[unit]) {
			n = 0
		}
		p.Await(unit, n)
	}
	return s + p.do(p.Ready())
}

// end ends Backward.
func (p *player) end() string {
	s := p.do(p.EndBackward())
	if p.reducing {
		s += p.finish(func(int) bool { return true })
	}
	return s
}

func (p *player) finish(over func(int) bool) (s string) {
	for todo := p.Finish(over); len(todo) > 0; todo = p.Finish(over) {
		s += p.do(todo)
	}
	return s
}

// do notes actions.
func (p *player) do(todo []Action) string {
	var b strings.Builder
	for _, a := range todo {
		verb := []string{"agree forward", "agree backward", "agree new forward", "misplaced", "unshard", "wait", "reshard", "lend", "reduce",
			"hop", "wait reduce"}[a.Do]
		line := verb + " " + p.names[a.Unit]
		has := p.units[a.Unit].Has
		switch {
		case a.Do != Unshard || a.Stale == has:
		case a.Stale == 0:
			line += " again"
		default:
			line += map[Sections]string{Trained: " trained", Frozen: " frozen"}[a.Stale]
		}
		if reduces := a.Do == Reduce; reduces || a.Do <= Unshard {
			p.sent[reduces] = append(p.sent[reduces], line)
		}
		b.WriteString(", " + line)
	}
	return b.String()
}

// transcript plays the events at the beginning of lines, and writes what follows behind them.
func transcript(script string) string {
	var b strings.Builder
	var p *player
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		event, list, _ := strings.Cut(line, ":")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			b.WriteString(line + "\n")
		case event == "units":
			p = newPlayer(list)
			b.WriteString(line + "\n")
		default:
			b.WriteString(strings.TrimSpace(event+": "+strings.TrimPrefix(p.event(event), ", ")) + "\n")
		}
	}
	return b.String()
}

// What a rank does in turn.
func TestTranscripts(t *testing.T) {
	const file = "testdata/transcripts.txt"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(transcript(string(text))), 0o644))
		return
	}
	for part := range strings.SplitSeq(string(text), "\n\n") {
		title, _, _ := strings.Cut(strings.TrimPrefix(part, "# "), "\n")
		t.Run(title, func(t *testing.T) { require.Equal(t, strings.TrimSpace(part), strings.TrimSpace(transcript(part))) })
	}
}

// Whatever ranks leave out, they compare, gather and reduce the same units, in one order. What is used is there. One unit is whole, and one
// is being gathered, at most; and whole gradients are those of two units.
func TestRanksAgree(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		list := ""
		for _, letter := range "abcdef"[:2+rng.IntN(5)] {
			if rng.IntN(4) == 0 {
				letter += 'A' - 'a'
			}
			list += " " + string(letter) + []string{"", "", "/mixed", "/frozen"}[rng.IntN(4)]
		}
		ranks := []*player{newPlayer(list), newPlayer(list), newPlayer(list)}
		for step := range 6 {
			for _, p := range ranks {
				p.pass(t, rng, step == 0)
			}
			for _, p := range ranks {
				require.Equal(t, ranks[0].sent, p.sent, "seed %d, step %d of %s", seed, step, list)
			}
		}
	}
}

// Units that the first step leaves out find their places, in whatever steps they are used, on all ranks alike: Backward never refuses one,
// and in the end ranks need not agree any more.
func TestLearnsLater(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		p := newPlayer(" a b c d e f"[:4+2*rng.IntN(5)])
		for step := range 100 {
			p.pass(t, rng, false)
			if sent := strings.Join(p.sent[false], ", "); strings.Contains(sent, "misplaced") || step > 80 && strings.Contains(sent, "agree") {
				require.Fail(t, "agrees", "seed %d, step %d: %s", seed, step, sent)
			}
			clear(p.sent)
		}
	}
}

// pass plays a step. All ranks use the first unit, and in the first step all units.
func (p *player) pass(t *testing.T, rng *rand.Rand, first bool) {
	var used []int
	for i := range p.names {
		if first || i == 0 || rng.IntN(3) > 0 {
			used = append(used, i)
			p.use(t, i, Forward)
		}
	}
	p.do(p.BeginBackward(true, false))
	for _, i := range p.Reduces() {
		n := 0
		if slices.Contains(used, i) {
			n = 1
		}
		p.Await(i, n)
	}
	p.do(p.Ready())
	for _, i := range slices.Backward(used) {
		p.use(t, i, Backward)
		if p.units[i].Has&Trained != 0 {
			p.do(p.GradReady(i))
		}
		p.finish(func(int) bool { return rng.IntN(2) == 0 })
		require.LessOrEqual(t, p.pools[1].lent, inFlight, p.names[i])
	}
	p.end()
	p.event("step")
}

func (p *player) use(t *testing.T, unit int, in Phase) {
	p.do(p.Use(unit, in))
	require.True(t, p.units[unit].gathered, p.names[unit])
	whole := 0
	for _, u := range p.units {
		if !u.Keep && u.gathered {
			whole++
		}
	}
	require.LessOrEqual(t, whole, 1, fmt.Sprint(p.names[unit], in)) // and another one is being gathered
}
