//go:build unix

package dist_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/netns"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// rebuildChild is a rank that trains through failures. deaths says who dies and when: "1@5" kills rank 1 before step 5, "3@5r" shortly
// after that, while the others rebuild. The others print their result.
func rebuildChild(spec string) error {
	steps, deaths, _ := strings.Cut(spec, ",")
	total, err := strconv.Atoi(steps)
	return errors.Join(err, dist.Run(context.Background(), dist.Config{Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		world := r.World.Rank()
		g, sum, err := disttest.Train(ctx, r.World, total, func(g *dist.Group, step int) {
			if step == 2 && world == 0 {
				fmt.Println("ready")
			}
			if total > 1000 { // until the cable is pulled, and for a while after it
				<-time.After(time.Millisecond)
			}
			for _, d := range strings.Fields(deaths) {
				switch d {
				case fmt.Sprintf("%d@%d", world, step):
					die()
				case fmt.Sprintf("%d@%dr", world, step):
					time.AfterFunc(time.Duration(rand.N(2000))*time.Microsecond, die)
				}
			}
		})
		if err != nil {
			fmt.Println("ended:", err)
			return nil
		}
		fmt.Printf("ended: %v sum %v in generation %d\n", g.Ranks(), sum, g.Generation())
		return nil
	}))
}

func die() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// trained returns what all survivors must print: the members, and their sum.
func trained(t *testing.T, j *processJob, ranks ...int) string {
	t.Helper()
	said := ""
	for _, r := range ranks {
		end, _ := j.ranks[r].await(t, "ended: ")
		if said == "" {
			said = end
		}
		assert.Equal(t, said, end, "rank %d", r)
	}
	assert.True(t, strings.HasPrefix(said, fmt.Sprintf("[%s] sum ", strings.Trim(fmt.Sprint(ranks), "[]"))), said)
	return said
}

// Processes die one after the other, also while the rest rebuild. Every sum of the ranks that are left is right (Train checks), and all
// end with the same one. The short form has two cases, each on one engine.
func TestRebuildProcesses(t *testing.T) {
	for i, c := range []struct {
		n      int
		deaths string
		left   []int
		gen    int // 0: depends on the exact time
	}{
		{3, "1@10", []int{0, 2}, 2},
		{3, "0@10", []int{1, 2}, 2}, // the first leader is dead
		{5, "1@10 3@10", []int{0, 2, 4}, 0},
		{5, "1@10 2@20", []int{0, 3, 4}, 3}, // twice
		{2, "1@10", []int{0}, 2},
		{5, "1@10 3@10r", []int{0, 2, 4}, 0},
		{5, "1@10 0@10r", []int{2, 3, 4}, 0},
		{7, "1@10 0@10r 2@10r", []int{3, 4, 5, 6}, 0},
	} {
		for engine, env := range engines {
			if !reliability.Long(t) && (i > 1 || (engine == "tcp") != (i%2 == 0)) {
				continue
			}
			t.Run(fmt.Sprintf("%s %d ranks, %s", engine, c.n, c.deaths), func(t *testing.T) {
				t.Parallel()
				j := startJob(t, c.n, nil, 0, "DIST_TEST_CHILD=rebuild:30,"+c.deaths, env, "RINGO_TIMEOUT=20s") // deaths are noticed at once
				said := trained(t, j, c.left...)
				if c.gen > 0 {
					assert.Contains(t, said, fmt.Sprintf("generation %d", c.gen))
				}
			})
		}
	}
}

func TestLongRebuildProcesses(t *testing.T) { reliability.AsLong(t, TestRebuildProcesses) }

// With two ranks, rank 1 cannot know whether rank 0 is dead or the network is cut.
func TestRebuildNoQuorum(t *testing.T) {
	j := startJob(t, 2, nil, 0, "DIST_TEST_CHILD=rebuild:30,0@10", "RINGO_TIMEOUT=5s")
	end, _ := j.ranks[1].await(t, "ended: ")
	assert.Contains(t, end, "rank 1: rebuild seq 1 of group world: generation 1 is over: of 2 ranks only rank 1 asked for a new one: "+
		"it takes more than half, or half with rank 0")
}

// If the network is cut, only one part continues. Ranks of the other part get an error, also when the cable is plugged in again.
func TestLongRebuildCut(t *testing.T) {
	reliability.SkipUnlessLong(t)
	for _, c := range []struct {
		name        string
		n, hosts    int
		left, minor []int
	}{
		{"one of three", 3, 3, []int{0, 1}, []int{2}},
		{"half with rank 0", 4, 2, []int{0, 1}, []int{2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts := netns.New(t, c.hosts)
			timeout := time.Second
			j := startJob(t, c.n, hosts, 29_500, "DIST_TEST_CHILD=rebuild:2500,", "RINGO_TIMEOUT="+timeout.String())
			j.ranks[0].await(t, "ready")
			struck := time.Now()
			hosts[c.hosts-1].Cut()
			for _, r := range c.minor {
				end, at := j.ranks[r].await(t, "ended: ")
				assert.Contains(t, end, "generation 1 is over: of", "rank %d", r)
				reliability.Took(t, 46, "tcp", 2*timeout+200*time.Millisecond, at.Sub(struck))
			}
			hosts[c.hosts-1].Mend()
			assert.Contains(t, trained(t, j, c.left...), "generation 2")
		})
	}
}
