package tcp

import (
	"fmt"
	"time"
)

// period is the time between two signs of life.
func (e *Engine) period() time.Duration {
	return min(max(e.cfg.Timeout/4, time.Millisecond), 10*time.Second)
}

// watch sends signs of life, gives up peers that send none, and checks for stalls. The caller gives the time at which it begins, because
// this process may be stopped before the goroutine runs.
func (e *Engine) watch(began int64) {
	defer e.wg.Done()
	period := e.period()
	look := min(period, stallInterval)
	tick := time.NewTicker(look)
	defer tick.Stop()
	last, said := began, began
	var groups []*group
	for {
		select {
		case <-e.stop:
			return
		case <-tick.C:
		}
		groups = e.checkStalls(groups)
		now := e.now()
		stopped := now-last > int64(look+period) // this process was: the silence may be its own
		last = now
		say := now-said >= int64(period-look/2)
		if say {
			said = now
		}
		for _, l := range e.links {
			if l == nil || l.unusable.Load() {
				continue
			}
			if say {
				l.post(&header{typ: frameAlive, gen: e.cfg.Gen}, nil)
			}
			if stopped {
				l.heard.Store(now)
			} else if silent := now-l.heard.Load() > int64(e.cfg.Timeout); silent && l.goodbye.Load() {
				l.close() // it owes nobody anything
			} else if silent {
				e.lost(l, fmt.Errorf("rank %d: no progress: no heartbeat for %v", l.peer.Rank, e.cfg.Timeout))
			}
		}
	}
}
