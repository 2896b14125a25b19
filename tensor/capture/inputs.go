package capture

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// fits reports whether the inputs are like those that the recording has; before, it makes the tensors of the recording.
func (s *Step) fits(in []tensor.Tensor) bool {
	if s.ran > 0 {
		same, total := s.compare(in)
		if same || !total || s.ran > 1 {
			return same
		}
	}
	s.ran, s.in = 0, s.in[:0]
	for _, x := range in {
		s.in = append(s.in, tensor.New(s.dev, x.DType(), x.Shape().Dims...).WithRows(x.Rows()))
	}
	return true
}

// compare reports whether the inputs have the types, shapes and rows of those of the recording, and whether they are of as many rows of all
// ranks.
func (s *Step) compare(in []tensor.Tensor) (same, total bool) {
	if len(in) != len(s.in) {
		return false, false
	}
	same, total = true, true
	for i, x := range in {
		own := s.in[i]
		r, of := x.Rows(), own.Rows()
		r.Number = of.Number
		same = same && alike(x, own) && r == of
		total = total && r.Total > 0 && r.Total == of.Total
	}
	return same, total
}

func alike(x, y tensor.Tensor) bool {
	same := x.DType() == y.DType() && x.NDim() == y.NDim()
	for d := 0; same && d < x.NDim(); d++ {
		same = x.Dim(d) == y.Dim(d)
	}
	return same
}

// load copies the inputs to the tensors of the recording.
func (s *Step) load(in []tensor.Tensor) {
	q := s.dev.Queue(0)
	for i, x := range in {
		own, from := s.in[i], x.Device()
		tensor.Raw(own).Number(x.Rows().Number)
		switch {
		case x.Len() == 0:
		case !x.Contiguous():
			panic(&tensor.Failure{Op: "Run", Shapes: []tensor.Shape{x.Shape()}, Err: fmt.Errorf("input %d is not contiguous", i)})
		case from == s.dev || from.Host():
			s.dev.Copy(own.Ptr(), x.Ptr(), x.Len()*x.DType().Size(), q)
			if from != s.dev {
				s.sent = q.Mark()
			}
		default:
			tensor.Copy(own, x)
		}
	}
}
