package master

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Masters and averages follow values, and Exchange gives back the bits.
func TestAverages(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			dev := cpu.New(1)
			var params []*Param
			for i, n := range []int{3, 0, 2} {
				p := tensor.NewParam(tensor.Constant(float64(i+1)), n)
				p.SetName(fmt.Sprint("p", i))
				p.Make(dev, d, 1)
				m := New(p)
				assert.Equal(t, d.IsHalf(), !m.Master.IsZero())
				params = append(params, &m)
			}
			exec := tensor.NewExec(dev)
			a := NewAverages(exec, params, 0.75, false)
			a.Update()
			assert.True(t, a.Begun)
			exec.Fill(params[0].Value(), 5)
			params[0].WriteBack(exec)
			a.Update()
			assert.Equal(t, []float64{2, 2, 2}, tensor.Floats(params[0].Average), "1 + 0.25·(5 − 1)")
			assert.Equal(t, []float64{3, 3}, tensor.Floats(params[2].Average))
			a.Exchange(true)
			assert.True(t, a.In)
			assert.Equal(t, []float64{2, 2, 2}, tensor.Floats(params[0].P.Local))
			a.Exchange(false)
			assert.False(t, a.In)
			assert.Equal(t, []float64{5, 5, 5}, tensor.Floats(params[0].P.Local))
			assert.Equal(t, []float64{2, 2, 2}, tensor.Floats(params[0].Average))
			params[0].Synced = false
			exec.Fill(params[0].P.Local, 7)
			a.Restart(params[0])
			assert.Equal(t, []float64{7, 7, 7}, tensor.Floats(params[0].Average))
		})
	}
}
