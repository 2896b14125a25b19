package gpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

const (
	chatName      = "chat_template.jinja"
	chatFolder    = "additional_chat_templates"
	tokenizerName = "tokenizer_config.json"
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
	more := false
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".jinja"); ok {
			text, err := bounded.ReadFile(filepath.Join(dir, chatFolder, e.Name()), maxFile)
			if err != nil {
				return fmt.Errorf("gpt: %w", err)
			}
			list, more = append(list, chatTemplate{name, string(text)}), true
		}
	}
	if !more {
		return nil
	}
	settings := map[string]json.RawMessage{}
	if text, ok := files[tokenizerName]; ok {
		if err := json.Unmarshal(text, &settings); err != nil {
			return fmt.Errorf("gpt: %s: %w", filepath.Join(dir, tokenizerName), err)
		}
	}
	if settings["chat_template"], err = json.Marshal(list); err != nil {
		return fmt.Errorf("gpt: %w", err)
	}
	delete(files, chatName) // transformers would read it in place of the list
	files[tokenizerName], err = json.MarshalIndent(settings, "", "  ")
	return err
}
