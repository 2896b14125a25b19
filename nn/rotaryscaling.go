package nn

import (
	"cmp"
	"fmt"
	"math"
)

// RotaryScaling changes the angles of Rotary, for sequences longer than a model was first trained on. The zero value changes nothing.
//
// "linear" makes positions Factor times denser (Chen et al., "Extending context window … by position interpolation", 2023). "llama3"
// does so for pairs that turn less than Low times in Original positions, leaves pairs alone that turn more than High times, and goes
// over smoothly in between (Llama 3.1). "yarn" does it with pairs between those that turn Fast and Slow times, and multiplies turned
// features by Amplitude (Peng et al., "YaRN", 2023). The fields are those of Hugging Face's rope_parameters.
type RotaryScaling struct {
	Type     string  `json:"rope_type,omitempty"` // "linear", "llama3" or "yarn"; "" or "default": none
	Factor   float64 `json:"factor,omitempty"`
	Low      float64 `json:"low_freq_factor,omitempty"`
	High     float64 `json:"high_freq_factor,omitempty"`
	Original int     `json:"original_max_position_embeddings,omitempty"`

	Fast      float64 `json:"beta_fast,omitempty"`        // 0: 32
	Slow      float64 `json:"beta_slow,omitempty"`        // 0: 1
	Amplitude float64 `json:"attention_factor,omitempty"` // 0: 0.1·ln(Factor) + 1
}

// None says that nothing is changed.
func (s RotaryScaling) None() bool { return s.Type == "" || s.Type == "default" }

// Check returns an error for a scaling that there is not.
func (s RotaryScaling) Check() error {
	switch {
	case s.None():
		return nil
	case s.Type != "linear" && s.Type != "llama3" && s.Type != "yarn":
		return fmt.Errorf("rotary positions of type %q: there are linear, llama3 and yarn", s.Type)
	case !(s.Factor >= 1 && s.Factor < 1e6) || s.Type == "llama3" && !(s.Original > 0 && s.Low > 0 && s.High > s.Low) ||
		s.Type == "yarn" && !(s.Original > 0 && s.Slow >= 0 && cmp.Or(s.Fast, 32) >= cmp.Or(s.Slow, 1) && s.Amplitude >= 0):
		return fmt.Errorf("rotary positions cannot be scaled by %+v", s)
	}
	return nil
}

// angle returns what becomes of the angle by which a position turns a pair of features.
func (s RotaryScaling) angle(angle float64, pair int, r *Rotary) float64 {
	switch s.Type {
	case "yarn":
		low, high := max(math.Floor(s.pairOf(cmp.Or(s.Fast, 32), r)), 0), min(math.Ceil(s.pairOf(cmp.Or(s.Slow, 1), r)), float64(r.HeadDim-1))
		if low == high {
			high += 0.001
		}
		scaled := min(max((float64(pair)-low)/(high-low), 0), 1)
		return float64(scaled*angle)/s.Factor + float64((1-scaled)*angle)
	case "linear":
		return angle / s.Factor
	case "llama3":
		turns := float64(s.Original) * angle / (2 * math.Pi)
		keep := min(max((turns-s.Low)/(s.High-s.Low), 0), 1)
		return float64(keep*angle) + (1-keep)*angle/s.Factor
	}
	return angle
}

// pairOf returns which pair of features turns so often in Original positions.
func (s RotaryScaling) pairOf(turns float64, r *Rotary) float64 {
	return float64(r.HeadDim) * math.Log(float64(s.Original)/(turns*2*math.Pi)) / (2 * math.Log(r.Base))
}

// amplitude is what multiplies turned features.
func (s RotaryScaling) amplitude() float64 {
	if s.Type != "yarn" {
		return 1
	}
	return cmp.Or(s.Amplitude, float64(0.1*math.Log(s.Factor))+1)
}
