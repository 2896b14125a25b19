package ckpt

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// State is what a checkpoint holds of a training run. All ranks give the same State, except for the parameters: each
// rank lists those that it holds (with pipeline parallelism, only some), and their Placement says which part.
type State struct {
	// Step is the number of steps done. Load sets it.
	Step int
	// Params are the parameters and buffers that nn.ParamsOf or an Attach returned. Param.Local is saved and loaded. It
	// is stored under the parameter's name, or as its segments (tensor.Param.SetStored).
	Params nn.Params
	// Optimizer, if not nil, is saved and loaded with its step counts, learning rate and loss scale. It has the masters
	// of 16-bit parameters. Give it even if a checkpoint has only parameters: without it, Load cannot update the
	// masters, and training would continue from old values. Masters can be loaded into Float32 parameters (package fsdp
	// keeps those when it computes in 16 bits), and Float32 parameters into masters.
	Optimizer *optim.Optimizer
	// Tape, if not nil, has its random state saved and loaded. Otherwise dropout would repeat its first masks. If a parameter has another
	// optimizer, or was last used by another tape with random numbers, a save warns: those need a State and a folder of their own.
	Tape *tensor.Tape
	// Extra is further state, the same on all ranks, such as a data loader's. Save writes the values as JSON. Load
	// reads them into the pointers that it finds under the same keys, and ignores other keys of the checkpoint.
	Extra map[string]any
	// Files are small additional files of the folder, by name, the same on all ranks, such as config.json for Hugging
	// Face's libraries, or 1_Pooling/config.json, in a folder below. They are hashed, and Convert copies them. Load ignores
	// them.
	Files map[string][]byte
	// Nonfinite saves parameters and the optimizer's state also if they are NaN or infinite, or if a device has stopped the training
	// (Optimizer.Stopped). Otherwise that is an error, so that a training that has diverged keeps the checkpoints from before.
	Nonfinite bool
	// Base, if not nil, is stored with adapters that are saved without their frozen base model (see BaseOf). Load
	// refuses a checkpoint with another base.
	Base *Base
	// TP says how tensor parallelism cuts the parameters. It is stored in ringo.json for loading on another layout. The
	// stored tensor of a transposed parameter is cut along the other dimension. Parameters that are already cut need no
	// Rule: their placement has it.
	TP Rules
}

// item is a tensor as files have it: of a parameter, or of the optimizer's state for one.
type item struct {
	writeItem
	of       *tensor.Param // whose value or state it is
	data     tensor.Tensor
	buffer   bool         // it need not be finite
	at       int          // first element in the source
	fromKey  string       // key of the checkpoint's tensor that Load fills it from
	fromType tensor.DType // type of that tensor; it differs from data's only if Load casts
	part     shard.Part   // in the file
	memory   *shard.Part  // for a transposed parameter: the part in data's order; nil: data has the file's order
}

// memoryPart returns the part in the order of data.
func (x *item) memoryPart() shard.Part {
	if x.memory != nil {
		return *x.memory
	}
	return x.part
}

// source is a tensor of a State. It is stored as one item or several.
type source struct {
	model bool // else the optimizer's
	name  string
	of    *tensor.Param // whose value or state it is
	data  tensor.Tensor
	apart bool // stored under its own name, not as of's segments
}

// sources yields the tensors of a State; o is its optimizer's state.
func (st *State) sources(o *optim.State) iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, p := range st.Params {
			if !yield(source{model: true, name: p.Name(), of: p, data: p.Local}) {
				return
			}
		}
		for _, t := range o.Tensors {
			if !yield(source{name: t.Name, of: t.Param, data: t.Tensor}) {
				return
			}
		}
	}
}

// optimizer returns the optimizer's state, or an empty one if there is no optimizer.
func (st *State) optimizer() optim.State {
	if st.Optimizer == nil {
		return optim.State{}
	}
	return st.Optimizer.State()
}

