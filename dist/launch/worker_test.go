package launch

import (
	"encoding/json"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNoAgent(t *testing.T) {
	w, err := ConnectAgent()
	require.NoError(t, err)
	assert.Nil(t, w)
	assert.NoError(t, w.ReportError(Primary, 0, "boom"))
	select {
	case <-w.Lost():
		t.Fatal("a process without an agent lost it")
	default:
	}
	l, err := Env{}.Listener()
	require.NoError(t, err)
	assert.Nil(t, l)
}

func TestWorkerMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, agent := net.Pipe()
		notes := make(chan message, 9)
		go func() {
			for in := json.NewDecoder(agent); ; {
				var m message
				if in.Decode(&m) != nil {
					return
				}
				notes <- m
			}
		}()
		w := newWorker(conn, false)
		began := time.Now()
		assert.Equal(t, message{}, <-notes)
		assert.Zero(t, time.Since(began))
		assert.Equal(t, message{}, <-notes, "a second heartbeat")
		assert.Equal(t, heartbeat, time.Since(began))
		require.NoError(t, w.ReportError(Echo, 2, "rank 2: no\nprogress"))
		assert.Equal(t, message{Kind: Echo, Rank: 2, Text: "rank 2: no\nprogress"}, <-notes)
		assert.ErrorContains(t, w.ReportError("odd", 0, ""), `unknown kind "odd"`)

		select {
		case <-w.Lost():
			t.Fatal("lost while the agent is there")
		default:
		}
		agent.Close()
		<-w.Lost()
	})
}
