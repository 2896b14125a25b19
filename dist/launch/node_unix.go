//go:build linux || darwin

package launch

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/internal/ranks"
)

// node is an agent as the coordinator sees it.
type node struct {
	hello
	wire      *wire
	duplicate *node // another node with the same number; it waits until this one sends a note, or is lost

	// Of the current generation; running is 0 for a node that does not take part.
	first       int
	running     int
	pids        []int
	silentAt    time.Time // when it last reported that no running worker sends heartbeats
	silentSince time.Time // when it began to
}

// newHello returns the first note of this process.
func newHello(c *Config) hello {
	host, _ := os.Hostname()
	return hello{Node: c.NodeRank, Ranks: c.Ranks, Min: c.MinNodes, Max: c.MaxNodes, Host: host, PID: os.Getpid()}
}

// String names the node in errors.
func (n *node) String() string { return fmt.Sprintf("node %d (host %s)", n.Node, n.Host) }

// rankList names the ranks of the node.
func (n *node) rankList() string {
	if n.Ranks == 1 {
		return fmt.Sprintf("rank %d", n.first)
	}
	return fmt.Sprintf("ranks %d-%d", n.first, n.first+n.Ranks-1)
}

// nodesFlag writes a number of nodes as the flag -nodes does.
func nodesFlag(lo, hi int) string {
	if lo == hi {
		return strconv.Itoa(lo)
	}
	return fmt.Sprintf("%d:%d", lo, hi)
}

// checkHello returns why a node may not take part; "" if it may.
func (c *coordinator) checkHello(n *node) string {
	self := c.nodes[0]
	switch {
	case n.Min != self.Min || n.Max != self.Max:
		return fmt.Sprintf("nodes disagree about -nodes: %s (%v) and %s (%v)", nodesFlag(self.Min, self.Max), self, nodesFlag(n.Min, n.Max), n)
	case n.Node < 0 || n.Node >= n.Max || n.Ranks < 1 || n.Ranks > maxRanks:
		return fmt.Sprintf("%v of %d with %d ranks", n, n.Max, n.Ranks)
	}
	return ""
}

// admit lets a new node wait for the next start.
func (c *coordinator) admit(n *node) {
	if why := c.checkHello(n); why != "" {
		c.refuse(n, why)
		return
	}
	old := c.nodes[n.Node]
	switch {
	case old == nil:
		c.nodes[n.Node] = n
		n.wire.send(note{Welcome: true})
		if c.running > 0 {
			n.wire.send(note{Notice: fmt.Sprintf("generation %d runs without this node, which waits for a restart", c.gen)})
		}
	case old.duplicate == nil:
		old.duplicate = n
	default:
		c.refuse(n, c.joinedTwice(old, n))
	}
}

func (c *coordinator) joinedTwice(old, n *node) string {
	return fmt.Sprintf("node %d joined twice: host %s (pid %d) and host %s (pid %d)", n.Node, old.Host, old.PID, n.Host, n.PID)
}

// refuse refuses a new node. Before the first start, the coordinator cannot know which node is right, so the job fails.
func (c *coordinator) refuse(n *node, why string) {
	c.sendRefusal(n, why)
	if c.gen == 0 && c.cannotStart == "" {
		c.cannotStart = why
	}
}

func (c *coordinator) sendRefusal(n *node, why string) {
	n.wire.send(note{Refuse: why})
	n.wire.finish()
	c.refusals.Go(func() { <-n.wire.writerDone })
}

// confirm handles a sign that a node is alive: another node with its number is refused.
func (c *coordinator) confirm(n *node) {
	if other := n.duplicate; other != nil && c.nodes[n.Node] == n {
		n.duplicate = nil
		c.refuse(other, c.joinedTwice(n, other))
	}
}

// nodeLost removes a node whose connection has ended. Its ranks count as failed.
func (c *coordinator) nodeLost(n *node, why error) {
	if old := c.nodes[n.Node]; old != n {
		if old != nil && old.duplicate == n {
			old.duplicate = nil
		}
		return
	}
	delete(c.nodes, n.Node)
	n.wire.finish()
	if slices.Contains(c.members, n) {
		c.noneLost = false
	}
	if n.running > 0 {
		c.running -= n.running
		n.running = 0
		text := fmt.Sprintf("%v with %s is lost: %v", n, n.rankList(), why)
		c.fail(cause{kind: Primary, first: n.first, last: n.first + n.Ranks - 1, by: -1, text: text})
	}
	if n.duplicate != nil {
		c.admit(n.duplicate)
	}
}

// missingNodes lists the numbers of the nodes that are not here.
func (c *coordinator) missingNodes() string {
	var list []int
	for i := range c.config.MaxNodes {
		if c.nodes[i] == nil {
			list = append(list, i)
		}
	}
	return ranks.List("node", list)
}
