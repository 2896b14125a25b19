package tcp

// If ranks issue different operations, all of them may wait for a message that nobody sends. Whether that happens depends on the
// algorithms. So a rank that has waited for a message for some time tells its peer once which operation it waits for. The peer
// compares it with its own.

// waiting is the message that a worker waits for.
type waiting struct {
	peer int
	seq  uint64
	tag  uint8
	nth  uint32
}

// checkStalls lets each group check whether it still waits for the same message as at the last check. groups is scratch.
func (e *Engine) checkStalls(groups []*group) []*group {
	groups = groups[:0]
	e.mu.Lock()
	for _, g := range e.groups {
		if g.opened {
			groups = append(groups, g)
		}
	}
	e.mu.Unlock()
	for _, g := range groups {
		g.checkStall()
	}
	clear(groups)
	return groups
}

// checkStall is called by the goroutine that watches the engine.
func (g *group) checkStall() {
	g.mu.Lock()
	running, seq, peer := g.running && g.err == nil, g.done+1, int(g.waitsFor.Load())
	print := g.ops.At(seq).Print
	g.mu.Unlock()
	var w request
	if p := g.peers[peer]; running && p != nil {
		p.mu.Lock()
		w = p.want
		p.mu.Unlock()
	}
	now := waiting{peer, w.seq, w.tag, w.nth}
	switch {
	case !w.open || w.done || w.seq != seq:
		g.stallCheck, g.stallReported = waiting{}, false
	case now != g.stallCheck:
		g.stallCheck, g.stallReported = now, false
	case !g.stallReported:
		g.stallReported = true
		g.peers[peer].link.post(&header{typ: frameWaiting, gen: g.key.gen, group: g.key.id, seq: seq, print: print}, nil)
	}
}

// receiveWaiting compares what a peer waits for with this rank's own view of the operation, now or when it is issued.
func (g *group) receiveWaiting(p *pipe, h *header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(p.prints); g.mem == nil && (n == 0 || p.prints[n-1].seq < h.seq) {
		g.compare(p, h)
	}
}
