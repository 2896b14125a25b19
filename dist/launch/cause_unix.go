//go:build linux || darwin

package launch

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/ranks"
)

// rankState is what the coordinator knows of a rank.
type rankState struct {
	reported bool
	ended    bool
	failed   bool
	killed   bool // by its agent, because it did not exit
	lost     bool // the others go on without it
	asked    bool // for its State
	state    *State
	mute     bool // it never sent a heartbeat
	silence  time.Duration
	status   int // that it exited with; -1 after a signal
	code     int // the same, as a shell has it
}

// cause is a failure of the ranks first to last. The rank `by` reported it; by is -1 if no rank did.
type cause struct {
	kind            Kind
	first, last, by int
	text            string
}

// handle handles a note of a node, or the end of its connection.
func (c *coordinator) handle(a incoming) {
	n := a.from
	if a.err != nil {
		c.nodeLost(n, a.err)
		return
	}
	if a.note.Hello != nil {
		c.admit(n)
		return
	}
	if c.nodes[n.Node] != n {
		return // it was refused
	}
	c.confirm(n)
	m := a.note
	switch {
	case m.Signal != 0:
		c.interrupt(syscall.Signal(m.Signal))
	case m.Kill:
		c.sendToMembers(note{Kill: true})
	case m.Started != nil && m.Started.Gen == c.gen:
		n.pids = m.Started.PIDs
	case m.StartFailed != nil && m.StartFailed.Gen == c.gen:
		c.startFailed(n, m.StartFailed)
	case m.Report != nil && m.Report.Gen == c.gen && n.hasRank(m.Report.Rank):
		c.reported(m.Report)
	case m.Ended != nil && m.Ended.Gen == c.gen && n.hasRank(m.Ended.Rank):
		c.ended(n, m.Ended)
	case m.Without != nil && m.Without.Gen == c.gen && n.hasRank(m.Without.Rank) && c.config.Rebuild:
		c.without(m.Without)
	case m.Late != nil && m.Late.Gen == c.gen:
		c.late(m.Late.Ranks)
	case m.State != nil && m.State.Gen == c.gen && n.hasRank(m.State.Rank):
		c.told(m.State)
	case m.Show != nil && m.Show.Gen == c.gen && n.hasRank(m.Show.Rank) && c.config.Watch != nil:
		c.config.Watch.Shown(c.gen, m.Show.Rank, m.Show.What)
	case m.Silent > 0 && m.Silent == c.gen:
		c.nodeSilent(n)
	case m.Progress != nil && m.Progress.Gen == c.gen:
		c.step = max(c.step, m.Progress.Step)
		c.worked()
	case m.Work > 0 && m.Work == c.gen:
		c.worked()
	}
}

// hasRank tells whether a rank of the generation is this node's.
func (n *node) hasRank(rank int) bool {
	return n.running > 0 && rank >= n.first && rank < n.first+n.Ranks
}

// startFailed handles that some workers of a node did not start. The others cannot join, so they are killed.
func (c *coordinator) startFailed(n *node, u *startFailure) {
	missing := min(max(u.Missing, 0), n.running)
	n.running -= missing
	c.running -= missing
	text := u.Text
	if len(c.members) > 1 {
		text = n.String() + ": " + text
	}
	c.fail(cause{kind: Primary, first: n.first, last: n.first + n.Ranks - 1, by: -1, text: text})
	c.sendToMembers(note{Kill: true})
}

// reported handles the first report of a rank.
func (c *coordinator) reported(m *report) {
	r := &c.ranks[m.Rank]
	if r.reported || r.lost {
		return
	}
	r.reported = true
	said := strings.TrimPrefix(m.What.Text, fmt.Sprintf("rank %d: ", m.Rank)) // its name stands in front already
	f := cause{kind: m.What.Kind, first: m.Rank, last: m.Rank, by: m.Rank, text: fmt.Sprintf("%s failed: %s", c.rankName(m.Rank), said)}
	if blamed := m.What.Rank; m.What.Kind == Echo && blamed != m.Rank && blamed >= 0 && blamed < len(c.ranks) {
		f.first, f.last = blamed, blamed
		f.text = fmt.Sprintf("%s failed, as rank %d saw it: %s", c.rankName(blamed), m.Rank, m.What.Text)
	}
	c.fail(f)
}

