package disttest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"time"
)

// held is the resources of the process.
type held struct{ goroutines, files, mappings, heap int }

func holdings() held {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	h := held{goroutines: runtime.NumGoroutine(), heap: int(m.HeapAlloc)}
	if names, err := os.ReadDir("/proc/self/fd"); err == nil {
		h.files = len(names)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		h.mappings = bytes.Count(maps, []byte("\n"))
	}
	return h
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d mappings, heap %d KiB", h.goroutines, h.files, h.mappings, h.heap>>10)
}

// compare returns an error if later has more, apart from what is normal at a moment: a goroutine or two that end, mappings of threads and
// of the heap.
func (h held) compare(later held) error {
	if later.goroutines > h.goroutines+8 || later.files > h.files+4 || later.mappings > h.mappings+40 || later.heap > h.heap+h.heap/2+(8<<20) {
		return fmt.Errorf("something leaks: %v before, %v later", h, later)
	}
	return nil
}

// again waits until the process has no more than before: what was just closed may take a moment.
func (h held) again() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := h.compare(holdings())
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}
