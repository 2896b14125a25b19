package gradnorm

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Norm computes the norm of all gradients, and the factor for them, in the memory of the gradients: if that is a device's, the host does
// not wait for it.
type Norm struct {
	Factor  tensor.Tensor // of the gradients, their norm, and the first step whose norm is not finite (tensor.OpClip)
	Counted []bool        // which parameters' gradients count in Sum; nil: all
	exec    *tensor.Exec
	params  []*tensor.Param
	blocks  tensor.Tensor // sums of squares of the blocks of all gradients
	sums    tensor.Tensor // sum, and the index of the first of the blocks that is not finite
	sum     tensor.Tensor // of the squares of all gradients
	at      int           // blocks in use
	firsts  []firstBlock  // of the gradients in blocks
}

// firstBlock says where the blocks of a gradient begin.
type firstBlock struct{ at, of int }

// factors is the number of elements of Factor.
const factors = 4

// New returns the Norm of these parameters' gradients.
func New(exec *tensor.Exec, params []*tensor.Param) *Norm {
	n := 0
	for _, p := range params {
		n += blocksOf(p.Local.Len())
	}
	all := tensor.NewFor(memory.OptimizerState, exec.Device(), tensor.Float64, n+2+factors)
	return &Norm{exec: exec, params: params, blocks: all.Range(0, n), sums: all.Range(n, n+2), sum: all.Range(n, n+1),
		Factor: all.Range(n+2, n+2+factors)}
}

// blocksOf is the number of blocks of a gradient of n elements.
func blocksOf(n int) int { return (n + tensor.SumSquaresBlock - 1) / tensor.SumSquaresBlock }

// Summer sums x over ranks, in place. If it has SumTensor (optim.TensorNorm), the host does not wait.
type Summer interface{ SumFloats(x []float64) error }

// Sum adds up the squares of the gradients that count, and over ranks, or nil.
func (n *Norm) Sum(ranks Summer) error {
	n.squares(n.Counted)
	a := n.exec.Args(tensor.OpGradNorm, tensor.Float64).Out(n.sums).In(n.blocks)
	a.I[0] = n.at
	n.exec.Launch()
	if ranks == nil {
		return nil
	}
	if r, ok := ranks.(interface{ SumTensor(x tensor.Tensor) error }); ok && !n.sum.Device().Host() {
		return r.SumTensor(n.sum)
	}
	x := tensor.ToHost(n.sum) // the same memory, if that is the host's
	err := ranks.SumFloats(tensor.Data[float64](x))
	if err == nil {
		tensor.Copy(n.sum, x)
	}
	return err
}

// squares computes the sums of squares of the gradients that count.
func (n *Norm) squares(counted []bool) {
	n.at, n.firsts = 0, n.firsts[:0]
	for _, d := range [...]tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		a := n.exec.Args(tensor.OpSumSquares, d).Out(n.blocks)
		a.I[0] = n.at
		for i, p := range n.params {
			if p.HasGrad() && p.Grad.Len() > 0 && p.Grad.DType() == d && (counted == nil || counted[i]) {
				a.List, a.ListLen = append(a.List, p.Grad.Ptr()), append(a.ListLen, p.Grad.Len())
				n.firsts = append(n.firsts, firstBlock{n.at, i})
				n.at += blocksOf(p.Grad.Len())
			}
		}
		if len(a.List) > 0 {
			n.exec.Launch()
		}
	}
}

// Each returns the sum of the squares of each gradient, times scale²; 0 if there is none. The host waits for it.
func (n *Norm) Each(scale float64) []float64 {
	n.squares(nil)
	blocks, each := tensor.Data[float64](tensor.ToHost(n.blocks)), make([]float64, len(n.params))
	for _, f := range n.firsts {
		for _, x := range blocks[f.at : f.at+blocksOf(n.params[f.of].Grad.Len())] {
			each[f.of] += float64(x * scale * scale)
		}
	}
	return each
}

// Clip computes Factor after Sum: it multiplies gradients by scale, and limits their norm to most (torch.nn.utils.clip_grad_norm_), if that
// is not 0. If steps, the number of steps done, is not nil, Factor keeps the first step whose norm is not finite.
func (n *Norm) Clip(scale, most float64, steps *int) {
	a := n.exec.Args(tensor.OpClip, tensor.Float64).Out(n.Factor).In(n.sums)
	a.F[0], a.F[1] = scale, most
	if steps != nil {
		a.F[2] = float64(*steps + 1)
		if r := n.exec.Recording(); r != nil {
			r.Vary(func(a *tensor.Args) { a.F[2] = float64(*steps + 1) })
		}
	}
	n.exec.Launch()
}

// Found returns the norm, the step that Factor keeps, or 0, and if the norm is not finite, the first parameter whose gradient is not; "":
// none that counts here. The host waits for it.
func (n *Norm) Found() (norm float64, step int, bad string) {
	x := tensor.Data[float64](tensor.ToHost(n.Factor))
	norm, step = x[1], int(x[2])
	if norm-norm == 0 {
		return norm, step, ""
	}
	block := x[3]
	if step == 0 {
		block = tensor.Data[float64](tensor.ToHost(n.sums))[1]
	}
	for _, f := range n.firsts {
		if float64(f.at) <= block {
			bad = n.params[f.of].Name()
		}
	}
	return norm, step, bad
}

// Forget forgets the step that Factor keeps.
func (n *Norm) Forget() { tensor.Copy(n.Factor, tensor.FromSlice(make([]float64, factors), factors)) }
