//go:build linux || darwin

package launch

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// FuzzCoordinator lets a node say anything: the coordinator's books stay in order.
func FuzzCoordinator(f *testing.F) {
	f.Add(`{"started":{"gen":1,"pids":[7,8]}}
{"report":{"gen":1,"rank":2,"what":{"kind":"echo","rank":0,"text":"x"}}}
{"ended":{"gen":1,"rank":2,"status":1}}
{"ended":{"gen":1,"rank":2,"status":1}}
{"progress":{"gen":1,"step":5}}`)
	f.Add(`{"unstart":{"gen":1,"missing":-3,"text":"no"}}
{"signal":15}
{"kill":true}
{"hello":{"node":1,"ranks":2,"min":2,"max":2}}`)
	f.Add(`{"ended":{"gen":1,"rank":1,"signal":9,"status":-1,"killed":true,"silence":9000000000}}
{"report":{"gen":1,"rank":1,"what":{"kind":"primary","rank":-1}}}`)
	f.Fuzz(func(t *testing.T, lines string) {
		config := &Config{Ranks: 1, MinNodes: 2, MaxNodes: 2}
		c := &coordinator{config: config, nodes: map[int]*node{}, gen: 1, running: 3, ranks: make([]rankState, 3),
			deadline: time.NewTimer(time.Hour)}
		defer c.deadline.Stop()
		for i := range 2 {
			n := &node{hello: hello{Node: i, Ranks: 1 + i, Min: 2, Max: 2}, wire: &wire{wakeup: make(chan struct{}, 1)}, first: i, running: 1 + i}
			c.nodes[i] = n
			c.members = append(c.members, n)
		}
		for line := range strings.Lines(lines) {
			var m note
			if json.Unmarshal([]byte(line), &m) != nil {
				break // the wire ends
			}
			if m.Hello != nil {
				c.newcomerInTest(*m.Hello)
				continue
			}
			c.handle(incoming{from: c.members[1], note: m})
		}
		assert.Equal(t, c.running, c.members[0].running+c.members[1].running)
		assert.Equal(t, 1, c.members[0].running, "node 0 said nothing")
		assert.GreaterOrEqual(t, c.members[1].running, 0)
		c.handle(incoming{from: c.members[1], err: errEnded})
		assert.Equal(t, 1, c.running)
		if c.firstCause() != nil {
			code, text := c.result()
			assert.NotZero(t, code)
			assert.NotEmpty(t, text)
		}
	})
}

// newcomerInTest is a connection that has ended.
func (c *coordinator) newcomerInTest(h hello) {
	w := &wire{wakeup: make(chan struct{}, 1), writerDone: make(chan struct{})}
	close(w.writerDone)
	c.handle(incoming{from: &node{hello: h, wire: w}, note: note{Hello: &h}})
}
