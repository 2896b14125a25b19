package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// TestLongFewerHosts loses one of four hosts in the middle of an epoch. The other three continue from the last checkpoint. Their losses
// have the bits of a job on three hosts that resumes from it.
func TestLongFewerHosts(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	c := newCluster(t, 4)
	program := program(t, "resume")
	dir, again := t.TempDir(), filepath.Join(t.TempDir(), "again")
	start := func(hosts int, nodes, args string) (agents []*agent) {
		for i := range hosts {
			agents = append(agents, c.start(i, nodes, "-n 1 -timeout 2s -max-restarts 1 -node-wait 1s", program+" float64 "+args))
		}
		return agents
	}
	agents := start(4, "3:4", dir+" 13 wait8")
	c.await(`rank \d of 4 waits`, agents...)
	require.NoError(t, os.CopyFS(again, os.DirFS(dir)))
	began := time.Now()
	require.NoError(t, agents[3].cmd.Process.Kill())
	for _, a := range agents[:3] {
		require.Equal(t, 0, a.wait(t, longest), a.err.String())
	}
	reliability.Took(t, 39, "launcher", 10*time.Second, time.Since(began))
	assert.Regexp(t, `generation 1 is over, generation 2 begins\n`, agents[0].err.String())
	out := agents[0].stdout.String()
	assert.Contains(t, out, "resumed at 6 of 3 ranks")
	got := lossLine.FindAllString(out, -1)
	require.Len(t, got, 8+7, "steps 0 to 7 on four hosts, 6 to 12 on three")

	agents = start(3, "3", again+" 13")
	for _, a := range agents {
		require.Equal(t, 0, a.wait(t, longest), a.err.String())
	}
	out = agents[0].stdout.String()
	assert.Contains(t, out, "resumed at 6 of 3 ranks")
	assert.Equal(t, lossLine.FindAllString(out, -1), got[8:])
}
