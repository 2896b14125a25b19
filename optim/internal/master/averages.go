package master

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Averages are exponential moving averages of values: optim.EMA.
type Averages struct {
	Begun  bool // there are averages
	In     bool // they are the parameters' values
	exec   *tensor.Exec
	params []*Param
	decay  float64
	spare  tensor.Tensor // as long as the largest parameter that has no master, in bytes
}

// NewAverages gives averages to params. If they have begun, they are the values.
func NewAverages(exec *tensor.Exec, params []*Param, decay float64, begun bool) *Averages {
	a, most := &Averages{Begun: begun, exec: exec, params: params, decay: decay}, 0
	for _, p := range params {
		p.Average = p.newState()
		a.Restart(p)
		if p.Master.IsZero() {
			most = max(most, p.P.Local.Len()*p.DType.Size())
		}
	}
	a.spare = tensor.NewFor(memory.OptimizerState, exec.Device(), tensor.Uint8, most)
	return a
}

// Restart copies the value of p to its average, if there are averages.
func (a *Averages) Restart(p *Param) {
	if a.Begun {
		p.Sync(a.exec)
		tensor.Copy(p.Average, p.Value())
	}
}

// Exchange swaps averages and values: in puts the averages into the parameters, else they are taken out again.
func (a *Averages) Exchange(in bool) {
	a.In = in
	for _, p := range a.params {
		tensor.Raw(p.P.Local).Settle() // a collective may still read it
		switch {
		case p.Master.IsZero():
			a.swap(p.P.Local, p.Average)
		case in:
			p.Sync(a.exec)
			a.exec.Cast(p.P.Local, p.Average)
		default:
			p.WriteBack(a.exec)
		}
		p.Changed()
	}
}

// swap exchanges the bits of two tensors.
func (a *Averages) swap(x, y tensor.Tensor) {
	n := x.Len() * x.DType().Size()
	if n == 0 {
		return
	}
	dev := x.Device()
	q := dev.Queue(0)
	dev.Copy(a.spare.Ptr(), x.Ptr(), n, q)
	dev.Copy(x.Ptr(), y.Ptr(), n, q)
	dev.Copy(y.Ptr(), a.spare.Ptr(), n, q)
}

// Update moves the averages with SGD's kernel: the values are the gradients, the weight decay is −1 and the rate is negative.
func (a *Averages) Update() {
	for _, p := range a.params {
		p.Sync(a.exec)
	}
	rate := a.decay - 1
	if !a.Begun {
		rate = -1 // copies, if the averages are zeros
	}
	for i := 0; i < len(a.params); {
		d := a.params[i].DType
		args := a.exec.Args(tensor.OpSGD, d)
		for ; i < len(a.params) && a.params[i].DType == d; i++ {
			if p := a.params[i]; p.P.Local.Len() > 0 {
				args.List = append(args.List, p.Average.Ptr(), p.Value().Ptr(), nil)
				args.ListLen = append(args.ListLen, p.P.Local.Len())
			}
		}
		if len(args.List) > 0 {
			args.F = [8]float64{rate, 0, 0, -1}
			a.exec.Launch()
		}
	}
	a.Begun = true
}
