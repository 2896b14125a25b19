package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/metrics"
)

// summary is what -json prints. Losses are those of the global batch, bytes those of rank 0.
type summary struct {
	Example      string  `json:"example"`
	Backend      string  `json:"backend"`
	Ranks        int     `json:"ranks"`
	Threads      int     `json:"threads"`
	Steps        int     `json:"steps"`
	Epochs       int     `json:"epochs"`
	FirstLoss    float64 `json:"first_loss"`
	FinalLoss    float64 `json:"final_loss"`
	TestAccuracy float64 `json:"test_accuracy"`
	ParamsSHA256 string  `json:"params_sha256"`
	LossesSHA256 string  `json:"losses_sha256"`
	ResumedAt    int     `json:"resumed_at"` // steps done before this process began
	StepsPerS    float64 `json:"steps_per_s"`
	SamplesPerS  float64 `json:"samples_per_s"`
	ExposedComm  float64 `json:"exposed_comm_fraction"`
	PayloadBytes uint64  `json:"allreduce_payload_bytes"`
	WireBytes    uint64  `json:"allreduce_wire_bytes"`
	WallS        float64 `json:"wall_s"`
	Optim        string  `json:"optim"`
	DType        string  `json:"dtype"`
	Batch        int     `json:"batch"`
	GoVersion    string  `json:"go"`

	Memory map[string]tensor.MemoryUse `json:"memory"` // of rank 0, by kind
	Plan   *plan.Plan                  `json:"plan"`
}

// MarshalJSON also writes losses that are not finite.
func (s *summary) MarshalJSON() ([]byte, error) {
	type plain summary
	return json.Marshal(struct {
		*plain
		FirstLoss metrics.Number `json:"first_loss"`
		FinalLoss metrics.Number `json:"final_loss"`
	}{(*plain)(s), metrics.Number(s.FirstLoss), metrics.Number(s.FinalLoss)})
}

// plan predicts memory and traffic, except activations.
func (t *trainer) plan() (*plan.Plan, error) {
	unit := plan.Unit{}
	for _, p := range t.params {
		unit.Params = append(unit.Params, p.Len())
	}
	return plan.New(plan.Model{Units: []plan.Unit{unit}}, plan.Config{Layout: plan.Layout{DP: t.r.World.Size()},
		Params: t.params[0].Value.DType(), Optimizer: t.o.optim})
}

func (t *trainer) summary() (*summary, error) {
	p, err := t.plan()
	if err != nil {
		return nil, err
	}
	threads := 0 // of the host
	if cpu, ok := t.r.Device.(*tensor.CPU); ok {
		threads = cpu.Threads()
	}
	s := t.r.World.Stats()
	n, resumed := t.loop.Done()
	_, losses := t.loop.Values("loss")
	_, accuracies := t.loop.Values(accuracy)
	steps, exposed := 0.0, 0.0
	if t.time > 0 {
		steps, exposed = float64(n-resumed)/t.time.Seconds(), t.waited.Seconds()/t.time.Seconds()
	}
	return &summary{
		Example: "ddp-mnist", Backend: t.r.Engine(), Ranks: t.r.World.Size(), Threads: threads,
		Steps: n, Epochs: (n + t.images.Steps() - 1) / t.images.Steps(), FirstLoss: losses[0], FinalLoss: losses[len(losses)-1],
		TestAccuracy: accuracies[len(accuracies)-1], ParamsSHA256: digest(t.params), LossesSHA256: bitsOf(losses), ResumedAt: resumed,
		StepsPerS: steps, SamplesPerS: steps * float64(t.o.batch), ExposedComm: exposed,
		PayloadBytes: s.Payload["allreduce"], WireBytes: s.Wire["allreduce"], WallS: time.Since(t.wall).Seconds(),
		Optim: t.o.optim, DType: t.o.dtype, Batch: t.o.batch, GoVersion: runtime.Version(),
		Memory: t.r.Device.Memory().ByName(), Plan: p,
	}, nil
}

// bitsOf hashes numbers.
func bitsOf(x []float64) string {
	h := sha256.New()
	for _, v := range x {
		h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// digest hashes the parameters' values, little-endian, in the order of their names.
func digest(params nn.Params) string {
	sorted := slices.Clone(params)
	slices.SortFunc(sorted, func(a, b *tensor.Param) int { return strings.Compare(a.Name(), b.Name()) })
	h := sha256.New()
	for _, p := range sorted {
		h.Write(tensor.ToHost(p.Value).Bytes())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// report prints the summary.
func (t *trainer) report() error {
	if t.r.World.Rank() != 0 {
		return nil
	}
	s, err := t.summary()
	if err != nil {
		return err
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
	t.r.Logf("%d steps%s, world size %d (%s, %s) in %.1f s: %.0f steps/s, %.0f samples/s", s.Steps-s.ResumedAt, all, s.Ranks,
		s.Backend, on, s.WallS, s.StepsPerS, s.SamplesPerS)
	steps := float64(max(1, s.Steps-s.ResumedAt))
	t.r.Logf("exposed communication %.1f%%, all-reduced %.1f MiB a step (%.1f MiB sent, planned %.1f)", 100*s.ExposedComm,
		float64(s.PayloadBytes)/steps/(1<<20), float64(s.WireBytes)/steps/(1<<20), float64(s.Plan.Sent/s.Ranks)/(1<<20))
	t.logMemory(s)
	t.r.Logf("loss %.4f → %.4f, test accuracy %.2f%%, parameters %.12s…", s.FirstLoss, s.FinalLoss, 100*s.TestAccuracy, s.ParamsSHA256)
	return nil
}

// logMemory prints the peak memory of rank 0, together with the plan if there is one.
func (t *trainer) logMemory(s *summary) {
	var parts []string
	for k := tensor.Parameters; k <= tensor.OtherMemory; k++ {
		text := fmt.Sprintf("%v %s", k, tensor.FormatBytes(s.Memory[k.String()].Peak))
		if want := s.Plan.Of(k); want > 0 {
			text += fmt.Sprintf(" (planned %s)", tensor.FormatBytes(want))
		}
		if s.Memory[k.String()].Peak > 0 {
			parts = append(parts, text)
		}
	}
	t.r.Logf("memory of rank 0: %s", strings.Join(parts, ", "))
}