// items lists the tensors of a State as they are stored.
func (st *State) items() ([]item, error) {
	o := st.optimizer()
	p, err := newRankPlan(st, &o)
	if err != nil {
		return nil, err
	}
	return p.items, nil
}

// apart returns the parameters whose file tensors also contain a parameter that the optimizer does not train. The optimizer's state for
// them is stored under their own names, because a tensor in the file's form would have gaps.
func (st *State) apart(counts map[string]int) map[*tensor.Param]bool {
	list, untrained := map[*tensor.Param]bool{}, map[string]bool{}
	for _, p := range st.Params {
		if _, trained := counts[p.Name()]; !trained && p.Stored() != nil {
			for _, name := range storedNames(p) {
				untrained[name] = true
			}
		}
	}
	for _, p := range st.Params {
		if p.Stored() != nil {
			list[p] = slices.ContainsFunc(storedNames(p), func(name string) bool { return untrained[name] })
		}
	}
	return list
}

// ready returns an error if a source has no values to read. It waits for values that are still being computed.
func (s *source) ready() error {
	switch {
	case s.data.IsZero():
		return fmt.Errorf("%s was never made: call nn.Init or Attach first", s.name)
	case !s.data.Contiguous():
		return fmt.Errorf("%s is not contiguous", s.name)
	}
	tensor.Raw(s.data).Settle() // here, on one goroutine, because several tensors may be views of the same memory
	return nil
}

// appendItems appends the items of a source.
func (s *source) appendItems(list []item) ([]item, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	p := s.of
	x := item{of: p, data: s.data, buffer: p.IsBuffer(), fromType: s.data.DType()}
	x.writeItem = writeItem{Model: s.model, Name: s.name, DType: storage.DTypes[x.fromType], Shape: append([]int{}, p.Global()...),
		Rule: ruleOf(p)}
	var err error
	if x.part, err = shard.Of(p.Placement(), s.data.Len()); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	first := len(list)
	as := p.Stored()
	if s.apart {
		as = nil
	}
	if as != nil {
		list = append(list, x.divide(as)...)
	} else {
		list = append(list, x)
	}
	for i := range list[first:] {
		x := &list[first+i]
		if as != nil {
			x.Name += strings.TrimPrefix(s.name, p.Name()) // the optimizer's key
		}
		if p.Transposed() && len(x.Shape) == 2 {
			memory := x.part
			x.memory, x.part = &memory, memory.Transposed()
			x.Shape, x.Transposed = x.part.Shape, true
		}
		if held := x.memoryPart(); !held.Whole() {
			x.Boxes, x.Flat = held.Boxes, [2]int{held.Lo, held.Hi}
		}
	}
	return list, nil
}

// take sets an item's data to its elements of the source's data.
func (x *item) take(data tensor.Tensor) {
	if n := x.memoryPart().Len(); n < data.Len() {
		data = data.Range(x.at, x.at+n)
	}
	x.data = data
}

// hostMemory returns a tensor's own memory if it is on the host, and otherwise new host memory of the same size, for
// setBytes.
func hostMemory(x tensor.Tensor) []byte {
	if x.Len() == 0 {
		return nil
	}
	if x.Device().Host() {
		return x.Bytes()
	}
	return make([]byte, x.Len()*x.DType().Size())
}

// setBytes copies hostMemory into a tensor. It does nothing if that is the tensor's own memory.
func setBytes(x tensor.Tensor, b []byte) error {
	if x.Len() == 0 || x.Device().Host() {
		return nil
	}
	dev := x.Device()
	q := dev.Queue(0)
	dev.Copy(x.Ptr(), tensor.FromSlice(b, len(b)).Ptr(), len(b), q)
	return q.Sync()
}

// summary is what a rank sends to rank 0 before a save, to be compared.
type summary struct {
	storage.Training // its optimizer has the step counts that differ from Steps, and no tensors
	Err              string
	Planned          bool // the rank can use its last plan
	Calls            map[string]uint64
	Files            map[string]string // SHA-256, by name
}

