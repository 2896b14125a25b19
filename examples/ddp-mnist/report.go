package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/train"
)

// summary is what -json prints.
type summary struct {
	train.Summary
	Epochs       int        `json:"epochs"`
	TestAccuracy float64    `json:"test_accuracy"`
	ParamsSHA256 string     `json:"params_sha256"`
	PayloadBytes uint64     `json:"allreduce_payload_bytes"`
	WireBytes    uint64     `json:"allreduce_wire_bytes"`
	Plan         *plan.Plan `json:"plan"`
}

// report prints the summary, with what package plan has predicted of memory and bytes.
func (t *trainer) report() (err error) {
	program := train.Summary{Example: "ddp-mnist", Optim: t.o.optim, DType: t.o.dtype, Batch: t.o.batch}
	s, all := summary{Summary: t.loop.Summary(program)}, plan.Unit{}
	for _, p := range t.params {
		all.Params = append(all.Params, p.Len())
	}
	s.Plan, err = plan.New(plan.Model{Units: []plan.Unit{all}},
		plan.Config{Layout: plan.Layout{DP: s.Ranks}, Params: t.params[0].Value.DType(), Optimizer: s.Optim})
	if err != nil {
		return err
	}
	_, accuracies := t.loop.Values(accuracy)
	sent := t.world.Stats()
	s.Epochs, s.TestAccuracy = (s.Steps+t.images.Steps()-1)/t.images.Steps(), accuracies[len(accuracies)-1]
	s.ParamsSHA256, s.PayloadBytes, s.WireBytes = digest(t.params), sent.Payload["allreduce"], sent.Wire["allreduce"]
	return t.loop.Report(s, s.String(),
		fmt.Sprintf("planned: %s of memory without activations, %.1f MiB sent a step", memory.Format(s.Plan.Total),
			float64(s.Plan.Sent/s.Ranks)/(1<<20)),
		fmt.Sprintf("loss %.4f → %.4f, test accuracy %.2f%%, parameters %.12s…", s.FirstLoss, s.FinalLoss, 100*s.TestAccuracy, s.ParamsSHA256))
}

// digest hashes the parameters' values, little-endian, in the order of their names.
func digest(params nn.Params) string {
	h := sha256.New()
	for _, p := range slices.SortedFunc(slices.Values(params), func(a, b *tensor.Param) int { return strings.Compare(a.Name(), b.Name()) }) {
		h.Write(tensor.ToHost(p.Value).Bytes())
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
