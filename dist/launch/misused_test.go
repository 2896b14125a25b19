//go:build linux || darwin

package launch

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A wrong command line is not started again; a panic, which has the same status, is.
func TestMisused(t *testing.T) {
	for name, x := range map[string]struct {
		mute, reported bool
		status         int
		restarts       bool
	}{
		"wrong flag":                 {true, false, 2, false},
		"wrong flags for dist.Run":   {false, true, 2, false},
		"panic":                      {false, false, 2, true},
		"failure":                    {false, true, 1, true},
		"failure before dist.Run":    {true, false, 1, true},
		"killed by a signal at once": {true, false, -1, true},
	} {
		c := alone(t, 1)
		c.config.MaxRestarts = 1
		self := c.nodes[0]
		if x.reported {
			c.handle(incoming{from: self, note: note{Report: &report{Gen: 1, What: message{Kind: Primary, Text: "what is wrong"}}}})
		}
		m := &ended{Gen: 1, Status: x.status, Mute: x.mute}
		if x.status < 0 {
			m.Signal = 9
		}
		c.handle(incoming{from: self, note: note{Ended: m}})
		assert.Equal(t, x.restarts, c.restart(), name)
		if _, text := c.result(); !x.restarts {
			assert.Contains(t, text, "\nno restart: status 2 means a wrong command line", name)
		}
	}
}
