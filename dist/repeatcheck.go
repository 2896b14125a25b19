package dist

import (
	"fmt"
	"slices"

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
	i := slices.IndexFunc(c.backwards, func(b backward) bool { return b.sum == sum })
	if i < 0 {
		i, c.backwards = len(c.backwards), append(c.backwards, backward{sum, 0, p})
	}
	c.backwards[i].count++
}

// BackwardDone ends a Backward. After the last one of a step, it returns an error if an operation on the same rows and values was
// differentiated more often than others. params are the owner's; of a microbatch in a pipeline that uses none of them (Tape.TellOwner), it
// notes the rows.
func (c *StepCheck) BackwardDone(last bool, params []*tensor.Param) error {
	if i := slices.IndexFunc(params, (*tensor.Param).Told); i >= 0 && c.due() {
		c.rows.note(params[i])
	}
	c.noted = false
	if c.passes++; !last {
		return nil
	}
	all := c.backwards
	c.micro, c.passes, c.backwards = c.passes, 0, nil
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
