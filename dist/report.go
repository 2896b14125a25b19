package dist

import (
	"context"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/live"
)

const (
	// reportEvery is how often a rank reports to the launcher, if the job is watched.
	reportEvery = 500 * time.Millisecond
	// lastReport is how long a rank that ends waits for a launcher that has not read the report before.
	lastReport = time.Second
)

// watch sends reports to the launcher while the rank runs, and one more when its function is over. It does nothing if nobody watches the
// job.
func (r *Rank) watch(ctx context.Context, w *launch.Worker) {
	asked := w.Asked()
	if asked == nil {
		return
	}
	r.Live = live.NewRecorder(r.c.waited)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		every := time.NewTicker(reportEvery)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				select {
				case <-asked:
					r.show(w)
				default: // the launcher is slow: skip this report
				}
			case <-over:
				select {
				case <-asked:
					r.show(w)
				case <-time.After(lastReport):
				}
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	r.AtEnd(func(context.Context) error {
		close(over)
		<-done
		return nil
	})
}

// show sends a report.
func (r *Rank) show(w *launch.Worker) {
	report := live.Report{Memory: r.Device.Memory().ByName()}
	for k, s := range r.c.usageOfAll() {
		if s.calls > 0 || s.wire > 0 {
			report.Comm = append(report.Comm, live.Op{Name: backend.Kind(k).String(), Calls: s.calls, Payload: s.payload, Wire: s.wire,
				Flight: s.flight / 1e3, Waited: s.waited / 1e3})
		}
	}
	r.Live.Take(&report)
	if text, err := report.Encode(); err == nil { // a report that cannot be encoded or sent is skipped
		_ = w.Show(text)
	}
}

// usage is what a rank did with one kind of operation, in all its groups. Times are in nanoseconds.
type usage struct {
	calls, payload, wire uint64
	flight, waited       int64 // flight: from issue to end; waited: a goroutine waited for it
}

// kindOf is the kind of operation seq of the lane. For a batch it is that of the first part that is not over.
func (l *lane) kindOf(seq uint64) backend.Kind {
	if l.be == nil {
		l, seq = l.current()
	}
	return l.slot(seq).op.Kind
}

// addWire adds the bytes that the lane has moved.
func (l *lane) addWire(to *[backend.NumKinds]usage) {
	if l.be == nil {
		return
	}
	k := l.be.Counters()
	for i := range k.Wire {
		to[i].wire += k.Wire[i].Load()
	}
}

// usageOfAll returns what the rank did so far, by kind.
func (c *comm) usageOfAll() [backend.NumKinds]usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.usage
	for _, l := range c.lanes {
		l.addWire(&all)
	}
	return all
}

// waited returns how long the rank has waited for operations of all its groups.
func (c *comm) waited() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := int64(0)
	for i := range c.usage {
		sum += c.usage[i].waited
	}
	return time.Duration(sum)
}
