package reliability

import (
	"fmt"
	"regexp"
	"time"
)

// Faults are the columns of the matrix of operations and faults, with the engines on which each can happen. Only processes can be killed
// and stopped, and only hosts have cables.
var Faults = []struct {
	Name, Head string
	Engines    []string
}{
	{"killed", "a rank is killed", []string{"shm", "tcp"}},
	{"stopped", "a rank is stopped", []string{"shm", "tcp"}},
	{"cable cut", "its cable is cut", []string{"tcp"}},
	{"late", "a rank is late", []string{"local", "shm", "tcp"}},
	{"slow", "a rank is slow", []string{"local", "shm", "tcp"}},
}

// Cell is a line in a test's log: what one fault did to one operation. Took is how long a rank needed for its error, or the longest step
// of a rank that succeeded.
type Cell struct {
	Op, Fault, Engine string
	Took              time.Duration
}

var cell = regexp.MustCompile(`cell (\S+), (.+), on (\S+) took (\S+)`)

// ParseCell reads a Cell from a line of a log.
func ParseCell(text string) (c Cell, ok bool) {
	s := cell.FindStringSubmatch(text)
	if s == nil {
		return c, false
	}
	took, err := time.ParseDuration(s[4])
	return Cell{s[1], s[2], s[3], took}, err == nil
}

// String is the line of the log.
func (c Cell) String() string {
	return fmt.Sprintf("cell %s, %s, on %s took %v", c.Op, c.Fault, c.Engine, c.Took)
}
