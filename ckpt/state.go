package ckpt

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// State is what a checkpoint holds of a training run, on this rank. All ranks give the same, but for the parameters: a
// rank lists those that it holds (with pipeline parallelism, some), and their Shard says which part.
type State struct {
	// Step is the number of steps done. Load sets it.
	Step int
	// Params are the parameters and buffers, as nn.ParamsOf or an Attach returned them. What is saved and loaded is
	// Param.Local. Files keep it under its name, or as its segments (tensor.Param.SetStored).
	Params nn.Params
	// Optimizer is saved and loaded with its step counts, learning rate and loss scale, unless nil. Of 16-bit parameters it has
	// masters: give it also where a checkpoint has values alone, or it may go on from its own. Parameters of Float32, as package
	// fsdp has them where it computes with 16 bits, are loaded from masters, and masters from them.
	Optimizer *optim.Optimizer
	// Tape has its randomness saved and loaded, unless nil: or dropout would repeat its first masks.
	Tape *tensor.Tape
	// Extra is further state, the same on all ranks, such as a loader's: Save writes the values as JSON, Load reads them
	// into the pointers that it is given, and leaves alone what it is not asked for.
	Extra map[string]any
	// Files are small further files of the folder by name, the same on all ranks, such as config.json for readers of Hugging Face's
	// form: what they hold is hashed and, in a conversion, kept. Load leaves them alone.
	Files map[string][]byte
	// Base, if not nil, is noted with adapters that are saved without the frozen parameters below them (see BaseOf). Load refuses a
	// checkpoint of another base.
	Base *Base
	// TP says how tensor parallelism cuts the parameters; it is noted in ringo.json for those who load on another layout.
	// The tensor of a transposed parameter is cut along the other dimension. Parameters that are cut now need no Rule: it is what
	// the ranks have.
	TP Rules
}

// item is a tensor of a State: a parameter, or state that the optimizer has of one.
type item struct {
	model  bool // else the optimizer's
	name   string
	of     *tensor.Param // whose value or state it is
	data   tensor.Tensor
	at     int          // where it begins in its source
	in     string       // key of the checkpoint's tensor that Load fills it from
	from   tensor.DType // of that; the data's but for a Load that casts
	shape  []int        // of the whole, in the file
	part   part         // in the file
	unit   int          // of a Rule
	expert *expert      // of a stack; nil: not of one
	memory *part        // of a transposed parameter, as data has it; nil: as the file has it
}

// held returns the part that data has, in its order.
func (x *item) held() part {
	if x.memory != nil {
		return *x.memory
	}
	return x.part
}

// source is a tensor of a State. Files make one item of it, or several.
type source struct {
	model bool // else the optimizer's
	name  string
	of    *tensor.Param // whose value or state it is
	data  tensor.Tensor
}

// sources yields the tensors of a State whose optimizer has the state o.
func (st *State) sources(o *optim.State) iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, p := range st.Params {
			if !yield(source{true, p.Name(), p, p.Local}) {
				return
			}
		}
		for _, t := range o.Tensors {
			if !yield(source{false, t.Name, t.Param, t.Tensor}) {
				return
			}
		}
	}
}

// optimizer is the optimizer's state, nothing where there is none.
func (st *State) optimizer() optim.State {
	if st.Optimizer == nil {
		return optim.State{}
	}
	return st.Optimizer.State()
}

// items lists the tensors of a State as files have them.
func (st *State) items() ([]item, error) {
	o := st.optimizer()
	p, err := newPlanned(st, &o)
	if err != nil {
		return nil, err
	}
	return p.items, nil
}

// checkTrained refuses a stored tensor of which the optimizer has one parameter and not another: its state would have holes.
func checkTrained(params nn.Params, counts map[string]int) error {
	first := map[string]*tensor.Param{}
	for _, p := range params {
		_, trained := counts[p.Name()]
		for _, name := range storedNames(p) {
			q := first[name]
			if q == nil {
				first[name] = p
			} else if _, other := counts[q.Name()]; other != trained {
				return fmt.Errorf("files keep %s and %s in %s, and the optimizer has one of them: freeze both or none", q.Name(), p.Name(), name)
			}
		}
	}
	return nil
}

// ready returns an error where a source has no values that could be read. It waits for those that are still computed.
func (s *source) ready() error {
	switch {
	case s.data.IsZero():
		return fmt.Errorf("%s was never made: call nn.Init or Attach first", s.name)
	case !s.data.Contiguous():
		return fmt.Errorf("%s is not contiguous", s.name)
	}
	tensor.Raw(s.data).Settle() // here, by one goroutine: several tensors may be views of the same memory
	return nil
}

// appendItems adds the items of a source: one, or several where files divide it.
func (s *source) appendItems(list []item) ([]item, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	p := s.of
	x := item{model: s.model, name: s.name, of: p, data: s.data, from: s.data.DType(), shape: append([]int{}, p.Global()...)}
	var err error
	if x.part, err = heldPart(x.shape, p.Shard, s.data.Len()); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	x.unit = p.Shard.Unit
	first := len(list)
	if as := p.Stored(); as != nil {
		list = append(list, x.divide(as)...)
	} else {
		list = append(list, x)
	}
	for i := range list[first:] {
		x := &list[first+i]
		if p.Stored() != nil {
			x.name += strings.TrimPrefix(s.name, p.Name()) // the optimizer's key
		}
		if p.Transposed() && len(x.shape) == 2 {
			memory := x.part
			x.memory, x.part = &memory, memory.transposed()
			x.shape = x.part.shape
		}
	}
	return list, nil
}

// take gives an item its elements of the source's data.
func (x *item) take(data tensor.Tensor) {
	if n := x.held().len(); n < data.Len() {
		data = data.Range(x.at, x.at+n)
	}
	x.data = data
}

