package bert

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

const (
	modulesName   = "modules.json"
	sentenceName  = "sentence_bert_config.json"
	tokenizerName = "tokenizer_config.json"
	promptsName   = "config_sentence_transformers.json"
	poolingName   = "1_Pooling/config.json"
	normalizeName = "2_Normalize/config.json"
)

// module is a step of sentence-transformers, and the folder of its settings.
type module struct {
	Index int    `json:"idx"`
	Name  string `json:"name"`
	Path  string `json:"path"`
	Type  string `json:"type"`
}

// readJSON reads a file of a folder, which need not be there.
func readJSON(dir, name string, to any) error {
	file := filepath.Join(dir, filepath.FromSlash(name))
	text, err := bounded.ReadFile(file, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, to)
		if err != nil {
			err = fmt.Errorf("%s: %w", file, bounded.Explain(err, text))
		}
	}
	return err
}

// readModules reads what sentence-transformers does with the encoder's features.
func (c *Config) readModules(dir string) error {
	var modules []module
	if err := readJSON(dir, modulesName, &modules); err != nil {
		return err
	}
	file := filepath.Join(dir, modulesName)
	for i, m := range modules {
		kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]
		wants := []string{"Transformer", "Pooling", "Normalize"}
		if i >= len(wants) || kind != wants[i] {
			return fmt.Errorf("%s: module %d is %s: only Transformer, Pooling and Normalize, in this order, are computed here", file, i,
				bounded.Quote(m.Type))
		}
		if i == 0 && m.Path != "" || i > 0 && (m.Path == "." || !filepath.IsLocal(m.Path) || m.Path != path.Base(m.Path)) {
			return fmt.Errorf("%s: the path of module %d is %s", file, i, bounded.Quote(m.Path))
		}
	}
	if len(modules) == 1 {
		return fmt.Errorf("%s: there is no Pooling", file)
	}
	c.Normalize = len(modules) > 2
	if len(modules) > 0 {
		if err := c.readPooling(dir, modules[1].Path+"/"+configName); err != nil {
			return err
		}
	}
	return c.readTexts(dir)
}

// readPooling reads the mode of old and new files.
func (c *Config) readPooling(dir, name string) error {
	var all map[string]json.RawMessage
	if err := readJSON(dir, name, &all); err != nil || all == nil {
		return cmp.Or(err, fmt.Errorf("%s is not there", filepath.Join(dir, filepath.FromSlash(name))))
	}
	mode := string(all["pooling_mode"])
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if old, is := strings.CutPrefix(key, "pooling_mode_"); is && string(all[key]) == "true" && all["pooling_mode"] == nil {
			mode += fmt.Sprintf("%q", strings.TrimSuffix(strings.TrimSuffix(old, "_tokens"), "_token"))
		}
	}
	switch mode {
	case "", `"mean"`:
		c.Pooling = Mean
	case `"cls"`:
		c.Pooling = CLS
	default:
		return fmt.Errorf("%s: the pooling mode is %s, and only mean and cls are computed here", filepath.Join(dir, filepath.FromSlash(name)),
			bounded.Plain(mode))
	}
	return nil
}

// readTexts reads how a text is changed before it is encoded.
func (c *Config) readTexts(dir string) error {
	var s struct {
		Longest *int `json:"max_seq_length"`
		Lower   bool `json:"do_lower_case"`
	}
	var t struct {
		Longest *float64 `json:"model_max_length"` // 1e30 is none
	}
	var p struct {
		Default *string `json:"default_prompt_name"`
	}
	err := errors.Join(readJSON(dir, sentenceName, &s), readJSON(dir, tokenizerName, &t), readJSON(dir, promptsName, &p))
	switch {
	case err != nil:
		return err
	case s.Lower:
		return fmt.Errorf("%s: do_lower_case is true, and only the tokenizer's own is computed here", filepath.Join(dir, sentenceName))
	case p.Default != nil:
		return fmt.Errorf("%s: default_prompt_name is %s, and only null is computed here", filepath.Join(dir, promptsName),
			bounded.Quote(*p.Default))
	}
	c.Longest = c.Positions
	if s.Longest != nil {
		c.Longest = min(c.Longest, *s.Longest)
	} else if t.Longest != nil {
		c.Longest = int(min(float64(c.Longest), *t.Longest))
	}
	return nil
}

// writeModules adds what sentence-transformers reads. Its older versions know these names of types, too.
func (c *Config) writeModules(files map[string][]byte) (err error) {
	write := func(name string, value any) {
		text, wrong := json.MarshalIndent(value, "", "  ")
		files[name], err = text, errors.Join(err, wrong)
	}
	modules := []module{{0, "0", "", "sentence_transformers.models.Transformer"},
		{1, "1", "1_Pooling", "sentence_transformers.models.Pooling"}}
	mode := map[Pooling]string{Mean: "mean", CLS: "cls"}[c.Pooling]
	write(poolingName, map[string]any{"word_embedding_dimension": c.Width, "pooling_mode_cls_token": mode == "cls",
		"pooling_mode_mean_tokens": mode == "mean", "pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false})
	if c.Normalize {
		modules = append(modules, module{2, "2", "2_Normalize", "sentence_transformers.models.Normalize"})
		write(normalizeName, map[string]any{})
	}
	write(modulesName, modules)
	if files[sentenceName] == nil {
		write(sentenceName, map[string]any{"max_seq_length": c.Longest, "do_lower_case": false})
	}
	if files[promptsName] == nil {
		write(promptsName, map[string]any{"prompts": map[string]string{}, "default_prompt_name": nil, "similarity_fn_name": "cosine"})
	}
	return err
}
