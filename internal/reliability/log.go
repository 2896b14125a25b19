package reliability

import (
	"bytes"
	"sync"
)

// Log is what goroutines or a process print while a test reads it.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends p.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written until now.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
