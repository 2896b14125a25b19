package sim

import "slices"

// cable is the links of a kind: as many up as down.
type cable struct {
	*Link
	ways    []way   // up and then down, or both at once
	down    int     // the first way down
	host    int     // ranks of a host, if it has rails
	each    float64 // picoseconds for a byte
	latency Time
}

// above returns the switch to which the link of rank or switch i goes.
func (c *cable) above(i int) int {
	if c.Rails {
		return i/c.host/c.Ports*c.host + i%c.host
	}
	return i / c.Ports
}

// wiring is a topology with so many ranks.
type wiring struct {
	top    *Topology
	cables []*cable   // by link
	trees  [][]*cable // for each link of ranks, the links up to the root
	down   []hop      // of a route
}

// wire connects so many ranks. Its error says why that cannot be.
func (t *Topology) wire(ranks int) (*wiring, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if ranks < 1 || ranks > maxRanks || ranks > t.Host && ranks%t.Host != 0 {
		return nil, t.wrong("%d ranks do not fit: they are whole hosts of %d, or a part of one, and %d at most", ranks, t.Host, maxRanks)
	}
	w := &wiring{top: t, cables: make([]*cable, len(t.Links))}
	most, joined := 0, ranks == 1
	for i, l := range t.Links {
		if l.From == "rank" {
			roots, ports := w.grow(i, ranks)
			most, joined = max(most, ports), joined || roots == 1
		}
	}
	switch {
	case joined:
		return w, nil
	case most < ranks:
		return nil, t.wrong("%d ranks do not fit: its switches have ports for %d", ranks, most)
	}
	return nil, t.wrong("ranks 0 and %d have no way to each other: no switch is above both", ranks-1)
}

// grow adds the links from ranks, which are those of a place, up to the root. It returns the number of roots, and of ranks that have room
// below one.
func (w *wiring) grow(i, below int) (roots, ports int) {
	var tree []*cable
	for ports = 1; i >= 0; i = w.top.up(w.top.Links[i].To) {
		l := &w.top.Links[i]
		if w.cables[i] == nil {
			w.cables[i] = &cable{Link: l, ways: make([]way, 2*below), host: w.top.Host, each: 1e3 / l.GBs, latency: nanoseconds(l.NS)}
			if !l.Half {
				w.cables[i].down = below
			}
		}
		tree = append(tree, w.cables[i])
		if ports *= l.Ports; l.Rails {
			ports *= w.top.Host
		}
		below, ports = w.cables[i].above(below-1)+1, min(ports, maxRanks)
	}
	w.trees = append(w.trees, tree)
	return below, ports
}

// route adds the links between two ranks to path.
func (w *wiring) route(path []hop, from, to int) []hop {
	for _, tree := range w.trees {
		a, b, n := from, to, len(path)
		w.down = w.down[:0]
		for _, c := range tree {
			path, w.down = append(path, hop{a, c}), append(w.down, hop{c.down + b, c})
			if a, b = c.above(a), c.above(b); a == b {
				for _, h := range slices.Backward(w.down) {
					path = append(path, h)
				}
				return path
			}
		}
		path = path[:n]
	}
	panic("sim: no way between ranks") // wire has looked for one
}

// Fits returns an error that says why so many ranks do not fit.
func (t *Topology) Fits(ranks int) error {
	_, err := t.wire(ranks)
	return err
}
