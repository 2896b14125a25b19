package ckpt

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// A parameter that files keep as segments must not be saved under its own name.
func TestSegmentsAreRefused(t *testing.T) {
	dev := tensor.NewCPU(1)
	defer dev.Close()
	p := tensor.NewParam(tensor.Constant(1), 4, 3)
	p.SetName("kv")
	p.Make(dev, tensor.Float32, 1)
	st := &State{Params: nn.Params{p}}
	_, err := st.items()
	assert.NoError(t, err)
	p.SetStored([]tensor.Stored{{Name: "k", Rows: 2, Total: 2}, {Name: "v", Rows: 2, Total: 2}})
	_, err = st.items()
	assert.ErrorContains(t, err, "kv: files keep it as [k[0:2 of 2] v[0:2 of 2]]")
}
