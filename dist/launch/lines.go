package launch

import (
	"bytes"
	"io"
	"sync"
)

// maxLine is the longest line that is kept whole. A longer one becomes several lines.
const maxLine = 1 << 20

// output is shared by everything that writes lines. Its lock keeps lines whole, even if stdout and stderr are the same terminal.
type output struct {
	mu  sync.Mutex
	err error // first error of writing
}

// fail notes the first error of writing.
func (o *output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
}

// lineWriter collects what one rank writes to one stream. It writes whole lines, each with the rank's prefix in front.
type lineWriter struct {
	out    *output
	to     io.Writer
	prefix string
	rest   []byte // a line that has not ended yet
	block  []byte // scratch
}

// Write never fails: a rank must go on when the launcher's output is gone. The launcher reports the error at the end.
func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	w.block = w.block[:0]
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			break
		}
		w.addLine(p[:end+1])
		p = p[end+1:]
	}
	w.rest = append(w.rest, p...)
	if len(w.rest) > maxLine {
		w.addLine([]byte{'\n'})
	}
	w.emit()
	return n, nil
}

// Flush writes a last line that has no newline.
func (w *lineWriter) Flush() {
	w.block = w.block[:0]
	if len(w.rest) > 0 {
		w.addLine([]byte{'\n'})
	}
	w.emit()
}

// addLine completes the line in rest with its end.
func (w *lineWriter) addLine(end []byte) {
	w.block = append(append(append(w.block, w.prefix...), w.rest...), end...)
	w.rest = w.rest[:0]
}

func (w *lineWriter) emit() {
	if len(w.block) == 0 {
		return
	}
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	if _, err := w.to.Write(w.block); err != nil && w.out.err == nil {
		w.out.err = err
	}
}
