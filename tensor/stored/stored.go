package stored

import "fmt"

// Segment is a part of a parameter in files: Rows rows of the parameter's dimension 0 are rows First to First+Rows of the Total rows of
// the tensor Name. If the parameter is Transposed, they are columns of it. Segments of a bias consist of elements.
type Segment struct {
	Name         string
	Rows         int
	First, Total int
	Squeeze      bool // the segment is one row, and the whole tensor in the file, which lacks dimension 0: an expert of a stack
}

// Check returns an error unless segments fill a tensor of this shape, lie in their own tensors, and do not overlap. Nil is right.
func Check(dims []int, as []Segment) error {
	switch {
	case as == nil:
		return nil
	case len(dims) == 0:
		return fmt.Errorf("a tensor without dimensions has no rows to divide")
	}
	left := dims[0]
	for i, s := range as {
		if err := s.valid(); err != nil {
			return err
		}
		if s.Rows > left {
			return fmt.Errorf("the segments up to %v have more than the %d rows", s, dims[0])
		}
		left -= s.Rows
		for _, t := range as[:i] {
			if err := s.Conflict(t); err != nil {
				return err
			}
		}
	}
	if left > 0 {
		return fmt.Errorf("the segments %v have %d of %d rows", as, dims[0]-left, dims[0])
	}
	return nil
}

func (s Segment) valid() error {
	switch {
	case s.Name == "":
		return fmt.Errorf("the segment %v names no tensor", s)
	case s.Squeeze && (s.Rows != 1 || s.Total != 1):
		return fmt.Errorf("the segment %v is to lack dimension 0, and is not one row of one", s)
	case s.Rows < 1 || s.First < 0 || s.Rows > s.Total || s.First > s.Total-s.Rows:
		return fmt.Errorf("the segment %v is not in its tensor", s)
	}
	return nil
}

// Conflict returns an error if two segments, of one parameter or of two, have the same rows of a tensor, or give it different sizes.
func (s Segment) Conflict(t Segment) error {
	switch {
	case s.Name != t.Name:
		return nil
	case s.Total != t.Total:
		return fmt.Errorf("the segments %v and %v disagree about the rows of their tensor", s, t)
	case s.First < t.First+t.Rows && t.First < s.First+s.Rows:
		return fmt.Errorf("the segments %v and %v overlap", s, t)
	}
	return nil
}

// String returns the name and the rows, such as "c_attn.weight[0:8 of 24]".
func (s Segment) String() string {
	return fmt.Sprintf("%s[%d:%d of %d]", s.Name, s.First, s.First+s.Rows, s.Total)
}
