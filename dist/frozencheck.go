package dist

import (
	"fmt"
	"hash/crc32"

	"github.com/ringo-ml/ringo/tensor"
)

// values are what is remembered of the values of a frozen parameter.
type values struct{ version, sum uint32 }

// Frozen returns an error if x, values of the frozen parameter p, is not what it was in the last step that was compared, and Changed was
// not called for p since. Owners call it for all parameters when Done says so. A Buffer is not checked: Forward may change it. Tensors in
// device memory are copied to the host. After the first two steps a program may rightly change them, in ddp without Changed: then they are
// only compared if Every asks for it.
func (c *StepCheck) Frozen(p *tensor.Param, x tensor.Tensor) error {
	if !p.Frozen() || p.IsBuffer() || c.Every == 0 && c.steps > 2 {
		return nil
	}
	now := values{p.Version(), crc32.Checksum(tensor.ToHost(x).Bytes(), castagnoli)}
	last, known := c.frozen[x]
	if known && last.version == now.version && last.sum != now.sum {
		return fmt.Errorf("%s is frozen, and its values were changed between two steps: by an optimizer that should not have it, or by the "+
			"program; behind a change that is meant call Changed of the parameter", p.Name())
	}
	if c.frozen == nil {
		c.frozen = map[tensor.Tensor]values{}
	}
	c.frozen[x] = now
	return nil
}
