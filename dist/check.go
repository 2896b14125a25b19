package dist

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// count returns the number of elements of x, also of an invalid one, which a check refuses later.
func count(x tensor.Tensor) int {
	if !x.Valid() {
		return 0
	}
	return x.Len()
}

// memoryOf returns the memory of x, or an error if engines cannot use it.
func memoryOf(what string, x tensor.Tensor) (backend.Mem, error) {
	if x.IsZero() {
		return backend.Mem{}, fmt.Errorf("%s is the zero Tensor", what)
	}
	if !x.Valid() {
		return backend.Mem{}, fmt.Errorf("%s has been released", what)
	}
	if !x.Contiguous() {
		return backend.Mem{}, fmt.Errorf("%v is not contiguous", x.Shape())
	}
	return backend.Mem{Ptr: x.Ptr(), Bytes: x.Len() * x.DType().Size(), Device: !x.Device().Host()}, nil
}

// checkDevice checks that tensors are in host memory or in that of the rank's device.
func (c *call) checkDevice(dev tensor.Device) error {
	for _, x := range c.xs {
		if x.Valid() && !x.Device().Host() && x.Device() != dev {
			return fmt.Errorf("%v is in the memory of %v, which is not this rank's device", x.Shape(), x.Device())
		}
	}
	return nil
}

// setInput and setOutput set the input and the output of c.
func (c *call) setInput(x tensor.Tensor) (err error) {
	if c.src, err = memoryOf("input", x); err == nil {
		c.xs[0], c.of, c.dtype = x, x, x.DType()
	}
	return err
}

func (c *call) setOutput(x tensor.Tensor) (err error) {
	if c.dst, err = memoryOf("output", x); err != nil {
		return err
	}
	if !c.xs[0].IsZero() && x.DType() != c.dtype {
		return fmt.Errorf("output is %v, input is %v", x.DType(), c.dtype)
	}
	c.xs[1], c.dtype = x, x.DType()
	if c.of.IsZero() {
		c.of = x
	}
	return nil
}

// setInputOutput sets input and output and checks their sizes: dst has `up` times the elements of src, or src has `down` times those of
// dst.
func (c *call) setInputOutput(dst, src tensor.Tensor, up, down int) error {
	if err := c.setInput(src); err != nil {
		return err
	}
	if err := c.setOutput(dst); err != nil {
		return err
	}
	if src.Len()*up != dst.Len()*down {
		return fmt.Errorf("input %v and output %v: the output must have %d/%d of the input's elements", src.Shape(), dst.Shape(), up, down)
	}
	return nil
}

// inPlace checks that input and output do not overlap. If allowed, they may be the same elements: the output begins `at` bytes after the
// input (before it, if negative).
func (c *call) inPlace(at int, allowed bool) error {
	if c.src.Bytes == 0 || c.dst.Bytes == 0 {
		return nil
	}
	s, d := uintptr(c.src.Ptr), uintptr(c.dst.Ptr)
	if s+uintptr(c.src.Bytes) <= d || d+uintptr(c.dst.Bytes) <= s {
		return nil
	}
	if allowed && int(d)-int(s) == at {
		return nil
	}
	return fmt.Errorf("input %v and output %v overlap", c.xs[0].Shape(), c.xs[1].Shape())
}

// setRoot checks that root is a rank of the group, and sets it.
func (g *group) setRoot(c *call, root int) error {
	c.root = root
	if root < 0 || root >= len(g.ranks) {
		return fmt.Errorf("root %d: ranks of group %s are 0 to %d", root, g.name, len(g.ranks)-1)
	}
	return nil
}

func (c *call) setReduction(op Reduction) error {
	c.op = op
	return algo.CheckReduction(op.red, c.dtype)
}

// rows checks the counts of a V form against a tensor: its leading dimension must be their sum.
func (g *group) rows(what string, counts []int, x tensor.Tensor) error {
	if len(counts) != len(g.ranks) {
		return fmt.Errorf("%d %s counts, group %s has %d ranks", len(counts), what, g.name, len(g.ranks))
	}
	if x.NDim() == 0 {
		return fmt.Errorf("%v has no leading dimension", x.Shape())
	}
	sum := 0
	for i, n := range counts {
		if n < 0 {
			return fmt.Errorf("%s count of rank %d is %d", what, i, n)
		}
		if sum += n; sum < 0 {
			sum = math.MaxInt // the sum overflows, so it is too large in any case
		}
	}
	if sum != x.Dim(0) {
		return fmt.Errorf("%s counts sum to %d rows, %v has %d", what, sum, x.Shape(), x.Dim(0))
	}
	return nil
}

// setRows sets the input and the output of a V form. Their rows must be of the same length.
func (c *call) setRows(dst, src tensor.Tensor) error {
	if err := c.setInput(src); err != nil {
		return err
	}
	if err := c.setOutput(dst); err != nil {
		return err
	}
	c.row = elems(c.xs[0])
	if r := elems(c.xs[1]); r != c.row {
		return fmt.Errorf("rows of %v and %v differ", c.xs[0].Shape(), c.xs[1].Shape())
	}
	return nil
}

func elems(x tensor.Tensor) int {
	n := 1
	for i := 1; i < x.NDim(); i++ {
		n *= x.Dim(i)
	}
	return n
}

func bytesBefore(counts []int, rank, row int, d tensor.DType) int {
	n := 0
	for _, c := range counts[:rank] {
		n += c
	}
	return n * row * d.Size()
}
