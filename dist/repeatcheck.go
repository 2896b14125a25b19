package dist

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// repeats finds a microbatch that is differentiated more often than others of its step. If all are, as where a test has one batch, the
// gradient has a factor that may be meant.
type repeats struct {
	noted     bool // this Backward
	backwards []backward
}

// backward is what Backwards of a step compute that compute the same.
type backward struct {
	sum   uint64
	count int
	p     *tensor.Param // that has a gradient
}

func (c *repeats) note(p *tensor.Param) {
	if c.noted {
		return
	}
	c.noted = true
	sum, known := p.Repeats()
	if !known {
		return
	}
	for i := range c.backwards {
		if b := &c.backwards[i]; b.sum == sum {
			b.count++
			return
		}
	}
	c.backwards = append(c.backwards, backward{sum, 1, p})
}

// BackwardDone ends a Backward. After the last one of a step, it returns an error if an operation on the same rows and values was
// differentiated more often than others.
func (c *StepCheck) BackwardDone(last bool) error {
	c.noted = false
	if c.passes++; !last {
		return nil
	}
	c.micro, c.passes = c.passes, 0
	all := c.backwards
	c.backwards = nil
	for _, b := range all {
		if first := all[0]; b.count != first.count {
			if b.count < first.count {
				b = first
			}
			return fmt.Errorf("a microbatch of this step went through Backward %d times, and others did not: the same loss of the same rows "+
				"counts so often in the gradient of %s and of others; each microbatch is the input of one Backward, and if it shall count twice, "+
				"Backward(loss, tensor.Scale(2)) says so", b.count, b.p.Name())
		}
	}
	return nil
}
