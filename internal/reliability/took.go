package reliability

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Slack is how much later than the limit an error may come before a test fails, because the machine may be busy.
const Slack = 5 * time.Second

// Took writes to the test's log how long the error of a row took. It fails the test if that was more than the bound plus Slack. engine is
// where it ran: "local", "tcp", "shm", "launcher", …
func Took(t testing.TB, row int, engine string, bound, took time.Duration) {
	t.Helper()
	t.Logf("row %d on %s took %v of %v", row, engine, took.Round(time.Microsecond), bound)
	if took > bound+Slack {
		t.Errorf("row %d on %s took %v, the bound is %v", row, engine, took, bound)
	}
}

// Measured is the content of a line of a test's log.
type Measured struct {
	Row         int
	Engine      string
	Took, Bound time.Duration
}

var line = regexp.MustCompile(`row (\d+) on (\S+) took (\S+) of (\S+)`)

// Parse reads a line of Took.
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