// writeItem says which part of a tensor a rank holds.
type writeItem struct {
	Model      bool
	Name       string
	DType      safetensors.DType
	Shape      []int // in the file
	Transposed bool
	Boxes      []tensor.Box // in memory; none: the whole tensor
	Flat       [2]int
	Rule       *Rule // by which ranks have cut the tensor, or the segment; nil: by none
	First      int   // row of the segment in the tensor
	Expert     *storage.Expert
}

// summary returns what must be the same on all ranks; o is the optimizer's state.
func (st *State) summary(o *optim.State) (c summary, err error) {
	c.Files = storage.Hashes(st.Files)
	c.Training = storage.Training{Step: st.Step, Extra: map[string]json.RawMessage{}, Base: st.Base}
	switch err = storage.CheckBeside(st.Files); {
	case err != nil:
	case st.Step < 0:
		err = fmt.Errorf("State.Step is %d: it is the number of steps done", st.Step)
	case st.Optimizer != nil && !st.Nonfinite: // a device leaves out steps that are counted
		if e := st.Optimizer.Stopped(); e != nil {
			err = e
		}
	}
	if err != nil {
		return c, err
	}
	for key, v := range st.Extra {
		text, err := json.Marshal(v)
		if err != nil {
			return c, fmt.Errorf("extra %q: %w", key, err)
		}
		c.Extra[key] = text
	}
	if st.Optimizer != nil {
		c.Optimizer = &storage.OptimizerEntry{Steps: o.Steps, LR: o.LR, Scaler: o.Scaler}
		if c.Optimizer.Counts, err = st.storedCounts(o); err != nil {
			return c, err
		}
	}
	if st.Tape != nil {
		random := st.Tape.State()
		c.Random = &random
	}
	return c, nil
}

// storedCounts returns the step counts that differ from the optimizer's steps, by the parameters' stored names.
func (st *State) storedCounts(o *optim.State) (map[string]int, error) {
	stored := map[string]int{}
	if !slices.ContainsFunc(slices.Collect(maps.Values(o.Counts)), func(n int) bool { return n != o.Steps }) {
		return stored, nil
	}
	names := st.inFiles(o.Counts)
	for _, name := range slices.Sorted(maps.Keys(o.Counts)) { // the error is the same on all ranks
		n := o.Counts[name]
		for _, as := range names(name) {
			if m, there := stored[as]; there && m != n {
				return nil, fmt.Errorf("files keep %s in %s, with another parameter: the optimizer has done %d steps of one and %d of the other",
					name, as, n, m)
			}
			stored[as] = n
		}
	}
	maps.DeleteFunc(stored, func(_ string, n int) bool { return n == o.Steps })
	return stored, nil
}

// inFiles returns a function that gives the stored names of a parameter of the optimizer, which has these step counts.
func (st *State) inFiles(counts map[string]int) func(name string) []string {
	names, apart := map[string][]string{}, st.apart(counts)
	for _, p := range st.Params {
		if !apart[p] {
			names[p.Name()] = storedNames(p)
		}
	}
	return func(name string) []string {
		if as, ok := names[name]; ok {
			return as
		}
		return []string{name}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// key distinguishes a parameter from an optimizer tensor of the same name.
func (c *writeItem) key() string { return storage.ItemKey(c.Model, c.Name) }

// inMemory returns what the rank holds, for the shape in memory.
func (c *writeItem) inMemory() (shard.Part, error) {
	shape := c.Shape
	if c.Transposed {
		shape = []int{shape[1], shape[0]}
	}
	return shard.NewPart(shape, c.Boxes, c.Flat)
}

// empty reports whether the rank holds nothing of the tensor.
func (c *writeItem) empty() bool { return len(c.Boxes) > 0 && c.Flat[0] == c.Flat[1] }

// kind describes what must be the same on all ranks that hold parts of the tensor.
func (c *writeItem) kind() string {
	return fmt.Sprintf("%s%v (transposed %v)", c.DType, c.Shape, c.Transposed)
}