// ended handles the end of a rank. If it failed without a report, its end is the report.
func (c *coordinator) ended(n *node, m *ended) {
	r := &c.ranks[m.Rank]
	if r.ended {
		return
	}
	n.running--
	c.running--
	r.ended, r.killed, r.silence, r.status, r.code, r.mute = true, m.Killed, m.Silence, m.Status, exitCode(m), m.Mute
	if w := c.config.Watch; w != nil && m.Status == 0 {
		w.Ended(c.gen, m.Rank, 0)
	} else if w != nil {
		w.Ended(c.gen, m.Rank, r.code)
	}
	if r.reported || r.killed || r.lost || m.Status == 0 {
		return
	}
	text := exited(m.Status)
	if m.Signal != 0 {
		text = fmt.Sprintf("was killed by signal %v", syscall.Signal(m.Signal))
	}
	c.fail(cause{kind: Primary, first: m.Rank, last: m.Rank, by: m.Rank, text: c.rankName(m.Rank) + " " + text})
}

// without handles that a rank goes on without others. The job does not fail because of these; those still alive are killed.
func (c *coordinator) without(m *without) {
	lost := slices.DeleteFunc(m.Ranks, func(rank int) bool { return rank < 0 || rank >= len(c.ranks) || c.ranks[rank].lost })
	if len(lost) == 0 || c.ranks[m.Rank].lost || c.signal != 0 {
		return // another rank has reported it, or it is too late
	}
	for _, rank := range lost {
		c.ranks[rank].lost = true
	}
	var lines []string
	for _, f := range c.causes {
		if f.kind == Primary && slices.Contains(lost, f.by) {
			lines = append(lines, f.text)
		}
	}
	goOn := "1 rank goes on"
	if n := len(c.ranks) - len(c.lost()); n > 1 {
		goOn = fmt.Sprintf("%d ranks go on", n)
	}
	lines = append(lines, goOn+" without "+c.rankNames(lost))
	c.sendToMembers(note{Lost: lost})
	c.sendToMembers(note{Notice: strings.Join(lines, "\n")})
	c.deadline.Stop()
	if c.firstCause() != nil { // of another rank, which they must agree about as well
		c.deadline.Reset(c.config.failureTimeout())
	}
}

// lost lists the ranks that the others went on without.
func (c *coordinator) lost() (list []int) {
	for rank, r := range c.ranks {
		if r.lost {
			list = append(list, rank)
		}
	}
	return list
}

// rankNames names ranks of the generation.
func (c *coordinator) rankNames(list []int) string {
	names := make([]string, len(list))
	for i, rank := range list {
		names[i] = c.rankName(rank)
	}
	return strings.Join(names, ", ")
}

// nodeSilent handles that no running worker of a node sends heartbeats. If this is so on all nodes after a failure, nobody can
// report more about the cause, and all workers are killed at once. Without one, but when others have ended or are lost, they
// have the time that ranks have after a failure. A job that is stopped as a whole may go on later.
func (c *coordinator) nodeSilent(n *node) {
	if time.Since(n.silentAt) > silentAfter {
		n.silentSince = time.Now()
	}
	n.silentAt = time.Now()
	since := n.silentSince
	for _, m := range c.members {
		if m.running > 0 && time.Since(m.silentAt) > silentAfter {
			return
		}
		if m.running > 0 && m.silentSince.After(since) {
			since = m.silentSince
		}
	}
	if c.signal != 0 {
		return
	}
	if c.firstCause() == nil {
		apart := slices.ContainsFunc(c.ranks, func(r rankState) bool { return r.ended })
		if !apart || time.Since(since) < c.config.failureTimeout() {
			return
		}
		c.fail(cause{kind: Primary, last: len(c.ranks) - 1, by: -1, text: "no rank that is left sends heartbeats"})
	}
	c.sendToMembers(note{Kill: true})
}

// exitCode returns the exit status as a shell has it: 128 + n for signal n. It is 1 for a rank that had to be killed, and for
// one that exited with 0 after it had reported a failure.
func exitCode(m *ended) int {
	switch {
	case m.Killed:
		return 1
	case m.Signal != 0:
		return 128 + m.Signal
	}
	return max(m.Status, 1)
}

