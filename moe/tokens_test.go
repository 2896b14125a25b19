package moe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks.Tokens must be the ranks with other tokens: else the balance loss, the slots of a capacity and the moves of biases are others than
// on one rank.
func TestTokensOfOtherRanks(t *testing.T) {
	config := func(change func(c *moe.Config)) moe.Config {
		c := moe.Config{Features: 5, Hidden: 6, Experts: 4, Router: router.Config{Top: 2}}
		change(&c)
		return c
	}
	balance := config(func(c *moe.Config) { c.Balance = 0.1 })
	capacity := config(func(c *moe.Config) { c.Capacity = 1 })
	biased := config(func(c *moe.Config) { c.Router.Bias = true })
	for name, c := range map[string]struct {
		moe.Config
		tokens, rows []string
		right        bool
	}{
		"without dp":                  {balance, []string{"ep"}, []string{"dp", "ep"}, false},
		"slots without dp":            {capacity, []string{"ep"}, []string{"dp", "ep"}, false},
		"biases without dp":           {biased, []string{"ep"}, []string{"dp", "ep"}, false},
		"without ep":                  {balance, []string{"dp"}, []string{"dp", "ep"}, false},
		"ranks with the same tokens":  {balance, []string{"dp", "ep", "tp"}, []string{"dp", "ep"}, false},
		"a batch of all ranks":        {capacity, []string{"dp", "ep"}, []string{"dp", "ep", "tp"}, false},
		"the ranks with other tokens": {capacity, []string{"dp", "ep"}, []string{"dp", "ep"}, true},
	} {
		err := disttest.OnRanks(8, func(r *dist.Rank) error {
			mesh, err := r.Mesh("dp=2,ep=2,tp=2")
			if err != nil {
				return err
			}
			l := moe.NewLayer(c.Config)
			ranks := moe.Ranks{Tokens: mesh.Group(c.tokens...)}
			if c.tokens[len(c.tokens)-1] != "dp" {
				ranks.Experts = mesh.Group("ep")
			}
			if err := moe.Parallelize(ranks, l); err != nil {
				return err
			}
			data := mesh.Group(c.rows...)
			over := moe.Over(mesh.Group("dp"), l)
			if ranks.Experts == nil {
				over = nil
			}
			if _, err := ddp.Attach(data, l, ddp.Config{DType: tensor.Float64, Over: over}); err != nil {
				return err
			}
			tape := tensor.NewTape(r.Device)
			defer tape.Close()
			x := tensor.New(r.Device, tensor.Float64, 3, 5).WithRows(data.Rows(3*data.Rank(), 3*data.Size()))
			return tensor.Try(func() { tape.Backward(nn.MSE(l.Forward(tape.Input(x)), tape.Input(x))) })
		})
		if c.right {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, "these are not the ranks with other rows or positions (Rows.Over of the batch)", name)
		}
	}
}
