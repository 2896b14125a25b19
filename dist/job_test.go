//go:build unix

package dist_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/netns"
)

// processJob is a job of ranks that are processes of this binary (see child).
type processJob struct {
	ranks []*processRank
}

// processRank is one rank of the job. Its output is read at once.
type processRank struct {
	cmd  *exec.Cmd
	in   io.Writer
	done chan struct{}
	job  *processJob

	mu    sync.Mutex
	lines []string
	at    []time.Time
	more  chan struct{} // closed and replaced with each line
}

// engines are the ways in which processes move bytes, and the variable that chooses each.
var engines = map[string]string{"tcp": "RINGO_SHM=0", "shm": "RINGO_SHM=1"}

// startJob starts n ranks with the same environment.
func startJob(t *testing.T, n int, hosts []*netns.Host, port int, env ...string) *processJob {
	t.Helper()
	return startJobWith(t, n, hosts, port, func(int) []string { return env })
}

// startJobWith starts n ranks. If there are hosts, ranks run on them in turn; otherwise they run here. port is the port of rank 0 on its
// host.
func startJobWith(t *testing.T, n int, hosts []*netns.Host, port int, env func(rank int) []string) *processJob {
	t.Helper()
	var master string
	var listener *os.File
	if len(hosts) > 0 {
		master = fmt.Sprint(hosts[0].Addr, ":", port)
	} else {
		f, addr := disttest.Listen(t)
		defer f.Close()
		master, listener = addr, f
	}
	secret, j := disttest.NewSecret(), &processJob{}
	ctx := limited(t)
	for r := range n {
		args := []string{os.Args[0]}
		all := append(disttest.RankEnv(r, n, master, secret), env(r)...)
		if len(hosts) > 0 {
			h := hosts[r*len(hosts)/n]
			all = append(all, "RINGO_BIND="+h.Addr)
			args = h.Command(os.Args[0]).Args
		}
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Env = append(os.Environ(), all...)
		if r == 0 && listener != nil {
			disttest.Inherit(c, listener)
		}
		j.start(t, c)
	}
	return j
}

// limited returns a context that ends with the test, or after a minute.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// startTorchrun starts two ranks with the variables of torchrun.
func startTorchrun(t *testing.T, env []string) *processJob {
	t.Helper()
	secret, ctx, j := disttest.NewSecret(), limited(t), &processJob{}
	for r := range 2 {
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(append(os.Environ(), env...), fmt.Sprint("RANK=", r), fmt.Sprint("LOCAL_RANK=", r), "WORLD_SIZE=2",
			"RINGO_JOB_SECRET="+secret, "RINGO_TIMEOUT=10s")
		j.start(t, c)
	}
	return j
}

// start starts the next rank.
func (j *processJob) start(t *testing.T, c *exec.Cmd) {
	t.Helper()
	p := &processRank{cmd: c, job: j, done: make(chan struct{}), more: make(chan struct{})}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	p.in, err = c.StdinPipe()
	require.NoError(t, err)
	c.Stderr = c.Stdout
	require.NoError(t, c.Start())
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			p.lines, p.at = append(p.lines, lines.Text()), append(p.at, time.Now())
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
		_ = c.Wait() // the text has the result
		close(p.done)
	}()
	j.ranks = append(j.ranks, p)
}

// text is the output of all ranks.
func (j *processJob) text() string {
	var b strings.Builder
	for r, p := range j.ranks {
		fmt.Fprintf(&b, "rank %d:\n%s\n", r, p.text())
	}
	return b.String()
}

// await waits for a line that begins with prefix. It returns the rest of the line, and when it came.
func (p *processRank) await(t *testing.T, prefix string) (string, time.Time) {
	t.Helper()
	timeout := time.After(40 * time.Second)
	for ended := false; ; {
		p.mu.Lock()
		for i, line := range p.lines {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				at := p.at[i]
				p.mu.Unlock()
				return rest, at
			}
		}
		more := p.more
		p.mu.Unlock()
		if ended {
			require.FailNow(t, "a rank did not say "+prefix, p.job.text())
		}
		select {
		case <-more:
		case <-p.done:
			ended = true
		case <-timeout:
			ended = true
		}
	}
}

func (p *processRank) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}
