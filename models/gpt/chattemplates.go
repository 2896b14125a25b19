package gpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

const (
	chatName      = "chat_template.jinja"
	chatFolder    = "additional_chat_templates"
	tokenizerName = "tokenizer_config.json"

	maxTemplates = 1 << 20 // bytes of additional templates together
	memOfSetting = 400     // bytes of memory
)

// chatTemplate is an element of tokenizer_config.json's chat_template.
type chatTemplate struct {
	Name     string `json:"name"`
	Template string `json:"template"`
}

// joinTemplates puts the chat templates of a folder that has several into the tokenizer's settings: the form of transformers without files
// for templates, which all versions read. A checkpoint has no folders. files are those of dir, which has chat_template.jinja, the default.
func joinTemplates(dir string, files map[string][]byte) error {
	entries, err := os.ReadDir(filepath.Join(dir, chatFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("gpt: %w", err)
	}
	var list []chatTemplate
	if text, ok := files[chatName]; ok {
		list = append(list, chatTemplate{"default", string(text)})
	}
	more, left := false, int64(maxTemplates)
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".jinja"); ok {
			text, err := bounded.ReadFile(filepath.Join(dir, chatFolder, e.Name()), left)
			if err != nil {
				return fmt.Errorf("gpt: %w", err)
			}
			left -= int64(len(text))
			list, more = append(list, chatTemplate{name, string(text)}), true
		}
	}
	if !more {
		return nil
	}
	settings := map[string]any{}
	if text, ok := files[tokenizerName]; ok {
		raw := map[string]json.RawMessage{}
		err := bounded.JSON(text, memOfSetting)
		if err == nil {
			err = json.Unmarshal(text, &raw)
		}
		if err != nil {
			return fmt.Errorf("gpt: %s: %w", filepath.Join(dir, tokenizerName), err)
		}
		for name, value := range raw {
			settings[name] = value
		}
	}
	settings["chat_template"] = list
	delete(files, chatName) // transformers would read it in place of the list
	files[tokenizerName], err = object(settings)
	return err
}

// object returns a JSON object with a line for each setting. A json.RawMessage stays as it is: indenting what is deep makes it a thousand
// times as long.
func object(settings map[string]any) ([]byte, error) {
	texts, size := map[string][]byte{}, 4
	for name, value := range settings {
		text, raw := value.(json.RawMessage)
		if !raw {
			var err error
			if text, err = json.MarshalIndent(value, "  ", "  "); err != nil {
				return nil, err
			}
		}
		texts[name], size = text, size+6*len(name)+len(text)+8
	}
	out, comma := append(make([]byte, 0, size), '{'), ""
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(append(append(out, comma...), "\n  "...), key...), ": "...), texts[name]...)
		comma = ","
	}
	return append(out, "\n}\n"...), nil
}
