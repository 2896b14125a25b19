package nn

import (
	"fmt"
	"math"
)

// RotaryScaling changes the angles of Rotary, for sequences longer than a model was first trained on. The zero value changes nothing.
//
// "linear" makes positions Factor times denser (Chen et al., "Extending context window … by position interpolation", 2023). "llama3"
// does so for pairs that turn less than Low times in Original positions, leaves pairs alone that turn more than High times, and goes
// over smoothly in between (Llama 3.1). The fields are those of Hugging Face's rope_parameters.
type RotaryScaling struct {
	Type     string  `json:"rope_type,omitempty"` // "linear" or "llama3"; "" or "default": none
	Factor   float64 `json:"factor,omitempty"`
	Low      float64 `json:"low_freq_factor,omitempty"`
	High     float64 `json:"high_freq_factor,omitempty"`
	Original int     `json:"original_max_position_embeddings,omitempty"`
}

// None says that nothing is changed.
func (s RotaryScaling) None() bool { return s.Type == "" || s.Type == "default" }

// Check returns an error for a scaling that there is not.
func (s RotaryScaling) Check() error {
	switch {
	case s.None():
		return nil
	case s.Type != "linear" && s.Type != "llama3":
		return fmt.Errorf("rotary positions of type %q: there are linear and llama3", s.Type)
	case !(s.Factor >= 1 && s.Factor < 1e6) || s.Type == "llama3" && !(s.Original > 0 && s.Low > 0 && s.High > s.Low):
		return fmt.Errorf("rotary positions cannot be scaled by %+v", s)
	}
	return nil
}

// angle returns what an angle a position becomes.
func (s RotaryScaling) angle(angle float64) float64 {
	switch s.Type {
	case "linear":
		return angle / s.Factor
	case "llama3":
		turns := float64(s.Original) * angle / (2 * math.Pi)
		keep := min(max((turns-s.Low)/(s.High-s.Low), 0), 1)
		return float64(keep*angle) + (1-keep)*angle/s.Factor
	}
	return angle
}
