package peft

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// File is the name of the file with the values of the adapters.
const File = "adapter_model.safetensors"

const (
	configName  = "adapter_config.json"
	maxConfig   = 1 << 20
	maxRank     = 1 << 16
	savedName   = "model.safetensors" // ckpt's name of the file, and of the list of several
	indexName   = "model.safetensors.index.json"
	maxIndex    = 64 << 20
	modulesOf   = "base_model.model." // begins PEFT's names
	downSuffix  = ".lora_A.weight"
	upSuffix    = ".lora_B.weight"
	causalModel = "CAUSAL_LM"
)

// config has the settings of adapter_config.json that affect the computation.
type config struct {
	Type    string   `json:"peft_type"`
	Task    string   `json:"task_type,omitempty"`
	Rank    int      `json:"r"`
	Alpha   float64  `json:"lora_alpha"`
	RSLoRA  bool     `json:"use_rslora"`
	Targets targets  `json:"target_modules"`
	Params  []string `json:"target_parameters,omitempty"` // of modules, as a router's gate.weight
	Save    []string `json:"modules_to_save,omitempty"`
	Base    string   `json:"base_model_name_or_path,omitempty"`
	InOut   bool     `json:"fan_in_fan_out"` // the base's matrices are [in, out]; PEFT also checks each layer itself
	Bias    string   `json:"bias"`
	Dropout float64  `json:"lora_dropout"`

	names map[string]string // in PEFT's file, by those in a checkpoint
}

// harmless lists settings that do not change what trained adapters compute.
var harmless = []string{"auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode", "megatron_core",
	"runtime_config", "lora_dropout", "qalora_group_size", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
	"ensure_weight_tying", "task_type"}

// Apply adds the adapters that dir/adapter_config.json describes to a model, and returns their parameters and those of modules_to_save
// (nn.LoRA). It does not load values; ckpt.Load reads them from File in dir. PEFT's dropout of the adapters' input during training is
// left out. A setting that would change the computation is an error that names it, and so are adapters that are far larger
// than File; then the model is unchanged.
func Apply(model any, dir string) (adapters nn.Params, err error) {
	path := filepath.Join(dir, configName)
	text, err := bounded.ReadFile(path, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("peft: %w", err)
	}
	c, err := parse(text)
	err = bounded.Explain(err, text)
	size := int64(0)
	if info, missing := os.Stat(filepath.Join(dir, File)); missing == nil {
		size = info.Size()
	}
	if err == nil {
		adapters, err = c.apply(model, bounded.New(size))
	}
	if err != nil {
		return nil, fmt.Errorf("peft: %s: %w", path, err)
	}
	return adapters, nil
}

func parse(text []byte) (c config, err error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, err
	}
	if c.Type != "LORA" {
		return c, fmt.Errorf("peft_type is %s, and only LORA is computed here", bounded.Quote(c.Type))
	}
	if c.Bias != "" && c.Bias != "none" {
		return c, fmt.Errorf("bias is %s, and only none is trained here", bounded.Quote(c.Bias))
	}
	if c.Rank > maxRank {
		return c, fmt.Errorf("r is %d, more than %d", c.Rank, maxRank)
	}
	if way := string(all["init_lora_weights"]); !slices.Contains([]string{"", "null", "true", "false", `"gaussian"`}, way) {
		return c, fmt.Errorf("init_lora_weights is %s, which changes the base's weights too", bounded.Plain(way))
	}
	for name, v := range all {
		known := slices.Contains(harmless, name) ||
			slices.Contains([]string{"init_lora_weights", "peft_type", "r", "lora_alpha", "use_rslora", "target_modules", "fan_in_fan_out",
				"target_parameters", "bias", "modules_to_save"}, name)
		if layer0 := name == "layers_to_transform" && string(v) == "0"; !known && (layer0 || !empty(v)) {
			return c, fmt.Errorf("%s is %s, which is not computed here", bounded.Plain(name), bounded.Plain(string(v)))
		}
	}
	return c, nil
}

// empty reports whether a setting is off.
func empty(v json.RawMessage) bool {
	return slices.Contains([]string{"null", "false", "{}", "[]", `""`, "0", "0.0"}, string(bytes.TrimSpace(v)))
}

