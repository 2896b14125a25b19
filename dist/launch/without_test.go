//go:build linux || darwin

package launch

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// alone is the coordinator of a job of n ranks on one host, whose notes stay in the queue of its wire.
func alone(t *testing.T, n int) *coordinator {
	self := &node{hello: hello{Ranks: n, Min: 1, Max: 1}, wire: &wire{wakeup: make(chan struct{}, 1)}, running: n}
	c := &coordinator{config: &Config{Ranks: n, Rebuild: true}, nodes: map[int]*node{0: self}, members: []*node{self}, gen: 1, running: n,
		ranks: make([]rankState, n), deadline: time.NewTimer(time.Hour), stall: time.NewTimer(time.Hour)}
	t.Cleanup(func() { c.deadline.Stop(); c.stall.Stop() })
	return c
}

func (c *coordinator) notices() (texts []string) {
	for _, n := range c.nodes[0].wire.queue {
		if n.Notice != "" {
			texts = append(texts, n.Notice)
		}
	}
	return texts
}

// Two ranks are killed at once, and the others agree about one after the other: each is named once, and nothing is left to report.
func TestWithoutTwo(t *testing.T) {
	c := alone(t, 5)
	self := c.nodes[0]
	for _, rank := range []int{0, 3} {
		c.handle(incoming{from: self, note: note{Ended: &ended{Gen: 1, Rank: rank, Status: -1, Signal: int(syscall.SIGKILL)}}})
	}
	for _, rank := range []int{3, 0} {
		for _, by := range []int{1, 2} { // all say it
			c.handle(incoming{from: self, note: note{Without: &without{Gen: 1, Rank: by, Ranks: []int{rank}}}})
		}
		assert.Equal(t, rank == 3, c.deadline.Stop(), "ranks that must still agree have a time limit")
	}
	assert.Equal(t, []string{
		"rank 3 was killed by signal killed\n4 ranks go on without rank 3",
		"rank 0 was killed by signal killed\n3 ranks go on without rank 0",
	}, c.notices())
	code, text := c.result()
	assert.Zero(t, code)
	assert.Empty(t, text)
}

// A rank that is stopped is killed when the others go on, which is no failure. A rank that fails later is the cause, and the lost one
// does not count.
func TestWithoutStopped(t *testing.T) {
	c := alone(t, 4)
	self := c.nodes[0]
	c.handle(incoming{from: self, note: note{Without: &without{Gen: 1, Rank: 0, Ranks: []int{2}}}})
	assert.Equal(t, []int{2}, self.wire.queue[0].Lost)
	c.handle(incoming{from: self, note: note{Ended: &ended{Gen: 1, Rank: 2, Status: -1, Signal: int(syscall.SIGKILL), Killed: true}}})
	assert.Nil(t, c.firstCause())
	c.handle(incoming{from: self,
		note: note{Report: &report{Gen: 1, Rank: 1, What: message{Kind: Primary, Rank: 1, Text: "rank 1: a bad row"}}}})
	for _, rank := range []int{0, 1, 3} {
		c.handle(incoming{from: self, note: note{Ended: &ended{Gen: 1, Rank: rank, Status: 5}}})
	}
	code, text := c.result()
	assert.Equal(t, 5, code)
	assert.Equal(t, "rank 1 failed: a bad row (and 2 ranks failed because of it)", text)
}

// All ranks that are left are stopped. If none has ended, the job may go on later. After a failure they are killed at once. If others have
// ended well, or are lost, they are given up after the time that ranks have after a failure. Without Rebuild, a lost rank is a failure.
func TestAllLeftStopped(t *testing.T) {
	for _, rebuild := range []bool{false, true} {
		allLeftStopped(t, rebuild)
	}
}

func allLeftStopped(t *testing.T, rebuild bool) {
	limit, lost, lostCause := 7*time.Second, heartbeat, "rank 2 was killed by signal killed"
	const left = "no rank that is left sends heartbeats"
	if rebuild {
		limit, lost, lostCause = 22*time.Second, 22*time.Second, left
	}
	status := func(c *coordinator, code int) {
		c.handle(incoming{from: c.nodes[0], note: note{Ended: &ended{Gen: 1, Rank: 2, Status: code}}})
	}
	for name, x := range map[string]struct {
		before func(c *coordinator)
		pause  time.Duration // with heartbeats, in the middle
		after  time.Duration // 0: never
		cause  string
	}{
		"none has ended":     {before: func(*coordinator) {}},
		"a signal":           {before: func(c *coordinator) { status(c, 0); c.interrupt(syscall.SIGTERM) }},
		"for a short time":   {before: func(c *coordinator) { status(c, 0) }, pause: 3 * heartbeat},
		"one has failed":     {func(c *coordinator) { status(c, 5) }, 0, heartbeat, "rank 2 exited with status 5"},
		"one has ended well": {func(c *coordinator) { status(c, 0) }, 0, limit, left},
		"one is lost": {func(c *coordinator) {
			c.handle(incoming{from: c.nodes[0], note: note{Ended: &ended{Gen: 1, Rank: 2, Status: -1, Signal: int(syscall.SIGKILL)}}})
			c.handle(incoming{from: c.nodes[0], note: note{Without: &without{Gen: 1, Ranks: []int{2}}}})
		}, 0, lost, lostCause},
		"one is lost, then one has ended": {func(c *coordinator) {
			c.handle(incoming{from: c.nodes[0], note: note{Without: &without{Gen: 1, Ranks: []int{1}}}})
			status(c, 0)
		}, 0, limit, left},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := alone(t, 3)
			c.config.Rebuild, c.config.Timeout = rebuild, 5*time.Second
			middle := int((limit - 2*time.Second) / heartbeat)
			x.before(c)
			killed, began := time.Duration(0), time.Now()
			for tick := 1; tick < 2*middle && killed == 0; tick++ {
				time.Sleep(heartbeat)
				if tick == middle {
					time.Sleep(x.pause)
				}
				c.handle(incoming{from: c.nodes[0], note: note{Silent: 1}})
				if queue := c.sent(); len(queue) > 0 && queue[len(queue)-1].Kill {
					killed = time.Since(began)
				}
			}
			if x.after == 0 {
				assert.Zero(t, killed, "%s, %v", name, rebuild)
				return
			}
			require.InDelta(t, x.after, killed, float64(heartbeat), "%s, %v", name, rebuild)
			assert.Equal(t, x.cause, c.firstCause().text, "%s, %v", name, rebuild)
			c.config.MaxRestarts = 1
			assert.True(t, c.restart(), name)
		})
	}
}
