package progress

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/ringo-ml/ringo/train/metrics"
)

const (
	lineEvery = 3 * time.Second // how often there is a line, without a terminal
	patience  = 5 * time.Second // how long a step runs before there is a line about it
)

// Progress is what a person sees of a training. A nil Progress shows nothing.
type Progress struct {
	logf  func(format string, a ...any)
	bar   *progressbar.ProgressBar // on a terminal
	from  int                      // steps that were done at Start
	total int
	begun time.Time
	said  time.Time    // the last line
	read  int          // values that have been shown
	step  atomic.Int64 // the step that runs, from 1 on; 0: none
	stop  context.CancelFunc
}

// Start begins to show a training that has done so many steps. Lines go to logf.
func Start(ctx context.Context, done int, logf func(format string, a ...any)) *Progress {
	now := time.Now()
	p := &Progress{logf: logf, from: done, begun: now, said: now}
	ctx, p.stop = context.WithCancel(ctx)
	go p.watch(ctx)
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.bar = progressbar.NewOptions(1, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowCount(),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("steps"), progressbar.OptionClearOnFinish())
	}
	return p
}

// watch says that a step takes long: after patience, twice, four times that.
func (p *Progress) watch(ctx context.Context) {
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
			p.logf("step %d has run for more than %v", step, time.Duration(ticks)*patience)
		}
	}
}

// Until says with which step the training ends.
func (p *Progress) Until(total int) {
	if p != nil {
		p.total = total
	}
}

// Run says which step runs, from 1 on; 0: none does.
func (p *Progress) Run(step int) {
	if p != nil {
		p.step.Store(int64(step))
	}
}

// Show shows how many steps are done, and the newest values of the first series.
func (p *Progress) Show(done int, series []*metrics.Series) {
	if p == nil || done == p.from || p.total == 0 {
		return
	}
	ran := done - p.from
	if p.bar != nil {
		p.bar.ChangeMax(p.total - p.from)
		p.bar.Describe(p.value(series))
		_ = p.bar.Set(ran)
		return
	}
	if time.Since(p.said) < lineEvery {
		return
	}
	p.said = time.Now()
	each := p.said.Sub(p.begun) / time.Duration(ran)
	left := (each * time.Duration(p.total-done)).Round(time.Second)
	p.logf("step %d of %d  %s  %.4g steps/s, %v left", done, p.total, p.value(series), 1/each.Seconds(), left)
}

// value is the mean of the first series since it was last shown.
func (p *Progress) value(series []*metrics.Series) string {
	if len(series) == 0 || len(series[0].Values) == 0 {
		return "training"
	}
	all := series[0].Values
	some := all[min(p.read, len(all)-1):]
	sum := 0.0
	for _, v := range some {
		sum += v
	}
	p.read = len(all)
	return fmt.Sprintf("%s %.4f", series[0].Name, sum/float64(len(some)))
}

// Clear removes the bar until Show, so that there is room for a line.
func (p *Progress) Clear() {
	if p != nil && p.bar != nil {
		_ = p.bar.Clear()
	}
}

// Close ends what Start began. Nothing more is shown.
func (p *Progress) Close() {
	if p != nil {
		p.stop()
		p.Clear()
		p.bar, p.total = nil, 0
	}
}
