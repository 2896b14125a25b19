package live

import (
	"encoding/json"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/metrics"
)

// The bounds of a report. What is beyond them is left out, the oldest first.
const (
	MaxSteps  = 512 // steps with their times
	MaxPoints = 768 // values of all names together
	MaxNames  = 32
	MaxName   = 64 // bytes of a name
)

// Report is what happened on a rank since its last report, and what it has and has done in all.
type Report struct {
	Step    int   `json:"step,omitempty"`    // the last that is done, counted from 1
	Total   int   `json:"total,omitempty"`   // steps that the loop is to make; 0: it did not say
	Steps   int   `json:"steps,omitempty"`   // since the last report
	Elapsed int64 `json:"elapsed,omitempty"` // µs that they took
	Samples int   `json:"samples,omitempty"` // of all ranks that they used; 0: unknown
	Took    []int `json:"took,omitempty"`    // µs of each of the last of them, up to Step
	Own     []int `json:"own,omitempty"`     // µs of these in which the rank did not wait for other ranks

	Values []Values `json:"values,omitempty"`

	Memory map[string]tensor.MemoryUse `json:"memory,omitempty"` // by kind, see tensor.Memory
	Comm   []Op                        `json:"comm,omitempty"`
}

// Values are those of a name since the last report, by steps counted from 1.
type Values struct {
	Name   string           `json:"name"`
	Steps  []int            `json:"steps"`
	Values []metrics.Number `json:"values"`
}

// Op is what a rank did by one operation, on all its groups, since it joined the job.
type Op struct {
	Name    string `json:"name"`
	Calls   uint64 `json:"calls"`
	Payload uint64 `json:"payload"` // bytes that callers asked for: the larger one of input and output
	Wire    uint64 `json:"wire"`    // bytes moved
	Flight  int64  `json:"flight"`  // µs from issue to end, summed over calls that may overlap
	Waited  int64  `json:"waited"`  // µs that the rank waited
}

// Encode writes the report as JSON.
func (r *Report) Encode() ([]byte, error) { return json.Marshal(r) }

// Decode reads a report, and checks what its reader relies on.
func Decode(text []byte) (*Report, error) {
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, err
	}
	n := min(len(r.Took), len(r.Own), MaxSteps)
	r.Took, r.Own = r.Took[:n], r.Own[:n]
	r.Values = r.Values[:min(len(r.Values), MaxNames)]
	for i := range r.Values {
		v := &r.Values[i]
		v.Name = v.Name[:min(len(v.Name), MaxName)]
		n := min(len(v.Steps), len(v.Values), MaxPoints)
		v.Steps, v.Values = v.Steps[:n], v.Values[:n]
	}
	return r, nil
}
