package nccl_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// Random programs, in which a rank aborts or closes a group, or leaves, at any time: all ends, and is given back.
func TestRandomEnds(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Only(t, "it takes several devices")
	emu.Start(t, emu.Config{}) // may compile it
	programs := 5
	if reliability.Long(t) {
		programs = 200
	}
	goroutines := runtime.NumGoroutine()
	for seed := range uint64(programs) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { random(t, seed) })
	}
	// and that of Eventually
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+1 }, 20*time.Second, time.Millisecond)
}

func TestLongRandomEnds(t *testing.T) { reliability.AsLong(t, TestRandomEnds) }

func random(t *testing.T, seed uint64) {
	begin := time.Now()
	n := 2 + int(seed%3)
	ranks(t, n, emu.Config{Seed: seed + 1, Delay: 100 * time.Microsecond}, func(r *rank) error {
		p := program{r: r, all: rand.New(rand.NewPCG(seed, 0)), mine: rand.New(rand.NewPCG(seed, uint64(1+r.me)))}
		var err error
		for i := 0; i < 50 && err == nil && p.mine.IntN(200) > 0; i++ {
			err = p.step()
		}
		if p.mine.IntN(2) == 0 {
			r.engine.Finish()
		}
		for _, g := range p.groups {
			if g != nil {
				err = errors.Join(err, g.close())
			}
		}
		return err
	})
	require.Less(t, time.Since(begin), 10*time.Second+reliability.Slack)
}

// program is a random program. Ranks do the same, but for what mine decides, and where a group has failed.
type program struct {
	r         *rank
	all, mine *rand.Rand
	groups    []*end // nil: this rank is not in it, or did not make it
}

func (p *program) step() error {
	what, which := p.all.IntN(8), p.all.IntN(max(1, len(p.groups)))
	colors := make([]int, p.r.n)
	for i := range colors {
		colors[i] = p.all.IntN(3) - 1
	}
	if what == 0 || len(p.groups) == 0 {
		return p.open(p.r.spec(fmt.Sprint("group ", len(p.groups)), time.Second))
	}
	g := p.groups[which]
	if g == nil {
		if what == 2 {
			p.groups = append(p.groups, nil)
		}
		return nil
	}
	if p.mine.IntN(60) == 0 {
		_ = g.Abort(fmt.Errorf("rank %d has had enough", p.r.me))
	}
	if p.mine.IntN(60) == 0 {
		_ = g.Backend.(backend.Closer).Close()
		g.left = true
	}
	switch what { // a group may have failed, or be closed
	case 1:
		_ = g.waitIfOpen()
	case 2:
		return p.split(g, colors)
	case 3:
		g.Backend.(backend.DeviceUser).Order(g.seq)
	default:
		if g.issue() != nil {
			g.seq--
		} else if g.seq%16 == 0 {
			_ = g.waitIfOpen()
		}
	}
	return nil
}

// split makes the groups of the ranks that have the same color, by rank.
func (p *program) split(g *end, colors []int) error {
	color := colors[p.r.me]
	s := p.r.spec(fmt.Sprintf("%s/%d[%d]", g.spec.Name, len(p.groups), color), time.Second)
	s.Ranks, s.Parent = nil, g.spec.ID
	for _, rank := range g.spec.Ranks {
		if rank == p.r.me {
			s.Rank = len(s.Ranks)
		}
		if colors[rank] == color {
			s.Ranks = append(s.Ranks, rank)
		}
	}
	if g.waitIfOpen() != nil {
		p.groups = append(p.groups, nil)
		return nil
	}
	g.split(s.ID, color, s.Rank)
	if color < 0 || p.mine.IntN(10) == 0 { // some never open it
		p.groups = append(p.groups, nil)
		return nil
	}
	return p.open(s)
}

func (g *end) waitIfOpen() error {
	if g.left {
		return backend.ErrClosed
	}
	return g.wait()
}

func (p *program) open(s backend.Spec) error {
	g, err := p.r.endOf(s)
	p.groups = append(p.groups, g)
	return err
}
