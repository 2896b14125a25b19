package layout

// Held is what a rank has of a tensor: elements Lo to Hi-1 of boxes, which Of names.
type Held[K comparable] struct {
	Of     K
	Lo, Hi int
}

// Counted returns which of what ranks hold counts, so that each element does once: of the ranges of the same boxes, those that follow each
// other from the first element on. Where several begin, the first one in the list counts. Copies may be divided in other places.
func Counted[K comparable](held []Held[K]) []bool {
	first, counted := map[Held[K]]int{}, make([]bool, len(held)) // where ranges begin: Hi is 0
	for i, h := range held {
		at := Held[K]{Of: h.Of, Lo: h.Lo}
		if _, known := first[at]; !known && h.Lo < h.Hi {
			first[at] = i
		}
	}
	for at, i := range first {
		for known := at.Lo == 0; known; i, known = first[at] {
			counted[i] = true
			at.Lo = held[i].Hi
		}
	}
	return counted
}
