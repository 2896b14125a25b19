package live

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// The limits of a report. If there is more, the oldest is left out.
const (
	MaxSteps  = 512 // steps with their times
	MaxPoints = 768 // values of all names together
	MaxNames  = 32
	MaxName   = 64 // bytes of a name
)

// Report is what happened on a rank since its last report, and the totals.
type Report struct {
	Step    int   `json:"step,omitempty"`    // the last finished step, counted from 1
	Total   int   `json:"total,omitempty"`   // steps that the loop will make; 0: unknown
	Steps   int   `json:"steps,omitempty"`   // number of steps since the last report
	Elapsed int64 `json:"elapsed,omitempty"` // µs that they took
	Samples int   `json:"samples,omitempty"` // samples of all ranks in these steps; 0: unknown
	Tokens  int   `json:"tokens,omitempty"`  // of these samples; 0: unknown, or no tokens
	Took    []int `json:"took,omitempty"`    // µs of each of the last steps, up to Step
	Own     []int `json:"own,omitempty"`     // the part of Took in which the rank did not wait for other ranks

	Values []Values `json:"values,omitempty"`

	Memory map[string]memory.Bytes `json:"memory,omitempty"` // by kind, see memory.Counter
	Comm   []Op                    `json:"comm,omitempty"`
}

// Values are the values of a name since the last report. Steps count from 1.
type Values struct {
	Name   string   `json:"name"`
	Steps  []int    `json:"steps"`
	Values []Number `json:"values"`
}

// Number is a float64 whose NaN and infinities go into JSON as strings.
type Number float64

// MarshalJSON writes a number that parses to the same bits, or "NaN", "+Inf", "-Inf".
func (x Number) MarshalJSON() ([]byte, error) {
	text := strconv.FormatFloat(float64(x), 'g', -1, 64)
	if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
		text = strconv.Quote(text)
	}
	return []byte(text), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (x *Number) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*x = Number(v)
	return err
}

// Op is what a rank did with one kind of operation, in all its groups, since it joined the job.
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

// Decode reads a report and checks everything that its reader relies on.
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
