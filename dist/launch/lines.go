package launch

import (
	"bytes"
	"io"
	"sync"
)

// maxLine bounds what is kept of a line that does not end; a longer one is cut into several.
const maxLine = 1 << 20

// output is where all ranks write. Its lock keeps lines whole, also when stdout and stderr are one terminal.
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

// lineWriter collects what one rank writes to one stream and passes it on in whole lines, each behind the rank's prefix.
type lineWriter struct {
	out    *output
	to     io.Writer
	prefix string
	rest   []byte // a line that has not ended yet
	block  []byte // scratch
}

// Write never fails: a rank must not stall or fail because the launcher's output is gone. The launcher reports it.
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

// Flush passes on a last line that has no newline.
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