// apply calls nn.LoRA with the names of the matching Linears as patterns.
func (c *config) apply(model any, budget *bounded.Budget) (adapters nn.Params, err error) {
	nn.ParamsOf(model) // sets the stored names
	cfg := nn.LoRAConfig{Rank: c.Rank, Alpha: c.Alpha, RSLoRA: c.RSLoRA}
	for _, name := range c.Save {
		cfg.Save = append(cfg.Save, rename(model, name))
	}
	list := slices.Concat(c.Targets.list, c.Params)
	hits := make([]bool, len(list))
	for name, l := range nn.Linears(model) {
		names, tied := []string{moduleOf(l)}, strings.TrimSuffix(l.W.Name(), ".weight") != name
		if other := inPEFT(model, name); other != "" && !tied {
			names = append(names, other)
		}
		for i, target := range list {
			hit := func(module string) bool {
				return i < len(c.Targets.list) && c.Targets.match(module, target) || i >= len(c.Targets.list) && below(module+".weight", target)
			}
			if !slices.ContainsFunc(names, hit) || target == allLinear && tied {
				continue
			}
			hits[i] = true
			if !slices.Contains(cfg.Targets, name) {
				cfg.Targets = append(cfg.Targets, name)
				if err := budget.Take(4 * int64(c.Rank) * int64(l.W.Global()[0]+l.W.Global()[1])); err != nil {
					return nil, fmt.Errorf("adapters of the rank %d: %w; to train new ones, call nn.LoRA", c.Rank, err)
				}
			}
		}
	}
	if i := slices.Index(hits, false); i >= 0 {
		return nil, fmt.Errorf("the target %s matches no Linear of the model", bounded.Quote(list[i]))
	}
	defer func() {
		if f, ok := recover().(*tensor.Failure); ok {
			err = f
		}
	}()
	return nn.LoRA(model, cfg), nil
}

// LoadConfig returns the settings of ckpt.Load for File: types are converted, and modules_to_save have the names that they have in the
// base.
func LoadConfig(model any) ckpt.LoadConfig {
	return ckpt.LoadConfig{Cast: true, Rename: func(name string) string {
		if strings.HasSuffix(name, downSuffix) || strings.HasSuffix(name, upSuffix) {
			return name
		}
		return rename(model, strings.TrimPrefix(name, modulesOf))
	}}
}

// rename returns the name that a model has for one of Hugging Face's.
func rename(model any, name string) string {
	if m, ok := model.(interface{ LoadConfig() ckpt.LoadConfig }); ok && m.LoadConfig().Rename != nil {
		return m.LoadConfig().Rename(name)
	}
	return name
}

// inPEFT returns the name of a module in PEFT, which begins that of its adapter, as the model knows; "": it has none.
func inPEFT(model any, module string) string {
	s, ok := model.(nn.Storer)
	if !ok {
		return ""
	}
	as, _ := s.Stored(module+downSuffix, []int{1, 1})
	if len(as) != 1 {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSuffix(as[0].Name, downSuffix), modulesOf)
}

// targets are the modules with adapters: a list of their names, or of the ends of these, or one pattern.
type targets struct {
	list    []string
	pattern *regexp.Regexp // of whole names; nil: none
}

// allLinear is PEFT's word for all layers but the head.
const allLinear = "all-linear"

// UnmarshalJSON reads a list, a regular expression or "all-linear".
func (t *targets) UnmarshalJSON(text []byte) error {
	var pattern string
	if json.Unmarshal(text, &pattern) != nil {
		return json.Unmarshal(text, &t.list)
	}
	if t.list = []string{pattern}; string(text) == "null" {
		t.list = nil
	}
	if t.list == nil || pattern == allLinear {
		return nil
	}
	var err error
	if t.pattern, err = regexp.Compile(`\A(?:` + pattern + `)\z`); err != nil {
		return fmt.Errorf("target_modules is the pattern %s, which Go cannot read: %w", bounded.Quote(pattern), err)
	}
	return nil
}

// MarshalJSON writes the list.
func (t targets) MarshalJSON() ([]byte, error) { return json.Marshal(t.list) }

// match reports whether a target is this module.
func (t *targets) match(module, target string) bool {
	switch {
	case t.pattern != nil:
		return t.pattern.MatchString(module)
	case target == allLinear && len(t.list) == 1:
		return !below(module, "lm_head")
	}
	return below(module, target) || below(target, module)
}

// below reports whether a target matches a module: it is the module's name, or the end of it after a dot.
func below(module, target string) bool {
	return module == target || strings.HasSuffix(module, "."+target)
}

// moduleOf returns the stored name of a Linear, or of the matrix of which it is a part.
func moduleOf(l *nn.Linear) string {
	name := l.W.Name()
	if as := l.W.Stored(); as != nil {
		name = as[0].Name
	}
	return strings.TrimSuffix(name, ".weight")
}

// Export writes a PEFT folder, to, from a checkpoint of a model's adapters alone, from (saved with the parameters that nn.LoRA
// returned as State.Params). What is trained beside adapters are modules_to_save. It copies the values to File and writes
// adapter_config.json. Call it on one rank. All adapters must have the same rank and alpha, and each of their layers must be
// a module of its own in PEFT.
func Export(model any, from, to string) error {
	c, err := describe(model)
	if err != nil {
		return fmt.Errorf("peft: %w", err)
	}
	values, err := c.renamed(from)
	if err == nil {
		err = os.MkdirAll(to, 0o777)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(to, File), values, 0o666)
	}
	if err != nil {
		return fmt.Errorf("peft: %w", err)
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, configName), append(text, '\n'), 0o666)
}

