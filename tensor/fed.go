package tensor

import "slices"

// Fed is a rectangle of the global batch that a tape was given: N rows, and of each, if Rows.Seq says so, Positions.
type Fed struct {
	Rows
	N, Positions int
}

// inputs are the different rectangles that came since the last Backward; more than there is room for are not all known.
type inputs struct {
	n    int
	list [8]batch
}

func (f *inputs) add(b batch) {
	switch {
	case f.n > len(f.list) || slices.Contains(f.list[:f.n], b):
	case f.n == len(f.list):
		f.n++
	default:
		f.list[f.n] = b
		f.n++
	}
}

// Fed returns which parts of the global batch the tape that used p last was given since its last Backward. all is false if
// they were too many to remember. An owner of gradients asks in GradReady.
func (p *Param) Fed() (list []Fed, all bool) {
	if p.last == nil {
		return nil, true
	}
	f := &p.last.t.fed
	for _, b := range f.list[:min(f.n, len(f.list))] {
		list = append(list, Fed{b.Rows, b.n, b.seq})
	}
	return list, f.n <= len(f.list)
}
