package disttest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// part is what a rank has of a tensor.
type part struct {
	Name string
	Len  int      // of the whole
	Runs [][2]int // where the elements are: the first one of a run, and their number
	Bits []byte   // of the elements; numbers of JSON have no NaN, and take long to read
}

// partOf returns the part of x, which is divided as p is.
func partOf(name string, p *tensor.Param, x tensor.Tensor) part {
	v := tensor.Floats(x)
	first, _ := p.Placement().Range()
	out := part{Name: name, Len: p.GlobalLen(), Bits: bitsOf(v)}
	for at, n := range p.Runs(first, first+len(v)) {
		out.Runs = append(out.Runs, [2]int{at, n})
	}
	return out
}

// wholePart is a part that is all of it.
func wholePart(name string, x []float64) part {
	return part{name, len(x), [][2]int{{0, len(x)}}, bitsOf(x)}
}

func bitsOf(x []float64) []byte {
	out := make([]byte, 0, 8*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
	}
	return out
}

// Wholes returns all elements of the parameters that ranks of g have, of which each may have others. If several ranks have the same
// element, its bits must be the same. It is collective.
func Wholes(g *dist.Group, params nn.Params) (Values, error) {
	parts := make([]part, len(params))
	for i, p := range params {
		parts[i] = partOf(p.Name(), p, p.Local)
	}
	return joined(g, parts)
}

// Whole is Wholes of parameters that all ranks have or have parts of, one after another.
func Whole(g *dist.Group, params ...*tensor.Param) (out []float64, err error) {
	all, err := Wholes(g, params)
	for _, p := range params {
		out = append(out, all[p.Name()]...)
	}
	return out, err
}

// joined joins the parts of all ranks.
func joined(g *dist.Group, mine []part) (Values, error) {
	all, err := dist.AllGatherObject(g, mine)
	if err != nil {
		return nil, err
	}
	out, from := Values{}, map[string][]int{} // from has one more than the rank that an element is from
	for rank, parts := range all {
		for _, p := range parts {
			if out[p.Name] == nil {
				out[p.Name], from[p.Name] = make([]float64, p.Len), make([]int, p.Len)
			}
			if err := p.join(out[p.Name], from[p.Name], rank); err != nil {
				return nil, err
			}
		}
	}
	for name, ranks := range from {
		for i, rank := range ranks {
			if rank == 0 {
				return nil, fmt.Errorf("%s: no rank has element %d", name, i)
			}
		}
	}
	return out, nil
}

// join puts the elements of a rank where they belong.
func (p part) join(out []float64, from []int, rank int) error {
	if p.Len != len(out) {
		return fmt.Errorf("%s: rank %d has %d elements, a rank before it has %d", p.Name, rank, p.Len, len(out))
	}
	bits := p.Bits
	for _, run := range p.Runs {
		for i := range run[1] {
			b := binary.LittleEndian.Uint64(bits[8*i:])
			at, v := run[0]+i, math.Float64frombits(b)
			if from[at] > 0 && math.Float64bits(out[at]) != b {
				return fmt.Errorf("%s: rank %d has %v as element %d, rank %d has %v", p.Name, rank, v, at, from[at]-1, out[at])
			}
			out[at], from[at] = v, rank+1
		}
		bits = bits[8*run[1]:]
	}
	return nil
}
