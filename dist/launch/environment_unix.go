//go:build linux || darwin

package launch

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/rebuild"
)

// Descriptors of the workers, after stdin, stdout and stderr.
const (
	agentFD  = 3
	listenFD = 4
)

// environment returns what all ranks of this host get: this process's environment without the variables of a job that it
// belongs to itself, and those of the new job.
func (a *agent) environment() []string {
	c := a.config
	own := map[string]string{
		"RINGO_RANK": "", "RINGO_LOCAL_RANK": "", "RINGO_LISTEN_FD": "", "RINGO_PORT": "", // set by rank, or not at all
		"RINGO_WATCHED":    "",
		rebuild.Env:        "",
		"RINGO_AGENT_FD":   strconv.Itoa(agentFD),
		"RINGO_WORLD_SIZE": strconv.Itoa(a.start.Size),
		"RINGO_LOCAL_SIZE": strconv.Itoa(c.Ranks),
		"RINGO_MASTER":     a.start.Master,
		"RINGO_BIND":       cmp.Or(c.Bind, a.bind),
		"RINGO_JOB_SECRET": a.secret,
		"RINGO_JOB_ID":     a.start.Job,
		"RINGO_GENERATION": strconv.Itoa(a.start.Gen),
	}
	if a.start.Watch {
		own["RINGO_WATCHED"] = "1"
	}
	if c.Rebuild {
		own[rebuild.Env] = "1"
	}
	if c.Timeout > 0 {
		own["RINGO_TIMEOUT"] = c.Timeout.String()
	}
	if c.Ports != "" {
		own["RINGO_PORTS"] = c.Ports
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
