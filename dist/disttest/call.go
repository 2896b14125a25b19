package disttest

import (
	"bytes"
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
	op dist.Reduction
}

// on returns the call of one rank.
func (c call) on(g *dist.Group) *call {
	if c.g, c.op = g, reds[c.red].op; reds[c.red].name == "premulsum" {
		c.op = dist.PreMulSum(factor(c.red, g.Rank()))
	}
	return &c
}

func (c call) run(g *dist.Group) error { return c.on(g).issue().finish() }

// runAll does one call after the other.
func runAll(g *dist.Group, calls ...call) error {
	for _, c := range calls {
		if err := c.run(g); err != nil {
			return err
		}
	}
	return nil
}

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
		want, at := tensor.New(host, c.dtype, dst.Len()), 0
		for _, s := range c.result(c.g.Rank()) {
			in := c.input(s.rank)
			repeat(want.Range(at, at+s.n), func(i int) float64 { return in(s.first + i) })
			at += s.n
		}
		if bytes.Equal(want.Bytes(), bytesOf(dst)) {
			return nil
		}
		list := tensor.Floats(want)
		return holds(c.String(), dst, func(i int) float64 { return list[i] })
	}}
}

// String describes the call.
func (c *call) String() string {
	red := "no reduction"
	if c.reduces {
		red = reds[c.red].name
	}
	return fmt.Sprintf("%s of %v rows of %d %v, root %d, in place %v, %s", c.Name, c.sends(c.g.Rank()), max(c.width, 1), c.dtype, c.root,
		c.inPlace, red)
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
	out := make([]int, c.g.Size())
	setAll(out, func(to int) int { return c.part(from, to) })
	return out
}

func (c *call) receives(to int) []int {
	out := make([]int, c.g.Size())
	setAll(out, func(from int) int { return c.part(from, to) })
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
		first, n := c.place(rank, me)
		if c.form == gathers {
			_, n = c.place(0, rank)
			first = 0
		}
		if c.form != messages || c.pair(rank, me) {
			out = append(out, span{rank, first, n})
		}
	}
	return out
}

// pair reports whether a rank has a message for another.
func (c *call) pair(from, to int) bool { return from != to && c.pairs(c, from, to) }

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
	me, get := c.g.Rank(), 0
	for _, s := range c.result(me) {
		get += s.n
	}
	first, mine := c.place(0, me)
	give, has := mine, !c.rooted || me == c.root // has all
	if c.form != gathers {
		give = totalOf(c.sends(me)) * max(c.width, 1)
	}
	switch {
	case c.form == nothing:
		return dst, src
	case c.form == whole:
		src = zeros(c.g, c.dtype, c.count)
		dst = src
	case c.form == gathers && c.inPlace && has:
		dst = zeros(c.g, c.dtype, get)
		src = dst.Range(first, first+mine)
	case c.form == scatters && c.inPlace && has:
		src = zeros(c.g, c.dtype, give)
		dst = src.Range(first, first+mine)
	default:
		if has || c.form == gathers {
			src = zeros(c.g, c.dtype, give)
		}
		if has || c.form == scatters {
			dst = zeros(c.g, c.dtype, get)
		}
	}
	if !src.IsZero() {
		overwrite(src, func(x tensor.Tensor) { repeat(x, c.input(me)) })
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
