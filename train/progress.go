package train

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// lineEvery is how often progress is said where there is no terminal.
const lineEvery = 3 * time.Second

// progress is what rank 0 shows.
type progress struct {
	total int
	quiet bool
	bar   *progressbar.ProgressBar // on a terminal
	begun time.Time
	said  time.Time // the last line
	read  int       // values of the first name that have been shown

	step atomic.Int64 // that runs, from 1 on; 0: none
	stop func()
}

// patience is how long a step runs before that is said.
var patience = 5 * time.Second

func (p *progress) begin(l *Loop) {
	p.quiet = l.o.JSON || l.r.World.Rank() != 0
	p.begun, p.said = time.Now(), time.Now()
	if p.quiet {
		return
	}
	ctx, stop := context.WithCancel(l.ctx)
	p.stop = stop
	go p.watch(ctx, l)
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.bar = progressbar.NewOptions(1, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("steps"), progressbar.OptionClearOnFinish())
	}
}

// watch says that a step takes long: after patience, twice, four times that.
func (p *progress) watch(ctx context.Context, l *Loop) {
	tick := time.NewTicker(patience)
	defer tick.Stop()
	last, ticks, next := int64(0), 0, 1
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		step := p.step.Load()
		if step == 0 || step != last {
			last, ticks, next = step, 0, 1
			continue
		}
		if ticks++; ticks == next {
			next *= 2
			l.r.Logf("step %d has run for more than %v", step, time.Duration(ticks)*patience)
		}
	}
}

// update shows where the loop stands.
func (p *progress) update(l *Loop) {
	ran := l.steps - l.resumed
	if p.quiet || ran == 0 || p.total == 0 {
		return
	}
	if p.bar != nil {
		p.bar.ChangeMax(p.total - l.resumed)
		p.bar.Describe(p.value(l))
		_ = p.bar.Set(ran)
		return
	}
	if time.Since(p.said) < lineEvery {
		return
	}
	each := time.Since(p.begun) / time.Duration(ran)
	left := (each * time.Duration(p.total-l.steps)).Round(time.Second)
	l.Logf("step %d of %d  %s  %.4g steps/s, %v left", l.steps, p.total, p.value(l), 1/each.Seconds(), left)
	p.said = time.Now()
}

// value is the mean of the first name since it was last shown.
func (p *progress) value(l *Loop) string {
	if len(l.kept.Values) == 0 || len(l.kept.Values[0].Values) == 0 {
		return "training"
	}
	s := l.kept.Values[0]
	if p.read >= len(s.Values) {
		p.read = max(0, len(s.Values)-1)
	}
	sum := 0.0
	for _, v := range s.Values[p.read:] {
		sum += float64(v)
	}
	mean := sum / float64(len(s.Values)-p.read)
	p.read = len(s.Values)
	return fmt.Sprintf("%s %.4f", s.Name, mean)
}

func (p *progress) end() {
	if p.stop != nil {
		p.stop()
	}
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}

// Logf prints a line on rank 0, but for Options.JSON.
func (l *Loop) Logf(format string, a ...any) {
	if l.show.bar != nil {
		_ = l.show.bar.Clear()
	}
	if !l.o.JSON {
		l.r.Logf(format, a...)
	}
}
