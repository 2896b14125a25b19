package lm

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/metrics"
)

// summary is what -json prints. Losses are those of the global batch, bytes those of rank 0.
type summary struct {
	Example     string            `json:"example"`
	Backend     string            `json:"backend"`
	Ranks       int               `json:"ranks"`
	Layout      map[string]int    `json:"layout"` // ranks by axis, and the stage
	Threads     int               `json:"threads"`
	Params      int               `json:"params"`
	Steps       int               `json:"steps"`
	FirstLoss   metrics.Number    `json:"first_loss"`
	FinalLoss   metrics.Number    `json:"final_loss"`
	ValLoss     metrics.Number    `json:"val_loss"`
	Losses      []metrics.Number  `json:"losses"`     // of all steps
	ResumedAt   int               `json:"resumed_at"` // steps done before this process began
	StepsPerS   float64           `json:"steps_per_s"`
	TokensPerS  float64           `json:"tokens_per_s"`
	ExposedComm float64           `json:"exposed_comm_fraction"`
	PeakBytes   int               `json:"peak_bytes"`
	CommBytes   map[string]uint64 `json:"comm_bytes"` // sent in training steps, by operation
	WallS       float64           `json:"wall_s"`
	Optim       string            `json:"optim"`
	DType       string            `json:"dtype"`
	Batch       int               `json:"batch"`
	Seq         int               `json:"seq"`
	Sample      string            `json:"sample"`
	GoVersion   string            `json:"go"`

	Experts []layerOfExperts `json:"experts,omitempty"`

	Memory map[string]tensor.MemoryUse `json:"memory"` // of rank 0, by kind
}

func (t *trainer) summary() *summary {
	s := &summary{Example: t.o.name(), Backend: t.r.Engine(), Ranks: t.r.World.Size(),
		Layout: map[string]int{"dp": t.o.dp, "fsdp": t.o.fsdp, "tp": t.o.tp, "cp": t.o.cp, "ep": t.o.ep}, Params: t.count,
		WallS: time.Since(t.wall).Seconds(), Optim: t.o.optim, DType: t.o.dtype, Batch: t.o.batch, Seq: t.o.seq, GoVersion: runtime.Version(),
		CommBytes: t.sent}
	for axis, n := range map[string]int{"pp": t.o.pp, "ring": t.o.ring} {
		if n > 1 {
			s.Layout[axis] = n
		}
	}
	if t.o.fsdp > 1 {
		s.Layout["stage"] = t.o.stage
	}
	if cpu, ok := t.r.Device.(*tensor.CPU); ok {
		s.Threads = cpu.Threads()
	}
	s.Steps, s.ResumedAt = t.loop.Done()
	_, losses := t.loop.Values("loss")
	for _, v := range losses {
		s.Losses = append(s.Losses, metrics.Number(v))
	}
	_, vals := t.loop.Values(valLoss)
	s.FirstLoss, s.FinalLoss, s.ValLoss = s.Losses[0], s.Losses[len(s.Losses)-1], metrics.Number(vals[len(vals)-1])
	if t.time > 0 {
		s.StepsPerS, s.ExposedComm = float64(s.Steps-s.ResumedAt)/t.time.Seconds(), t.waited.Seconds()/t.time.Seconds()
	}
	s.TokensPerS = s.StepsPerS * float64(t.o.batch*t.o.seq)
	s.Experts = t.ofExperts()
	s.PeakBytes, s.Memory = t.r.Device.Memory().Total().Peak, t.r.Device.Memory().ByName()
	return s
}

// report prints the summary and a text.
func (t *trainer) report() error {
	s := t.summary() // before writing a text, which is not training
	s.Sample = t.write()
	if t.r.World.Rank() != 0 {
		return nil
	}
	if t.o.Quiet {
		line, err := json.Marshal(s)
		if err != nil {
			return err
		}
		t.r.Logf("%s", line)
		return nil
	}
	on := fmt.Sprintf("%d threads each", s.Threads)
	if s.Threads == 0 {
		on = fmt.Sprint(t.r.Device)
	}
	all := ""
	if s.ResumedAt > 0 {
		all = fmt.Sprintf(" (%d in all)", s.Steps)
	}
	t.r.Logf("%d parameters, %d steps%s, world size %d (%s, %s) in %.1f s: %.1f steps/s, %.0f tokens/s",
		s.Params, s.Steps-s.ResumedAt, all, s.Ranks, s.Backend, on, s.WallS, s.StepsPerS, s.TokensPerS)
	sent := uint64(0)
	for _, n := range s.CommBytes {
		sent += n
	}
	t.r.Logf("exposed communication %.1f%%, sent %.1f MiB a step, memory of rank 0 %s at most", 100*s.ExposedComm,
		float64(sent)/float64(max(1, s.Steps-s.ResumedAt))/(1<<20), tensor.FormatBytes(s.PeakBytes))
	t.r.Logf("loss %.4f → %.4f, validation loss %.4f (%.2f bits a byte)",
		s.FirstLoss, s.FinalLoss, s.ValLoss, float64(s.ValLoss)/math.Ln2*t.text.perByte)
	for i, l := range s.Experts {
		t.r.Logf("layer %d: expert load varies by %.2f, entropy %.3f of %.3f, %.2f%% dropped, sent %.2f MiB a step", i, l.CV, l.Entropy,
			math.Log(float64(t.o.experts)), 100*l.Dropped, float64(l.Sent)/float64(max(1, s.Steps-s.ResumedAt))/(1<<20))
	}
	if t.o.forced {
		t.r.Logf("experts were taken in turn (-forced): this is a benchmark, and no model to keep")
	}
	if s.Sample != "" {
		t.r.Logf("%s", s.Sample)
	}
	return nil
}
