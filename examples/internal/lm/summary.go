package lm

import (
	"fmt"
	"math"
	"strings"

	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/train/metrics"
)

// ValLoss is the name of the loss on the last tenth of the text.
const ValLoss = "validation loss"

// Summary is what -json prints.
type Summary struct {
	train.Summary
	Layout  map[string]int   `json:"layout"` // ranks by axis, and the stage
	Params  int              `json:"params"`
	ValLoss metrics.Number   `json:"val_loss"`
	Losses  []metrics.Number `json:"losses"` // of all steps
	Seq     int              `json:"seq"`
	Sample  string           `json:"sample"`
	perByte float64
}

// Summary says what the training of a model with so many parameters did, also as lines for people.
func (o *Options) Summary(l *train.Loop, program string, params int, text *Corpus) Summary {
	s := Summary{Summary: l.Summary(train.Summary{Example: program, Optim: o.Optim, DType: o.DType, Batch: o.Batch}),
		Layout: map[string]int{"dp": o.DP, "fsdp": o.FSDP, "stage": o.Stage, "tp": o.TP, "ring": o.Ring, "cp": o.CP, "ep": o.EP,
			"pp": o.PP}, Params: params, Seq: o.Seq, perByte: text.perByte}
	_, losses := l.Values("loss")
	for _, v := range losses {
		s.Losses = append(s.Losses, metrics.Number(v))
	}
	_, vals := l.Values(ValLoss)
	s.ValLoss = metrics.Number(vals[len(vals)-1])
	return s
}

// String returns lines for people.
func (s Summary) String() string {
	text := fmt.Sprintf("%v\n%d parameters\nloss %.4f → %.4f, validation loss %.4f", s.Summary, s.Params, s.FirstLoss, s.FinalLoss,
		s.ValLoss)
	if s.perByte > 0 {
		text += fmt.Sprintf(" (%.2f bits a byte)", float64(s.ValLoss)/math.Ln2*s.perByte)
	}
	return text
}

// Write returns a text of -sample tokens by a model. All ranks take part, and get the same text.
func (o *Options) Write(m *gpt.Model, dev tensor.Device, text *Corpus) string {
	var b strings.Builder
	if o.Sample > 0 {
		for id := range m.Generate(dev, text.Begin, decode.Sampling{Tokens: o.Sample, Temperature: 0.8, Seed: o.Seed, End: text.Ends}) {
			b.WriteString(text.Piece(id))
		}
	}
	return b.String()
}