// writeItem is what a rank says of a tensor.
func (x *item) writeItem() writeItem {
	c := writeItem{Model: x.model, Name: x.name, DType: dtypes[x.data.DType()], Shape: x.shape, Transposed: x.memory != nil, Unit: x.unit, Expert: x.expert}
	if p := x.held(); !p.whole() {
		c.Boxes, c.Flat = p.boxes, [2]int{p.lo, p.hi}
	}
	return c
}

// hostMemory returns the memory of a tensor, or as much of the host's: what setBytes takes.
func hostMemory(x tensor.Tensor) []byte {
	if x.Len() == 0 {
		return nil
	}
	if x.Device().Host() {
		return x.Bytes()
	}
	return make([]byte, x.Len()*x.DType().Size())
}

// hostBytes returns the memory of a tensor, or a copy of it where that is not the host's. No collective may use it.
func hostBytes(x tensor.Tensor) ([]byte, error) {
	b := hostMemory(x)
	if x.Len() == 0 || x.Device().Host() {
		return b, nil
	}
	dev := x.Device()
	q := dev.Queue(0)
	dev.Copy(tensor.FromSlice(b, len(b)).Ptr(), x.Ptr(), len(b), q)
	return b, q.Sync()
}

// setBytes gives a tensor what is in its hostMemory: it does nothing where that is the tensor's own.
func setBytes(x tensor.Tensor, b []byte) error {
	if x.Len() == 0 || x.Device().Host() {
		return nil
	}
	dev := x.Device()
	q := dev.Queue(0)
	dev.Copy(x.Ptr(), tensor.FromSlice(b, len(b)).Ptr(), len(b), q)
	return q.Sync()
}

// summary is what a rank says about its State before a save, for rank 0 to compare.
type summary struct {
	Err       string
	Planned   bool // what it holds has not changed since the last plan
	Step      int
	Random    *tensor.TapeState
	Extra     map[string]json.RawMessage
	Optimizer bool
	Steps     int
	LR        float64
	Scaler    *optim.Scaler
	Counts    map[string]int // the steps of parameters, by their names in files, that are not Steps
	Calls     map[string]uint64
	Files     map[string]string // what they are like
	Base      *Base
}

// writeItem says which part of a tensor a rank holds.
type writeItem struct {
	Model      bool
	Name       string
	DType      safetensors.DType
	Shape      []int // in the file
	Transposed bool
	Boxes      []tensor.Box `json:",omitempty"` // in memory; none: all of the tensor
	Flat       [2]int
	Unit       int     `json:",omitempty"` // see Rule
	Expert     *expert `json:",omitempty"`
}

// summary is what must be the same on all ranks; o is the optimizer's state.
func (st *State) summary(o *optim.State) (c summary, err error) {
	c = summary{Step: st.Step, Extra: map[string]json.RawMessage{}, Files: sizes(st.Files), Base: st.Base}
	if err := checkBeside(st.Files); err != nil {
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
		c.Optimizer, c.Steps, c.LR, c.Scaler = true, o.Steps, o.LR, o.Scaler
		if c.Counts, err = st.storedCounts(o); err != nil {
			return c, err
		}
	}
	if st.Tape != nil {
		random := st.Tape.State()
		c.Random = &random
	}
	return c, nil
}

// storedCounts returns the steps of the parameters of which the optimizer has not done as many as of the others, by the names that
// files have for them.
func (st *State) storedCounts(o *optim.State) (map[string]int, error) {
	stored := map[string]int{}
	if !slices.ContainsFunc(slices.Collect(maps.Values(o.Counts)), func(n int) bool { return n != o.Steps }) {
		return stored, nil
	}
	names := st.inFiles()
	for _, name := range slices.Sorted(maps.Keys(o.Counts)) { // the error is the same on all ranks
		n := o.Counts[name]
		for _, as := range names(name) {
			if m, there := stored[as]; there && m != n {
				return nil, fmt.Errorf("files keep %s in %s, with another parameter: the optimizer has done %d steps of one and %d of the other", name, as, n, m)
			}
			stored[as] = n
		}
	}
	maps.DeleteFunc(stored, func(_ string, n int) bool { return n == o.Steps })
	return stored, nil
}

// inFiles returns a function for the names that files have for a parameter of the optimizer.
func (st *State) inFiles() func(name string) []string {
	names := map[string][]string{}
	for _, p := range st.Params {
		names[p.Name()] = storedNames(p)
	}
	return func(name string) []string {
		if as, ok := names[name]; ok {
			return as
		}
		return []string{name}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// key tells a parameter from the optimizer's state of the same name.
func (x *item) key() string { return itemKey(x.model, x.name) }

func itemKey(model bool, name string) string {
	if model {
		return "model:" + name
	}
	return "optimizer:" + name
}

func (c *writeItem) key() string { return itemKey(c.Model, c.Name) }

// part returns what the rank holds, in the shape that the tensor has in memory.
func (c *writeItem) part() (part, error) {
	shape := c.Shape
	if c.Transposed {
		shape = []int{shape[1], shape[0]}
	}
	return newPart(shape, c.Boxes, c.Flat)
}

// empty reports whether the rank holds nothing of the tensor.
func (c *writeItem) empty() bool { return len(c.Boxes) > 0 && c.Flat[0] == c.Flat[1] }

// kind is what ranks must agree on.
func (c *writeItem) kind() string {
	return fmt.Sprintf("%s%v (transposed %v)", c.DType, c.Shape, c.Transposed)
}

func (c *writeItem) sameTensor(d *writeItem) bool {
	return c.Model == d.Model && c.Name == d.Name && c.DType == d.DType && c.Transposed == d.Transposed && slices.Equal(c.Shape, d.Shape)
}
