package launch

import (
	"bufio"
	"encoding/json"
	"net"
	"testing"

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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	agent, err := l.Accept()
	require.NoError(t, err)
	w := newWorker(conn, false)
	in := bufio.NewScanner(agent)
	next := func() (m message) {
		require.True(t, in.Scan(), "%v", in.Err())
		require.NoError(t, json.Unmarshal(in.Bytes(), &m))
		return m
	}
	assert.Equal(t, message{}, next())
	assert.Equal(t, message{}, next(), "a second heartbeat")
	require.NoError(t, w.ReportError(Echo, 2, "rank 2: no\nprogress"))
	m := next()
	for m.Kind == "" {
		m = next()
	}
	assert.Equal(t, message{Kind: Echo, Rank: 2, Text: "rank 2: no\nprogress"}, m)
	assert.ErrorContains(t, w.ReportError("odd", 0, ""), `unknown kind "odd"`)

	select {
	case <-w.Lost():
		t.Fatal("lost while the agent is there")
	default:
	}
	agent.Close()
	<-w.Lost()
}
