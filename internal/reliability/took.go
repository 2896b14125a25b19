package reliability

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Slack is what a shared machine may add to a bound before a test fails.
const Slack = 2 * time.Second

// Took notes in the test's log how long something that belongs to a row took, and fails the test when that was more than
// the bound and Slack. Engine is where it ran: "local", "tcp", "shm", "launcher", …
func Took(t testing.TB, row int, engine string, bound, took time.Duration) {
	t.Helper()
	t.Logf("row %d on %s took %v of %v", row, engine, took.Round(time.Microsecond), bound)
	if took > bound+Slack {
		t.Errorf("row %d on %s took %v, the bound is %v", row, engine, took, bound)
	}
}

// Measured is what a line of a test's log says.
type Measured struct {
	Row         int
	Engine      string
	Took, Bound time.Duration
}

var line = regexp.MustCompile(`row (\d+) on (\S+) took (\S+) of (\S+)`)

// Parse finds what Took wrote in a line.
func Parse(text string) (m Measured, ok bool) {
	s := line.FindStringSubmatch(text)
	if s == nil {
		return m, false
	}
	var errs [3]error
	m.Engine = s[2]
	m.Row, errs[0] = strconv.Atoi(s[1])
	m.Took, errs[1] = time.ParseDuration(s[3])
	m.Bound, errs[2] = time.ParseDuration(s[4])
	return m, errs == [3]error{}
}

// String is the line of the log.
func (m Measured) String() string {
	return fmt.Sprintf("row %d on %s took %v of %v", m.Row, m.Engine, m.Took, m.Bound)
}
