package launch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Config describes a job whose ranks all run on this host.
type Config struct {
	Ranks int
	// Args is the program, a path or a name in PATH, and its arguments.
	Args []string
	// Timeout of an operation, handed to the ranks as RINGO_TIMEOUT; 0 leaves theirs.
	Timeout time.Duration
	// Threads of each rank, handed to the ranks as RINGO_THREADS; 0 leaves theirs.
	Threads int
	// Stdout and Stderr take the output of all ranks, line by line behind "[rank] ".
	Stdout, Stderr io.Writer
	// Signals are passed on to the ranks and end the job; a second one kills. The caller feeds it with signal.Notify.
	Signals <-chan os.Signal
}

// ExitError tells that a job did not end well.
type ExitError struct {
	// Code is the exit status for the launcher: that of the rank that failed first, 128 + n for signal n.
	Code int
	// Text says which rank failed first and why, and what became of the others; several lines.
	Text string
}

// Error returns Text.
func (e *ExitError) Error() string { return e.Text }

const (
	// grace is how long a rank has after a signal was passed on to it.
	grace = 5 * time.Second
	// settle is how long ranks have, on top of an operation's timeout, to end after one has failed.
	settle = 2 * time.Second
	// lastOutput is how long a reader may take over the rest of the output after a signal.
	lastOutput = 500 * time.Millisecond
	// assumedTimeout stands for the timeout of the operations when only the program knows it.
	assumedTimeout = 5 * time.Second
)

// patience returns how long to wait for the other ranks after the first failure.
func (c *Config) patience() time.Duration {
	timeout := c.Timeout
	if timeout == 0 {
		timeout, _ = time.ParseDuration(os.Getenv("RINGO_TIMEOUT"))
	}
	if timeout <= 0 {
		timeout = assumedTimeout
	}
	return timeout + settle
}

// Descriptors of the workers, after stdin, stdout and stderr.
const (
	agentFD  = 3
	listenFD = 4
)

// environment returns what all ranks get: this process's environment without the variables of a job that it belongs to
// itself, and those of the new job.
func (c *Config) environment(master string) []string {
	var secret [32]byte
	var id [8]byte
	rand.Read(secret[:]) // never fails
	rand.Read(id[:])
	own := map[string]string{
		"RINGO_RANK": "", "RINGO_LOCAL_RANK": "", "RINGO_LISTEN_FD": "", "RINGO_PORT": "", // set by rank, or not at all
		"RINGO_AGENT_FD":   strconv.Itoa(agentFD),
		"RINGO_WORLD_SIZE": strconv.Itoa(c.Ranks),
		"RINGO_LOCAL_SIZE": strconv.Itoa(c.Ranks),
		"RINGO_MASTER":     master,
		"RINGO_BIND":       "127.0.0.1",
		"RINGO_JOB_SECRET": hex.EncodeToString(secret[:]),
		"RINGO_JOB_ID":     hex.EncodeToString(id[:]),
	}
	if c.Timeout > 0 {
		own["RINGO_TIMEOUT"] = c.Timeout.String()
	}
	if c.Threads > 0 {
		own["RINGO_THREADS"] = strconv.Itoa(c.Threads)
	}
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if _, replaced := own[name]; !replaced {
			env = append(env, v)
		}
	}
	for name, value := range own {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (c *Config) check() error {
	switch {
	case c.Ranks < 1 || c.Ranks > maxRanks:
		return fmt.Errorf("launch: %d ranks, want 1 or more", c.Ranks)
	case len(c.Args) == 0:
		return fmt.Errorf("launch: no program")
	case c.Timeout < 0:
		return fmt.Errorf("launch: timeout %v is negative", c.Timeout)
	case c.Threads < 0:
		return fmt.Errorf("launch: %d threads", c.Threads)
	}
	return nil
}
