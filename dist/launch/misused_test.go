//go:build linux || darwin

package launch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A signal to one rank ends all of them in order: no rank is blamed. If only some end so, the first is.
func TestInterrupted(t *testing.T) {
	for want, second := range map[string]ended{
		"all ranks exited with status 143, as after signal terminated":                                         {Status: 143},
		"rank 0 exited with status 143, as after signal terminated (and 1 rank failed because of it)":          {Status: 1},
		"rank 0 exited with status 143, as after signal terminated":                                            {},
		"rank 0 exited with status 143, as after signal terminated (and 1 rank failed because of it) (killed)": {Status: -1, Signal: 15},
	} {
		c := alone(t, 2)
		second.Gen, second.Rank = 1, 1
		for _, m := range []ended{{Gen: 1, Status: 143}, second} {
			c.handle(incoming{from: c.nodes[0], note: note{Ended: &m}})
		}
		_, text := c.result()
		assert.Equal(t, strings.TrimSuffix(want, " (killed)"), text)
	}
}

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
			assert.Contains(t, text, "no restart: status 2 means a wrong command line\n", name)
		}
	}
}