// renamed returns the bytes of one file with PEFT's names, or an error if the folder does not have exactly the tensors to save.
func (c *config) renamed(from string) ([]byte, error) {
	list, err := filesOf(from)
	if err != nil {
		return nil, err
	}
	var all []safetensors.Tensor
	values := map[string][]byte{}
	for _, name := range list {
		file, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return nil, err
		}
		h, err := safetensors.Read(name, bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return nil, err
		}
		for _, x := range h.Tensors {
			to, ok := c.names[x.Name]
			if !ok {
				return nil, fmt.Errorf("%s has %s, which is not of the model's adapters, or is there twice", name, x.Name)
			}
			delete(c.names, x.Name)
			x.Name = to
			all, values[to] = append(all, x), file[h.Size:][x.Start:x.End]
		}
	}
	for name := range c.names {
		return nil, fmt.Errorf("%s lacks %s", cmp.Or(strings.Join(list, ", "), indexName), name)
	}
	h, err := safetensors.New(all, map[string]string{"format": "pt"})
	if err != nil {
		return nil, err
	}
	text := h.Encode()
	for _, x := range h.Tensors {
		text = append(text, values[x.Name]...)
	}
	return text, nil
}

// filesOf returns the names of a checkpoint's files: one, or those of its index.
func filesOf(from string) (list []string, err error) {
	text, err := bounded.ReadFile(filepath.Join(from, indexName), maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return []string{savedName}, nil
	}
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if err == nil {
		err = json.Unmarshal(text, &index)
	}
	for _, name := range index.Files {
		if err == nil && filepath.Base(name) != name {
			err = fmt.Errorf("the file %s is not in the folder", bounded.Quote(name))
		}
		list = append(list, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexName, err)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// describe returns the settings of a model's adapters, or an error if PEFT cannot express them.
func describe(model any) (c config, err error) {
	nn.ParamsOf(model)
	for name, l := range nn.Linears(model) {
		a := l.Adapter
		if a == nil {
			continue
		}
		stored := a.Down.Name()
		if as := a.Down.Stored(); as != nil {
			stored = as[0].Name
		}
		module, ok := strings.CutPrefix(strings.TrimSuffix(stored, downSuffix), modulesOf)
		weight := moduleOf(l)
		here := config{Type: "LORA", Task: causalModel, Rank: a.Down.Global()[0], Alpha: a.Alpha, RSLoRA: a.RS, Bias: "none"}
		if m, ok := model.(interface{ Origin() string }); ok {
			here.Base = m.Origin()
		}
		switch {
		case !ok:
			return c, fmt.Errorf("the files have no module of its own for %s, and PEFT no name for its adapter", name)
		case !below(rename(model, module), weight):
			return c, fmt.Errorf("the weight of %s is also that of %s, and PEFT would save it with the adapter", name, weight)
		case c.Targets.list == nil:
			c = here
		case c.Rank != here.Rank || c.Alpha != here.Alpha || c.RSLoRA != here.RSLoRA:
			return c, fmt.Errorf("the adapter of %s has rank %d and alpha %v, and those before it %d and %v; a folder has one of each",
				name, here.Rank, here.Alpha, c.Rank, c.Alpha)
		}
		if c.InOut = c.InOut || l.W.Transposed(); !slices.Contains(c.Targets.list, module) { // parts of a matrix have one
			c.Targets.list = append(c.Targets.list, module)
		}
	}
	if c.Targets.list == nil {
		return c, errors.New("the model has no adapters")
	}
	c.names = map[string]string{}
	for _, module := range c.Targets.list {
		for _, suffix := range []string{downSuffix, upSuffix} {
			c.names[modulesOf+module+suffix] = modulesOf + module + suffix
		}
	}
	return c, c.describeSaved(model)
}

// describeSaved adds the modules that are trained beside the adapters.
func (c *config) describeSaved(model any) error {
	all := nn.ParamsOf(model).Base()
	frozen := map[string]bool{}
	for _, p := range all {
		frozen[moduleIn(p)] = frozen[moduleIn(p)] || p.Frozen()
	}
	for _, p := range all.Trainable() {
		module := moduleIn(p)
		if frozen[module] {
			return fmt.Errorf("PEFT saves modules as a whole, and not all of %s is trained", module)
		}
		if len(p.Stored()) != 1 {
			return fmt.Errorf("the files have no module of its own for %s, which is trained", p.Name())
		}
		own := p.Name()[:strings.LastIndexByte(p.Name(), '.')]
		name := inPEFT(model, own)
		if name == "" {
			return fmt.Errorf("PEFT has no name for %s, which is trained", own)
		}
		c.names[p.Stored()[0].Name] = modulesOf + name + strings.TrimPrefix(p.Stored()[0].Name, module)
		if !slices.Contains(c.Save, name) {
			c.Save = append(c.Save, name)
		}
	}
	return nil
}

// moduleIn returns the stored name of the module that a parameter is in.
func moduleIn(p *tensor.Param) string {
	name := p.Name()
	if as := p.Stored(); as != nil {
		name = as[0].Name
	}
	return name[:max(strings.LastIndexByte(name, '.'), 0)]
}
