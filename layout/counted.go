package layout

// Held is what a rank has of a tensor: elements Lo to Hi-1 of boxes, which Of names.
type Held[K comparable] struct {
	Of     K
	Lo, Hi int
}

// Counted returns which of what ranks hold counts, so that each element does once: of the ranges of the same boxes, those that follow each
// other from the first element on. Where several begin, the first one in the list counts. Copies may be divided in other places.
func Counted[K comparable](held []Held[K]) []bool {
	type begin struct {
		of K
		lo int
	}
	first, counted := map[begin]int{}, make([]bool, len(held))
	for i, h := range held {
		at := begin{h.Of, h.Lo}
		if _, known := first[at]; !known && h.Lo < h.Hi {
			first[at] = i
		}
	}
	for at, i := range first {
		for known := at.lo == 0; known; i, known = first[at] {
			counted[i] = true
			at.lo = held[i].Hi
		}
	}
	return counted
}
