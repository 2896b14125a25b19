package layout

import "testing"

// positions are those of s, one after the other.
func (s Spans) positions(n int) (list []int) {
	for i := range n {
		if list = append(list, s.First+i); i >= s.Break {
			list[i] += s.Skip
		}
	}
	return list
}

// What a part of a sequence has, and its slices, are those of a list of positions.
func TestRuns(t *testing.T) {
	const total = 7
	held := 0
	for i := range 8 * 8 * 8 * 8 {
		s, n := Spans{i % 8, total, i / 8 % 8, i / 64 % 8}, i/512
		list := s.positions(n)
		inside := n == 0 && s.First <= total || n > 0 && list[n-1] < total
		want := inside && (s.Skip == 0 && s.Break == 0 || s.Skip > 0 && s.Break > 0 && s.Break < n)
		if s.Holds(n) != want {
			t.Fatalf("%+v holds %d: %v", s, n, !want)
		}
		if !want {
			continue
		}
		held++
		for lo := range n {
			for hi := lo + 1; hi <= n; hi++ {
				part := s.Slice(lo, hi)
				got := part.positions(hi - lo)
				for k := range got {
					if got[k] != list[lo+k] || !part.Holds(hi-lo) {
						t.Fatalf("%+v from %d to %d is %+v: %v of %v", s, lo, hi, part, got, list)
					}
				}
			}
		}
	}
	if held < 100 {
		t.Fatal(held)
	}
	if !(Spans{}).Holds(3) || (Spans{Total: 5, Break: 1, Skip: 2}).Slice(0, 1) != (Spans{Total: 5}) {
		t.Fatal("the whole")
	}
}
