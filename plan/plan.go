package plan

import (
	"fmt"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Unit is a set of parameters that fsdp gathers and reduces together (Sharding.Unit, Sharding.Keep). Without fsdp, units do not matter.
type Unit struct {
	Params []int // elements of each trained parameter
	Frozen []int // elements of each frozen parameter
	Keep   bool

	// Experts marks Params as a part of the experts. They are shared by Layout.EP ranks, so they are on other ranks than the rest of the
	// model.
	Experts bool
}

// Model is what a plan needs to know of a model. Under tensor parallelism it is one rank's part.
type Model struct {
	Units       []Unit
	Activations Item      // step memory of a rank, memory.Activations; zero: unknown, and not in the plan
	Sums        []Traffic // all that layers and stages send (along tp, ep, ring, cp and pp); that of ddp and fsdp is for New to add
	Legend      []string  // the meaning of letters in the formulas of Activations and Sums
}

// Config says how the model is trained. The zero value is one rank with AdamW in float32.
type Config struct {
	Layout Layout
	// Sequence is sequence parallelism: each of the tp ranks has a part of the tokens between the divided layers.
	Sequence bool
	// Stage is the stage of fsdp: 1, 2 or 3; 0 means 3. Without Layout.FSDP it must be 0.
	Stage int
	// Params is the type of parameters in use. If it has 16 bits, there are masters in float32.
	Params tensor.DType
	// Reduce is the type in which gradients are sent. The default, also if it is zero, is the type of masters with fsdp, and that of
	// Params with ddp. fsdp stores gradients in it; ddp rounds float32 to it and back (ddp.Compress).
	Reduce tensor.DType
	// Host, if not 0, is the number of ranks of a host. Each host keeps a copy of the units (fsdp.Config.Host). Int8 and Int4 send values and
	// gradients in so many bits (fsdp.Config.Weights and Grads).
	Host       int
	Int8, Int4 bool
	// Optimizer is "adamw", also if it is empty, or "sgd" with momentum.
	Optimizer string
}

// Item is an amount of memory and its formula.
type Item struct {
	Kind    memory.Use `json:"-"`
	Name    string     `json:"kind"`
	Bytes   int        `json:"bytes"`
	Formula string     `json:"formula"`
}

// Traffic is what one operation sends in a step.
type Traffic struct {
	Op string `json:"op"` // as in dist.Stats, but without the v of V forms: "allgather"
	// Axis is that of the ranks: an axis of the layout, several as one group ("fsdp×ep×ring×cp"), or "host" and "hosts" (Config.Host).
	Axis    string `json:"axis"`
	Bytes   int    `json:"bytes"`
	Formula string `json:"formula"` // formula of Bytes, for all ranks together
}

// Plan is what a training will need.
type Plan struct {
	Layout     string    `json:"layout"`
	Params     string    `json:"params"` // the type of parameters in use
	Reduce     string    `json:"reduce"` // the type in which gradients are sent
	Sequence   bool      `json:"sp,omitempty"`
	Host       int       `json:"host,omitempty"`
	Int8       bool      `json:"int8,omitempty"`
	Int4       bool      `json:"int4,omitempty"`
	Ranks      int       `json:"ranks"`
	Stage      int       `json:"stage"`            // 0: ddp
	Parameters int       `json:"parameters"`       // P: elements that a rank has, together with the ranks that share them
	Memory     []Item    `json:"memory"`           // of the rank with the largest part
	Stages     []Stage   `json:"stages,omitempty"` // by rank of a pipeline
	Bubble     float64   `json:"bubble,omitempty"` // part of the time of its ranks in which they wait
	Total      int       `json:"total"`
	Traffic    []Traffic `json:"traffic"`
	Sent       int       `json:"sent"` // bytes in a step, by all ranks together
	// PerParam is the bytes of parameters, gradients and optimizer state for each parameter; ZeRO is the same by the paper's formula.
	PerParam float64  `json:"bytes_per_parameter"`
	ZeRO     float64  `json:"zero_bytes_per_parameter"`
	Legend   []string `json:"legend"`
}

// sizes is a model and a configuration as numbers.
type sizes struct {
	Config
	c, g, m       int // bytes of a value in use, of a gradient, of a value that the optimizer updates
	moments       int
	ranks         int    // ranks over which a copy is sharded, without its experts
	experts       extent // X: parameters of experts
	extent               // all parameters
	trained       extent // parameters that have gradients
	quantized     quantized
	early         int // elements of units before the first trained one: Backward does not reach them
	units, params int
	longest       int  // elements of the largest trained parameter on one rank
	inLast        bool // the last unit has experts
	sums          int  // sums from which the norm of the gradients is computed
}

// extent counts elements.
type extent struct {
	total         int // P
	part          int // of the rank with the largest part
	kept, mine    int // K: those of kept units; and this rank's part of these
	loose, blocks int // U: those of the largest unit that is not kept; the number of such units
	last          int // those of the last such unit
}

// New returns the plan of training m, or an error that says in one sentence what is not possible.
func New(m Model, c Config) (*Plan, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := c.sizes(m)
	if s.total == 0 {
		return nil, fmt.Errorf("the model has no parameters")
	}
	p := &Plan{Layout: c.Layout.String(), Params: c.Params.String(), Reduce: c.reduce().String(), Ranks: c.Layout.Ranks(),
		Sequence: c.Sequence, Host: c.Host, Int8: c.Int8, Int4: c.Int4, Stage: s.Stage, Parameters: s.total, Memory: s.memory()}
	if m.Activations.Bytes > 0 {
		p.Memory = append(p.Memory, m.Activations)
	}
	state := 0
	for i := range p.Memory {
		it := &p.Memory[i]
		it.Name = it.Kind.String()
		p.Total += it.Bytes
		switch it.Kind {
		case memory.Parameters, memory.Gradients, memory.OptimizerState:
			state += it.Bytes
		}
	}
	p.PerParam, p.ZeRO = float64(state)/float64(s.total), s.zero()
	p.Traffic = append(s.traffic(), m.Sums...)
	for _, t := range p.Traffic {
		p.Sent += t.Bytes
	}
	p.Legend = append(s.legend(), m.Legend...)
	return p, nil
}

// master is the type of what the optimizer updates.
func (c Config) master() tensor.DType {
	if c.Params.IsHalf() {
		return tensor.Float32
	}
	return c.Params
}

// grads is the type in which gradients are stored; reduce is the one in which they are sent.
func (c Config) grads() tensor.DType {
	if c.Layout.FSDP == 0 {
		return c.Params
	}
	return c.reduce()
}

func (c Config) reduce() tensor.DType {
	switch {
	case c.Reduce != 0:
		return c.Reduce
	case c.Layout.FSDP == 0:
		return c.Params
	}
	return c.master()
}

func (c Config) check() error {
	ddp := c.Layout.FSDP == 0
	r, from := c.reduce(), c.master()
	if ddp {
		from = c.Params
	}
	switch {
	case !c.Params.IsFloat() || !r.IsFloat():
		return fmt.Errorf("parameters and gradients are floats, not %v and %v", c.Params, r)
	case r != from && !(r.IsHalf() && from == tensor.Float32):
		return fmt.Errorf("gradients of %v parameters cannot be reduced in %v", c.Params, r)
	case c.Sequence && c.Layout.tp() == 1:
		return fmt.Errorf("sequence parallelism needs a tp axis in the layout, such as tp=2")
	case c.Stage < 0 || c.Stage > 3:
		return fmt.Errorf("stage %d is not 1, 2 or 3", c.Stage)
	case ddp && c.Stage != 0:
		return fmt.Errorf("stage %d needs an fsdp axis in the layout, such as fsdp=%d", c.Stage, c.Layout.dp())
	case c.Optimizer != "" && c.Optimizer != "adamw" && c.Optimizer != "sgd":
		return fmt.Errorf("optimizer %q is not adamw or sgd", c.Optimizer)
	}
	if err := c.checkHost(); err != nil {
		return err
	}
	return c.Layout.check()
}

// sizes counts elements as fsdp shards them: of n trained elements of a unit, rank r of N has those from ⌊n/N⌋·r + min(r, n mod N) on,
// and the frozen ones are sharded in the same way. So rank 0's part is the largest. Without fsdp, it is all.
func (c Config) sizes(m Model) *sizes {
	s := &sizes{Config: c, c: c.Params.Size(), g: c.grads().Size(), m: c.master().Size(), moments: 2, ranks: 1}
	if c.Layout.FSDP > 0 {
		s.ranks = c.Layout.fsdp() * c.Layout.ep() * c.Layout.positions()
	}
	if c.Optimizer == "sgd" {
		s.moments = 1
	}
	if s.Stage == 0 && c.Layout.FSDP > 0 {
		s.Stage = 3
	}
	for _, u := range m.Units {
		s.add(u)
	}
	return s
}

func (s *sizes) add(u Unit) {
	n, frozen, ranks := sum(u.Params), sum(u.Frozen), s.ranks
	if n+frozen == 0 {
		return
	}
	if u.Experts {
		ranks = s.Layout.fsdp() * s.Layout.positions()
	}
	part := share(n, ranks)
	s.addCodes(n, frozen, u.Keep)
	s.units++
	s.params += len(u.Params) + len(u.Frozen)
	s.extent.add(n+frozen, part+share(frozen, ranks), u.Keep)
	if u.Experts {
		s.experts.add(n, part, u.Keep)
	}
	if !u.Keep {
		s.inLast = u.Experts
	}
	if n > 0 {
		s.trained.add(n, part, u.Keep)
	} else if s.trained.total == 0 && !u.Keep {
		s.early += frozen
	}
	for _, k := range u.Params {
		own := min(k, part) // rank 0 has the first elements
		part -= own
		s.longest = max(s.longest, own)
		s.sums += (own + tensor.SumSquaresBlock - 1) / tensor.SumSquaresBlock
	}
}

// share is the largest part of n elements.
func share(n, ranks int) int {
	_, most := layout.Share(n, 0, ranks)
	return most
}

func (e *extent) add(n, part int, keep bool) {
	e.total, e.part = e.total+n, e.part+part
	if keep {
		e.kept, e.mine = e.kept+n, e.mine+part
	} else {
		e.loose, e.blocks, e.last = max(e.loose, n), e.blocks+1, n
	}
}

func sum(list []int) (n int) {
	for _, k := range list {
		n += k
	}
	return n
}
