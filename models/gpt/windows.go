package gpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// readWindow reads which positions layers see. If a file has layer_types, max_window_layers does not count.
func (c *Config) readWindow(all map[string]json.RawMessage) error {
	kind := c.kind().windows
	use := kind == allLayers || kind == allButNth
	var window *int
	var types []string
	read := func(name string, at any, must bool) error {
		if raw := all[name]; raw != nil {
			return named(name, json.Unmarshal(raw, at))
		} else if must {
			return fmt.Errorf("%s is not given", name)
		}
		return nil
	}
	err := read("layer_types", &types, false)
	if kind == lastLayers {
		err = errors.Join(err, read("use_sliding_window", &use, false))
	}
	if use {
		err = errors.Join(err, read("sliding_window", &window, kind == lastLayers))
	}
	if kind == allButNth && window == nil {
		return errors.Join(err, errors.New("sliding_window is not given"))
	}
	if window != nil {
		if c.Window = *window; c.Window < 1 {
			return errors.Join(err, fmt.Errorf("sliding_window is %d, and must be positive", c.Window))
		}
		if kind == lastLayers {
			err = errors.Join(err, read("max_window_layers", &c.FullLayers, types == nil))
		}
		if kind == allButNth && types != nil {
			c.FullEvery = slices.Index(types, full) + 1
		}
		if first := slices.Index(types, sliding); kind == lastLayers && types != nil {
			if c.FullLayers = first; first < 0 {
				c.FullLayers = len(types)
			}
		}
	}
	if kind == allButNth && types == nil && c.FullEvery == 0 {
		err = errors.Join(err, errors.New("sliding_window_pattern is 0, and must be positive"))
	}
	return errors.Join(err, c.checkTypes(types))
}

const sliding, full = "sliding_attention", "full_attention"

// checkTypes returns an error for layer_types that are not those of Window and FullLayers.
func (c *Config) checkTypes(types []string) error {
	if types != nil && len(types) != c.Layers {
		return fmt.Errorf("layer_types has %d layers, and num_hidden_layers is %d", len(types), c.Layers)
	}
	for i, s := range types {
		want := full
		if c.local(i) {
			want = sliding
		}
		if s != want && !(s == full && c.scores(i).Window == 0 && c.LocalBase == 0) {
			return fmt.Errorf("layer_types has %s for layer %d, and only %s is computed there", bounded.Quote(s), i, want)
		}
	}
	return nil
}

// writeWindow sets what readWindow reads. layer_types of a file stay: they say the same.
func (c *Config) writeWindow(all map[string]any) {
	kind := c.kind().windows
	if kind == allButNth {
		types := make([]string, c.Layers)
		for i := range types {
			if types[i] = full; c.local(i) {
				types[i] = sliding
			}
		}
		all["layer_types"] = types
	}
	if kind == lastLayers {
		all["use_sliding_window"] = c.Window > 0
	}
	if c.Window > 0 {
		all["sliding_window"] = c.Window
		if kind == lastLayers {
			all["max_window_layers"] = c.FullLayers
		}
	}
}

// readNoRope reads which layers have no rotary positions. If a file has no_rope_layers, no_rope_layer_interval does not count.
func (c *Config) readNoRope(all map[string]json.RawMessage) error {
	if !c.kind().noRope {
		return nil
	}
	var has []int
	if raw := all["no_rope_layers"]; raw != nil {
		if err := json.Unmarshal(raw, &has); err != nil {
			return named("no_rope_layers", err)
		}
	}
	if has == nil {
		if c.NoRopeEvery < 1 {
			return fmt.Errorf("no_rope_layer_interval is %d, and must be positive", c.NoRopeEvery)
		}
		return nil
	}
	if len(has) < c.Layers {
		return fmt.Errorf("no_rope_layers has %d layers, and num_hidden_layers is %d", len(has), c.Layers)
	}
	c.NoRopeEvery = slices.Index(has, 0) + 1
	for i, h := range has[:max(c.Layers, 0)] {
		if (h == 0) != nth(i, c.NoRopeEvery) {
			return fmt.Errorf("no_rope_layers has %d for layer %d: only each n-th layer may have no rotary positions", h, i)
		}
	}
	return nil
}

// writeNoRope sets what readNoRope reads. Without rotary positions is a 0, despite the name.
func (c *Config) writeNoRope(all map[string]any) {
	if !c.kind().noRope {
		return
	}
	has := make([]int, c.Layers)
	for i := range has {
		if !nth(i, c.NoRopeEvery) {
			has[i] = 1
		}
	}
	all["no_rope_layers"] = has
}
