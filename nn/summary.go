package nn

import (
	"fmt"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/ringo-ml/ringo/tensor"
)

var embeddingType = reflect.TypeFor[Embedding]()

// Summary returns a table of a model: a line for each parameter and buffer with its name, its shape in the whole model, this rank's
// part of it where it is cut, whether it trains, and its elements. Below are the sums, and the floating-point operations of one row
// (a sample, or a token) in the matrices of Linear layers: 2 an element forward, 6 with backward (Kaplan et al. 2020, section
// 2.1). Attention's products of activations are not among them. Call it on the whole model, as ParamsOf.
func Summary(model any) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\tshape\tpart\tkind\telements")
	var all, trained, here int
	for _, p := range ParamsOf(model) {
		part, n := "", p.GlobalLen()
		if p.IsCut() {
			part = fmt.Sprint(p.Dims())
		}
		all, here = all+n, here+p.Len()
		if !p.Frozen() {
			trained += n
		}
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%d\n", p.Name(), p.Global(), part, kind(p), n)
	}
	_ = w.Flush() // a Builder takes everything
	matrices := matrixElements(model)
	fmt.Fprintf(&b, "%d elements, %d trained, %d on this rank\n", all, trained, here)
	fmt.Fprintf(&b, "%d FLOP a row forward, %d with backward, in %d elements of matrices\n", 2*matrices, 6*matrices, matrices)
	return b.String()
}

func kind(p *tensor.Param) string {
	switch {
	case p.IsBuffer():
		return "buffer"
	case p.Frozen():
		return "frozen"
	}
	return "trained"
}

// matrixElements counts what rows are multiplied with: a table of an Embedding only where a layer beside it uses it too.
func matrixElements(model any) (n int) {
	w := &walker{seen: map[visit]bool{}, dropouts: map[*Dropout]string{}, skip: embeddingType}
	w.value(reflect.ValueOf(model), place{})
	for _, f := range w.params {
		if len(f.param.Global()) == 2 {
			n += f.param.GlobalLen()
		}
	}
	return n
}
