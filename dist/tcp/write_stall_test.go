package tcp

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A rank that is stopped while a worker of a failed group writes to a peer has heard nothing for long, and looks again before
// it gives the peer up. One that stays silent is given up.
func TestStoppedRankHearsBeforeItGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(Config{Size: 2, Timeout: time.Second}, member{})
		conn, far := net.Pipe()
		defer far.Close()
		l := newLink(e, member{Rank: 1}, conn)
		e.links[1] = l
		g := newGroup(e, key{1, 1})
		g.writing.Store(l)
		lost := func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return l.lostErr != nil
		}
		time.Sleep(5 * time.Second) // of virtual time; this process is stopped
		g.unblock(nil)
		assert.False(t, lost(), "nothing was heard because nobody listened")
		l.heard.Store(e.now()) // the reader runs again
		time.Sleep(2 * writeGrace)
		assert.False(t, lost(), "it was heard")
		time.Sleep(5 * time.Second)
		assert.True(t, lost(), "it is silent")
	})
}