// fail notes a failure. The first one starts the time limit for the other ranks.
func (c *coordinator) fail(f cause) {
	if f.by >= 0 {
		c.ranks[f.by].failed = true
	}
	if c.signal != 0 {
		return
	}
	if c.firstCause() == nil {
		c.deadline.Reset(c.config.failureTimeout())
	}
	c.causes = append(c.causes, f)
}

// firstCause returns the failure that the job reports; nil if there is none. It is the earliest primary one, or else the
// earliest echo, of the ranks that are not lost.
func (c *coordinator) firstCause() *cause {
	var echo *cause
	for i := range c.causes {
		f := &c.causes[i]
		switch {
		case f.by >= 0 && c.ranks[f.by].lost:
		case f.kind == Primary:
			return f
		case echo == nil:
			echo = f
		}
	}
	return echo
}

// interrupt sends the job's first signal to all workers.
func (c *coordinator) interrupt(s syscall.Signal) {
	if c.signal != 0 {
		return
	}
	c.signal = s
	c.deadline.Reset(signalGrace)
	c.sendToMembers(note{Signal: int(s)})
}

// result returns how the last generation ended. The first cause is the last line.
func (c *coordinator) result() (code int, text string) {
	code, why := c.why()
	lines := c.unended()
	switch first := c.firstCause(); {
	case first == nil || c.config.MaxRestarts == 0 || c.signal != 0:
	case c.misused(first):
		lines = append(lines, "no restart: status 2 means a wrong command line")
	case c.restarts == c.config.MaxRestarts:
		lines = append(lines, fmt.Sprintf("generation %d was the last: restarts without progress are limited to %d", c.gen, c.config.MaxRestarts))
	}
	if c.signal != 0 {
		code = 128 + int(c.signal)
		lines = append(lines, signalText(c.signal))
	}
	return code, strings.Join(append(lines, why...), "\n")
}

// unended has a line for each rank that had to be killed.
func (c *coordinator) unended() (lines []string) {
	for rank, r := range c.ranks {
		if !r.killed || r.lost || c.stalled {
			continue
		}
		line := c.rankName(rank) + " did not end by itself and was killed"
		if r.silence > silentAfter {
			line += fmt.Sprintf("; its last heartbeat was %.1f s before that", r.silence.Seconds())
		}
		lines = append(lines, line)
	}
	return lines
}

// why returns the exit status for the first cause, and says what it was.
func (c *coordinator) why() (code int, text []string) {
	first := c.firstCause()
	if first == nil {
		return 0, nil
	}
	code = 1
	if first.by >= 0 {
		code = max(c.ranks[first.by].code, 1)
	}
	if c.interrupted() {
		return code, []string{"all ranks " + exited(code)}
	}
	text = []string{first.text}
	if n := c.secondaryFailures(first); n > 0 {
		text[0] += fmt.Sprintf(" (and %s failed because of it)", ranks.Count(n))
	}
	return code, text
}

// exited says how a rank has ended by itself.
func exited(status int) string {
	text := fmt.Sprintf("exited with status %d", status)
	if status > 128 {
		text += fmt.Sprintf(", as after signal %v", syscall.Signal(status-128))
	}
	return text
}

// interrupted reports whether all ranks ended in order, after a signal to one of them. None is the cause.
func (c *coordinator) interrupted() bool {
	return !slices.ContainsFunc(c.ranks, func(r rankState) bool {
		return r.status <= 128 || r.status != c.ranks[0].status || r.reported || r.killed
	})
}

// misused reports whether a failure is that of a wrong command line, which no restart repairs: the rank ended with status 2,
// and either said why, or never came to dist.Run. Otherwise 2 is the status of a panic.
func (c *coordinator) misused(f *cause) bool {
	if f.by < 0 {
		return false
	}
	r := &c.ranks[f.by]
	return r.code == 2 && (r.reported || r.mute)
}

// secondaryFailures counts the ranks that failed or were killed, without those of the first cause and those that were lost before.
func (c *coordinator) secondaryFailures(first *cause) int {
	n := 0
	for rank, r := range c.ranks {
		if (rank < first.first || rank > first.last) && (r.failed || r.killed) && !r.lost {
			n++
		}
	}
	return n
}
