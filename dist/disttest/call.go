package disttest

import (
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// call is an operation with its arguments.
type call struct {
	*Operation
	dtype   tensor.DType
	red     int                    // index in reds
	root    int                    // for messages also the tag
	count   int                    // elements of a part
	rows    func(from, to int) int // the size of a part instead of count, if parts may differ; those of rank 0 count, if each has only one
	width   int                    // elements of a row, if not 1
	salt    int                    // makes the elements different from those of other calls
	inPlace bool
	summed  bool // messages have an all-reduce in their batch

	g  *dist.Group
	op dist.Op
}

// on returns the call of one rank.
func (c call) on(g *dist.Group) *call {
	c.g, c.op = g, reds[c.red].op(g.Rank())
	return &c
}

func (c call) run(g *dist.Group) error { return c.on(g).issue().finish() }

// pending is what one rank has issued, and how to check the result.
type pending struct {
	works []dist.Work
	check func() error
}

func (p pending) finish() error {
	if err := waitAll(p.works...); err != nil {
		return err
	}
	return p.check()
}

// waitAll waits for one operation after the other, until one fails.
func waitAll(works ...dist.Work) error {
	for _, w := range works {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) issue() pending {
	if c.form == messages {
		return c.post()
	}
	dst, src := c.tensors()
	return pending{[]dist.Work{c.start(c, c.view(dst), c.view(src))}, func() error {
		if dst.IsZero() {
			return nil
		}
		var want []float64
		for _, s := range c.result(c.g.Rank()) {
			want = append(want, list(s.first, s.n, c.input(s.rank))...)
		}
		return holds(c.String(), dst, func(i int) float64 { return want[i] })
	}}
}

// String describes the call.
func (c *call) String() string {
	s := fmt.Sprintf("%s of %v rows of %d %v", c.Name, c.sends(c.g.Rank()), max(c.width, 1), c.dtype)
	if c.inPlace && hasPlace(c.Operation) {
		s += " in place"
	}
	if c.rooted {
		s += fmt.Sprint(", root ", c.root)
	}
	if c.reduces {
		s += ", " + reds[c.red].name
	}
	return s
}

// view returns the rows of x.
func (c *call) view(x tensor.Tensor) tensor.Tensor {
	if c.width == 0 || x.IsZero() {
		return x
	}
	return x.View(x.Len()/c.width, c.width)
}

func (c *call) part(from, to int) int {
	switch {
	case c.rows == nil || !c.byRows && c.form != messages:
		return c.count
	case c.form == gathers || c.form == scatters:
		from = 0
	}
	return c.rows(from, to)
}

// sends returns how many rows a rank has for each other, and receives how many each has for it.
func (c *call) sends(from int) []int {
	return counts(c.g.Size(), func(to int) int { return c.part(from, to) })
}

func (c *call) receives(to int) []int {
	return counts(c.g.Size(), func(from int) int { return c.part(from, to) })
}

func counts(n int, of func(i int) int) []int {
	out := make([]int, n)
	setAll(out, of)
	return out
}

// everyone is the rank of a span of the reduction of all inputs.
const everyone = -1

// span is elements of a rank's input.
type span struct{ rank, first, n int }

// result says what a rank must have after the operation.
func (c *call) result(me int) (out []span) {
	from := c.root
	if c.reduces {
		from = everyone
	}
	switch {
	case c.form == nothing || c.form == gathers && c.rooted && me != c.root:
		return nil
	case c.form == whole && c.rooted && c.reduces && me != c.root:
		return []span{{me, 0, c.count}} // unchanged
	case c.form == whole:
		return []span{{from, 0, c.count}}
	case c.form == scatters:
		first, n := c.place(0, me)
		return []span{{from, first, n}}
	}
	for rank := range c.g.Size() {
		s := span{rank: rank}
		switch c.form {
		case gathers:
			_, s.n = c.place(0, rank)
		case exchanges:
			s.first, s.n = c.place(rank, me)
		case messages:
			if rank != me && c.pairs(c, rank, me) {
				s.n = c.part(rank, me)
			}
		}
		out = append(out, s)
	}
	return out
}

// place returns where rank from has the elements for rank to.
func (c *call) place(from, to int) (first, n int) {
	parts, w := c.sends(from), max(c.width, 1)
	return totalOf(parts[:to]) * w, parts[to] * w
}

func totalOf(parts []int) (n int) {
	for _, p := range parts {
		n += p
	}
	return n
}

// moved returns how many elements the ranks send to each other.
func (c *call) moved() (elements int) {
	n := c.g.Size()
	if c.form == whole && c.reduces && !c.rooted {
		return 2 * (n - 1) * c.count // each element goes to the rank that reduces it, and from there to all
	}
	for me := range n {
		for _, s := range c.result(me) {
			switch s.rank {
			case everyone:
				elements += (n - 1) * s.n
			case me:
			default:
				elements += s.n
			}
		}
	}
	return elements
}

// tensors returns the arguments of a collective, with the input filled.
func (c *call) tensors() (dst, src tensor.Tensor) {
	me := c.g.Rank()
	get := 0
	for _, s := range c.result(me) {
		get += s.n
	}
	first, mine := c.place(0, me)
	gives, gets := !c.rooted || me == c.root || c.form == gathers, !c.rooted || me == c.root || c.form == scatters
	switch {
	case c.form == nothing:
		return dst, src
	case c.form == whole:
		src = filled(c.g, c.dtype, c.count, c.input(me))
		return src, src
	case c.inPlace && c.form == gathers && gets:
		dst = zeros(c.g, c.dtype, get)
		src = dst.Range(first, first+mine)
		set(src, c.input(me))
		return dst, src
	}
	if gives {
		give := mine
		if c.form != gathers {
			give = totalOf(c.sends(me)) * max(c.width, 1)
		}
		src = filled(c.g, c.dtype, give, c.input(me))
	}
	switch {
	case c.inPlace && c.form == scatters && gives:
		dst = src.Range(first, first+mine)
	case gets:
		dst = zeros(c.g, c.dtype, get)
	}
	return dst, src
}

// input returns a rank's data.
func (c *call) input(rank int) func(i int) float64 {
	return func(i int) float64 {
		i += c.salt
		switch {
		case rank == everyone:
			return reduced(c.red, c.dtype, c.g.Size(), i)
		case c.reduces:
			return value(reds[c.red].name, c.dtype, c.g.Size(), rank, i)
		}
		return tag(rank, i)
	}
}

// tag gives each element of each rank a number that fits every type. For bool the lowest bit counts.
func tag(rank, i int) float64 { return float64((rank*31 + i) % 97) }

// launching is locked by the goroutine that launches kernels: goroutines of one rank must not launch at the same time (tensor.Device).
// tensor.New clears memory with a kernel; copies and the operations themselves need none.
var launching sync.Mutex

func zeros(g *dist.Group, d tensor.DType, n int) tensor.Tensor {
	launching.Lock()
	defer launching.Unlock()
	return tensor.New(g.Device(), d, n)
}

// filled returns a new tensor with the given elements.
func filled(g *dist.Group, d tensor.DType, n int, at func(i int) float64) tensor.Tensor {
	x := zeros(g, d, n)
	set(x, at)
	return x
}
