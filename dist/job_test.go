//go:build unix

package dist_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/netns"
)

// processJob is a job of ranks that are processes of this binary (see child).
type processJob struct {
	ranks []*processRank
}

// processRank is one of them. Its output is read as it comes.
type processRank struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	lines []string
	at    []time.Time
	more  chan struct{} // closed and made anew with each line
}

// engines are the ways in which processes move bytes, as the environment chooses them.
var engines = map[string]string{"tcp": "RINGO_SHM=0"}

// startJob starts n ranks. hosts, if any, are where they run, in turn; otherwise it is here.
func startJob(t *testing.T, n int, hosts []*netns.Host, port int, env ...string) *processJob {
	t.Helper()
	master, files := fmt.Sprint("127.0.0.1:", port), []*os.File(nil)
	if len(hosts) > 0 {
		master = fmt.Sprint(hosts[0].Addr, ":", port)
	} else {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		f, err := l.(*net.TCPListener).File()
		require.NoError(t, err)
		defer f.Close()
		master, files = l.Addr().String(), []*os.File{f}
	}
	secret, j := tcp.NewSecret(), &processJob{}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	for r := range n {
		args := []string{os.Args[0]}
		all := append([]string{fmt.Sprint("RINGO_RANK=", r), fmt.Sprint("RINGO_WORLD_SIZE=", n), fmt.Sprint("RINGO_LOCAL_RANK=", r),
			fmt.Sprint("RINGO_LOCAL_SIZE=", n), "RINGO_MASTER=" + master, "RINGO_JOB_SECRET=" + secret, "RINGO_JOB_ID=test"}, env...)
		if len(hosts) > 0 {
			h := hosts[r*len(hosts)/n]
			all = append(all, "RINGO_BIND="+h.Addr)
			args = h.Command(os.Args[0]).Args
		}
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Env = append(os.Environ(), all...)
		if r == 0 && len(files) > 0 {
			c.ExtraFiles = files
			c.Env = append(c.Env, "RINGO_LISTEN_FD=3")
		}
		j.ranks = append(j.ranks, startRank(t, c))
	}
	return j
}

func startRank(t *testing.T, c *exec.Cmd) *processRank {
	t.Helper()
	p := &processRank{cmd: c, done: make(chan struct{}), more: make(chan struct{})}
	out, err := c.StdoutPipe()
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
		_ = c.Wait() // the text tells
		close(p.done)
	}()
	return p
}

// await waits for a line that begins with prefix, and returns the rest of it, and when it came.
func (p *processRank) await(t *testing.T, prefix string) (string, time.Time) {
	t.Helper()
	timeout := time.After(40 * time.Second)
	for ended := false; ; {
		p.mu.Lock()
		for i, line := range p.lines {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				p.mu.Unlock()
				return rest, p.at[i]
			}
		}
		more := p.more
		p.mu.Unlock()
		if ended {
			require.FailNow(t, "a rank did not say "+prefix, p.text())
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
