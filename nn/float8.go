package nn

import (
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/tensor/ops"
)

// Float8 lets each Linear that is a target compute x·Wᵀ, and its gradients, with 8-bit floats scaled as s says
// (ops.Float8Linear); ops.NoFloat8 takes that back. Parameters stay in their type, and optimizers and files know nothing
// of it. Targets are those of LoRAConfig; leave out a Linear whose output is sensitive, such as the one to the vocabulary, and one whose
// inputs and weights are mostly positive: with fast accumulation, sums of 4096 such terms are 5% too small on an H100
// (ops.Float8). It panics
// with a *tensor.Failure, and leaves the model as it was, for a pattern that is malformed or matches no Linear, widths that are no
// multiples of 16, and a Linear that is cut by tensor parallelism: scales of a part are not those of the whole. The model is of
// float32 or a 16-bit type, not of float64; with ops.PerTensor, each rank's rows are a multiple of 16. All ranks must do the same;
// where they do it before the model is attached to ddp or fsdp, these compare it (SettingsOf).
func Float8(model any, s ops.Float8, patterns ...string) {
	if s > ops.PerRow {
		fail("Float8", "there is no scaling %d", s)
	}
	found := targets("Float8", slices.DeleteFunc(walk(model).linears, placedLinear.isInner), patterns)
	for _, l := range found {
		l.mustScale("Float8", l.name)
		if d := l.W.Dims(); d[0]%ops.Float8Multiple != 0 || d[1]%ops.Float8Multiple != 0 {
			fail("Float8", "%s has %d inputs and %d outputs, which must be multiples of %d", l.name, d[1], d[0], ops.Float8Multiple)
		}
	}
	for _, l := range found {
		l.Float8 = s
	}
}

// mustScale refuses a layer that does not have the whole weight, or the whole rows of its input.
func (l *Linear) mustScale(op, name string) {
	if l.Pre != nil || l.Post != nil || l.W.IsCut() {
		fail(op, "%s is cut by tensor parallelism, or has Pre or Post: 8-bit floats would be scaled by a part of its rows", name)
	}
}

// forward8 is forward with 8-bit floats.
func (l *Linear) forward8(x T) T {
	l.mustScale("Forward", strings.TrimSuffix(l.W.Name(), ".weight"))
	t := tapeOf(x)
	y := ops.Float8Linear(x, t.Use(l.W), l.Float8)
	if l.B != nil {
		y = y.Add(t.Use(l.B))
	}
	return l.adapt(x, y)
}
