package ddp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const (
	firstBucketBytes   = 1 << 20
	defaultBucketBytes = 25 << 20
)

// Config changes Attach. The zero value is what most users want.
type Config struct {
	// BucketBytes is the largest bucket: 25 MiB if 0. The first one of each group and type has 1 MiB at most, so that communication
	// starts early. A parameter that is larger has a bucket of its own.
	BucketBytes int
	// Hook communicates a bucket. nil is an all-reduce in the gradients' type; see Compress and package powersgd.
	Hook CommHook
	// AllowUnused lets parameters be without a gradient in a step, on some ranks (they count as zero there) or on all
	// (the optimizer then skips them). It costs a small all-reduce a step.
	AllowUnused bool
	// Over, if not nil, returns the group of the ranks that hold the same part of p as this one, where these are not all of
	// Attach's: with experts shared out over "ep", those that hold the same experts. nil is Attach's group. The gradient is the
	// sum over these ranks; there is no factor.
	Over func(p *tensor.Param) *dist.Group
	// CheckEvery, if not 0, compares what ranks were fed, and the parameters' values by checksums, in every so many steps, besides
	// steps 0, 1, 4, 16, 64 and so on: over the ranks, and those of frozen parameters with what they were. It reads all parameters, on
	// the host.
	CheckEvery int
	// DType and Seed make the values of parameters that have none yet. Others keep theirs, and their types.
	DType tensor.DType
	Seed  uint64
}

// Attach prepares model for data-parallel training on the ranks of g, all of which must call it: it makes values where
// there are none, verifies that all ranks have the same parameters, copies rank 0's values to all, and makes Backward
// all-reduce the gradients. It returns the parameters, for the optimizer. A model is attached once.
// Param.Grad is a view of a bucket; it moves once, after the first step. Parameters may be frozen later, on all ranks
// alike.
func Attach(g *dist.Group, model any, c Config) (nn.Params, error) {
	params, err := prepare(g, model, c)
	if err != nil {
		return nil, err
	}
	r := &reducer{
		g:           g,
		over:        func(p *tensor.Param) *dist.Group { return c.group(g, p) },
		exec:        tensor.NewExec(g.Device()),
		hook:        c.Hook,
		bucketBytes: cmp.Or(c.BucketBytes, defaultBucketBytes),
		allowUnused: c.AllowUnused,
		all:         params,
		rebuilt:     c.AllowUnused,
		checks:      dist.StepCheck{Every: c.CheckEvery},
	}
	switch h := c.Hook.(type) {
	case nil:
		r.hook = allReduce{}
	case StatefulHook:
		if r.stateful, err = h.Attach(params, c); err != nil {
			return nil, err
		}
		r.hook = r.stateful
	}
	for _, p := range slices.Backward(params) { // gradients come about in this order
		if err := p.Own(r, r.over(p).Axes()); err != nil {
			return nil, fmt.Errorf("ddp: %w", err)
		}
		if !p.Frozen() {
			r.params = append(r.params, p)
		}
	}
	r.build()
	return params, nil
}

// prepare makes, verifies and broadcasts the values of all parameters and buffers.
func prepare(g *dist.Group, model any, c Config) (nn.Params, error) {
	switch {
	case g == nil:
		return nil, errors.New("ddp: the group is nil")
	case c.BucketBytes < 0:
		return nil, fmt.Errorf("ddp: Config.BucketBytes is %d, want 1 or more, or 0 for 25 MiB", c.BucketBytes)
	case c.CheckEvery < 0:
		return nil, fmt.Errorf("ddp: Config.CheckEvery is %d, want 1 or more, or 0", c.CheckEvery)
	}
	params := nn.ParamsOf(model)
	if len(params) == 0 {
		return nil, fmt.Errorf("ddp: no parameters in a model of type %T: a rank of a pipeline that has none does not call Attach", model)
	}
	c.warnOfType(g, params)
	for _, p := range params {
		if h := p.Owner(); h != nil {
			return nil, fmt.Errorf("ddp: %s is attached already: its gradient belongs to %v", p.Name(), h)
		}
		if p.Value.IsZero() {
			p.Make(g.Device(), c.DType, c.Seed)
		}
		p.To(g.Device())
	}
	if err := verify(g, params, nn.SettingsOf(model), c); err != nil {
		return nil, err
	}
	works := make([]dist.Work, len(params))
	for i, p := range params {
		works[i] = c.group(g, p).Broadcast(p.Value, 0)
	}
	for _, w := range works {
		if err := w.Wait(); err != nil {
			return nil, err
		}
	}
	return params, nil
}

// warnOfType warns if DType is the type of nothing: all parameters have values already, of other types.
func (c *Config) warnOfType(g *dist.Group, params nn.Params) {
	for _, p := range params {
		if p.Value.IsZero() || p.Value.DType() == c.DType {
			return
		}
	}
	if p := params[0]; c.DType != tensor.Float32 && g.Rank() == 0 {
		slog.Warn(fmt.Sprintf("ddp: Config.DType is %v, and all parameters have values already, such as %s, %v: they keep their types; "+
			"nn.Init and ckpt.Load decide these", c.DType, p.Name(), p.Value.DType()))
	}
}

// group returns the ranks that hold what this rank has of p.
func (c *Config) group(g *dist.Group, p *tensor.Param) *dist.Group {
	if c.Over != nil {
		if over := c.Over(p); over != nil {
			return over
		}
	}
	return g
}

// verify compares the configuration, the layers' settings and the parameters over the ranks: names, types and the model's shapes over all
// of them, then this rank's parts over those that hold the same. All ranks return the same error.
func verify(g *dist.Group, params nn.Params, settings []string, c Config) error {
	hook := fmt.Sprintf("%T", c.Hook)
	if h, ok := c.Hook.(fmt.Stringer); ok {
		hook = h.String()
	}
	lines := []string{fmt.Sprintf("BucketBytes=%d Hook=%s AllowUnused=%v", c.BucketBytes, hook, c.AllowUnused),
		fmt.Sprintf("CheckEvery=%d", c.CheckEvery)}
	lines = append(lines, settings...)
	groups := []*dist.Group{g}
	parts := [][]string{nil}
	for i, p := range params {
		over := c.group(g, p)
		k := slices.Index(groups, over)
		if k < 0 {
			k = len(groups)
			groups, parts = append(groups, over), append(parts, nil)
		}
		whole := tensor.Shape{DType: p.Value.DType(), Dims: p.Global()}
		line := fmt.Sprintf("parameter %d: %s %v frozen=%v", i, p.Name(), whole, p.Frozen())
		if k > 0 {
			line += fmt.Sprintf(" over the group number %d of Over", k)
		}
		lines = append(lines, line)
		parts[k] = append(parts[k], fmt.Sprintf("of %s the part %v", p.Name(), p.Placement()))
	}
	if err := dist.Agree(g, "ddp", append(lines, parts[0]...), nil); err != nil || len(groups) == 1 {
		return err
	}
	var problem error
	for k, over := range groups[1:] {
		problem = errors.Join(problem, dist.Agree(over, "ddp", parts[k+1], nil))
	}
	return dist.Agree(g, "ddp", nil, problem)
}

func unusedError(ps []*tensor.Param) error {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.Name()
	}
	return fmt.Errorf("ddp: no gradient for %s: not used by the loss (Config.AllowUnused permits that)", strings.Join(names, ", "))
}
