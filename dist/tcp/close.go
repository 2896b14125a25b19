package tcp

import "time"

// Close ends this rank's part in the job. Operations in flight are waited for, up to the timeout; peers that go on are
// told that this rank has left.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return nil
	}
	groups := make([]*group, 0, len(e.groups))
	for _, g := range e.groups {
		groups = append(groups, g)
	}
	e.mu.Unlock()
	deadline := time.Now().Add(e.cfg.Timeout)
	for _, g := range groups {
		g.drain(deadline)
	}
	e.Finish()
	e.mu.Lock()
	e.closing = true
	failed := e.firstErr != nil
	e.mu.Unlock()
	e.disconnect(failed)
	close(e.stop)
	for _, g := range groups {
		g.stopWorker()
	}
	e.wg.Wait()
	if h := e.mem.Load(); h != nil {
		h.Close()
	}
	return nil
}

// Finish tells the others that this rank issues no operation any more.
func (e *Engine) Finish() {
	e.mu.Lock()
	var groups []*group
	for _, g := range e.groups {
		if g.opened {
			groups = append(groups, g)
		}
	}
	e.mu.Unlock()
	for _, g := range groups {
		g.sendEnd(1)
	}
}

// disconnect says goodbye, waits until the others have read it, and closes the connections. To close earlier would lose data
// that is still on a slow line. A peer that gives no sign of life is given up. After a failure there is no data to save.
func (e *Engine) disconnect(failed bool) {
	var end <-chan time.Time
	if failed {
		t := time.NewTimer(closeGrace)
		defer t.Stop()
		end = t.C
	}
	for _, l := range e.links {
		if l != nil {
			l.sayGoodbye()
		}
	}
	for _, l := range e.links {
		if l == nil {
			continue
		}
		select {
		case <-l.peerDone:
			continue
		case <-end:
		}
		break // the others get no more time
	}
	for _, l := range e.links {
		if l != nil {
			l.close()
		}
	}
}
