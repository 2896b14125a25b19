//go:build linux || darwin

package launch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// says is a note of the ranks of c's only node.
func (c *coordinator) says(n note) { c.in <- incoming{from: c.nodes[0], note: n} }

// sent returns the notes to c's only node.
func (c *coordinator) sent() []note {
	w := c.nodes[0].wire
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.queue)
}

// askedRanks lists the ranks that were asked for their State.
func (c *coordinator) askedRanks() (list []int) {
	for _, n := range c.sent() {
		list = append(list, n.Ask...)
	}
	return list
}

// A job is ended when no rank gets further for the limit, and not before. All are asked what they do; one does not answer.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := alone(t, 3)
		c.config.Stall, c.config.MaxRestarts, c.in = 10*time.Second, 1, make(chan incoming)
		c.worked()
		over := make(chan struct{})
		go func() {
			c.supervise()
			close(over)
		}()
		for range 3 {
			time.Sleep(8 * time.Second)
			c.says(note{Work: 1})
			time.Sleep(8 * time.Second)
			c.says(note{Progress: &progress{Gen: 1}})
		}
		time.Sleep(10*time.Second - time.Millisecond)
		assert.Empty(t, c.askedRanks())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2}, c.askedRanks())
		c.says(note{State: &stateOf{Gen: 1, Rank: 0, What: State{Last: "rank 0: barrier seq 4\n", Stack: "goroutine 7"}}})
		c.says(note{State: &stateOf{Gen: 1, Rank: 2, What: State{Stack: "goroutine 8"}}})
		c.says(note{Work: 1}) // too late
		time.Sleep(answerTime)
		synctest.Wait()
		sent := c.sent()
		assert.True(t, sent[len(sent)-1].Kill)
		for rank := range 3 {
			c.says(note{Ended: &ended{Gen: 1, Rank: rank, Status: -1, Signal: 9, Killed: true}})
		}
		<-over
		code, text := c.result()
		assert.Equal(t, 1, code)
		assert.Equal(t, "no rank got further within 10s (-stall)\nrank 0: last barrier seq 4\ngoroutine 7\nrank 1 does not say what it does\n"+
			"rank 2: last no operation\ngoroutine 8", text)
		assert.True(t, c.restart(), "like any other failure")
	})
}

// When all ranks have answered, nobody waits. A rank that fails meanwhile is the cause.
func TestStallAnswers(t *testing.T) {
	for _, fails := range []bool{false, true} {
		c := alone(t, 2)
		c.config.Stall = 10 * time.Second
		c.stallOver()
		self, want := c.nodes[0], "no rank got further within 10s (-stall)\nrank 0: last no operation\ng\nrank 1: last no operation\ng"
		for rank := range 2 {
			assert.Equal(t, fails && rank == 1, c.firstCause() != nil)
			if fails && rank == 0 {
				c.handle(incoming{from: self, note: note{Report: &report{Gen: 1, What: message{Kind: Primary, Text: "a bad row"}}}})
				want = "rank 0 failed: a bad row"
			}
			c.handle(incoming{from: self, note: note{State: &stateOf{Gen: 1, Rank: rank, What: State{Stack: "g"}}}})
		}
		assert.Equal(t, want, c.firstCause().text)
		assert.Equal(t, !fails, self.wire.queue[len(self.wire.queue)-1].Kill)
	}
}

// Only the first few ranks that others wait for are asked, once, and what they say is printed once.
func TestLate(t *testing.T) {
	c := alone(t, 9)
	self := c.nodes[0]
	c.handle(incoming{from: self, note: note{Ended: &ended{Gen: 1, Rank: 3}}})
	for range 2 {
		c.handle(incoming{from: self, note: note{Late: &late{Gen: 1, Ranks: []int{-1, 3, 4, 5, 6, 7, 8, 9}}}})
		for _, rank := range []int{2, 5} {
			c.handle(incoming{from: self, note: note{State: &stateOf{Gen: 1, Rank: rank, What: State{Stack: "goroutine 7"}}}})
		}
	}
	assert.Equal(t, []int{4, 5, 6, 7}, c.askedRanks())
	assert.Equal(t, []string{"rank 5, for which others waited, was here:\ngoroutine 7"}, c.notices())
}

func TestShortStall(t *testing.T) {
	c, _ := roleConfig(1, "env")
	c.Stall = time.Second
	assert.EqualError(t, c.Check(), "launch: stall 1s, want at least 2s: ranks say twice a second whether they get further")
}
