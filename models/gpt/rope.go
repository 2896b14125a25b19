package gpt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/nn"
)

// ropeParameters is rope_parameters in config.json. Before version 5, it was rope_scaling, and rope_theta was beside it.
type ropeParameters struct {
	nn.RotaryScaling
	OldType string   `json:"type,omitempty"`
	Base    float64  `json:"rope_theta,omitempty"`
	Partial *float64 `json:"partial_rotary_factor,omitempty"`
}

// readRopes reads rope_scaling, then rope_parameters. transformers takes the first one if a file has both, so they must say the same.
func (c *Config) readRopes(all map[string]json.RawMessage) error {
	var err error
	if raw := all["partial_rotary_factor"]; raw != nil && !slices.Contains([]string{"1", "1.0", "null"}, string(raw)) {
		err = fmt.Errorf("partial_rotary_factor is %s, and only 1 is computed here", bounded.Plain(string(raw)))
	}
	err = errors.Join(err, c.readRope("rope_scaling", all["rope_scaling"]))
	old, parameters := c.Scaling, all["rope_parameters"]
	if c.kind().localRope && parameters != nil {
		var of map[string]json.RawMessage
		err = errors.Join(err, named("rope_parameters", json.Unmarshal(parameters, &of)), c.readLocalRope(of[sliding]))
		parameters = of[full]
		if of != nil && parameters == nil {
			err = errors.Join(err, errors.New("rope_parameters has nothing for full_attention"))
		}
	}
	err = errors.Join(err, c.readRope("rope_parameters", parameters))
	if old.Type != "" && old != c.Scaling && !(old.None() && c.Scaling.None()) {
		err = errors.Join(err, errors.New("rope_scaling and rope_parameters differ: remove the one that is wrong"))
	}
	return err
}

// readLocalRope reads the positions of layers with a window.
func (c *Config) readLocalRope(raw json.RawMessage) error {
	local := Config{Base: c.LocalBase}
	err := local.readRope("rope_parameters", raw)
	if c.LocalBase = local.Base; !local.Scaling.None() {
		err = errors.Join(err, fmt.Errorf("rotary positions of type %s for sliding_attention: only default is computed there",
			bounded.Quote(local.Scaling.Type)))
	}
	return err
}

func (c *Config) readRope(name string, raw json.RawMessage) error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	var r ropeParameters
	err := json.Unmarshal(raw, &r)
	r.Type = cmp.Or(r.Type, r.OldType)
	c.Scaling, c.Base = r.RotaryScaling, cmp.Or(r.Base, c.Base)
	if r.Partial != nil && *r.Partial != 1 {
		err = fmt.Errorf("partial_rotary_factor is %v, and only 1 is computed here", *r.Partial)
	}
	if r.Type == "yarn" {
		err = errors.Join(err, checkYarn(raw))
	}
	return named(name, err)
}

// checkYarn returns an error for settings that are not computed here.
func checkYarn(raw json.RawMessage) (err error) {
	var all map[string]any
	_ = json.Unmarshal(raw, &all) // it was read before
	for _, name := range []string{"mscale", "mscale_all_dim", "truncate"} {
		if v := all[name]; v != nil && !(name == "truncate" && v == true) {
			err = errors.Join(err, fmt.Errorf("%s is %v, which is not computed here", name, v))
		}
	}
	if v := all["attention_factor"]; v == 0.0 {
		err = errors.Join(err, errors.New("attention_factor is 0, and must be positive"))
	}
	return err
}

// ropeSettings returns those of a scaling.
func ropeSettings(s nn.RotaryScaling) map[string]any {
	all := map[string]any{"rope_type": cmp.Or(s.Type, "default")}
	for name, v := range map[string]float64{"factor": s.Factor, "low_freq_factor": s.Low, "high_freq_factor": s.High, "beta_fast": s.Fast,
		"beta_slow": s.Slow, "attention_factor": s.Amplitude} {
		if v != 0 {
			all[name] = decimal(v)
		}
	}
	if s.Original != 0 {
		all["original_max_position_embeddings"] = s.Original
	}
	return all
}
