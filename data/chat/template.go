package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/jinja"
)

const (
	maxSettings  = 4 << 20
	settingBytes = 256 // of memory, for a value in the settings
	templateFile = "chat_template.jinja"
	settingsFile = "tokenizer_config.json"
	specialsFile = "special_tokens_map.json"
	writesFile   = "generation_config.json"
	modelFile    = "config.json"
)

// Template is the chat template of a model: it turns a conversation into the text that the model was trained on.
type Template struct {
	// Now is the time that templates tell, such as Llama 3's. Open sets it to its own time: set it to the same on all ranks, and in a
	// training that resumes, if the template tells the date.
	Now time.Time

	parsed *jinja.Template
	vars   map[string]any // special tokens
	blocks bool           // the template has generation blocks
	ends   []int          // eos_token_id of the model's settings
}

// Message is a part of a conversation.
type Message struct{ Role, Content string }

// Open reads the chat template of a folder with Hugging Face's layout: chat_template.jinja, or chat_template in tokenizer_config.json, of
// which several have a default. The special tokens are those of tokenizer_config.json and special_tokens_map.json, and Ends are also those
// of generation_config.json.
func Open(dir string) (*Template, error) {
	settings, err := readSettings(filepath.Join(dir, settingsFile))
	if err != nil {
		return nil, err
	}
	specials, err := readSettings(filepath.Join(dir, specialsFile))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, templateFile)
	source, err := bounded.ReadFile(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		path = filepath.Join(dir, settingsFile)
		source, err = fromSettings(settings["chat_template"])
	}
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	t, err := New(string(source))
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", path, err)
	}
	for _, all := range []map[string]json.RawMessage{specials, settings} {
		for name, raw := range all {
			if strings.HasSuffix(name, "_token") {
				if s, ok := special(raw); ok {
					t.vars[name] = s
				}
			}
		}
	}
	t.ends, err = readEnds(dir)
	return t, err
}

// readEnds returns eos_token_id, a number or a list, of generation_config.json, or of config.json if there is none, as transformers does.
func readEnds(dir string) (ends []int, err error) {
	path := filepath.Join(dir, writesFile)
	all, err := readSettings(path)
	if all == nil && err == nil {
		path = filepath.Join(dir, modelFile)
		all, err = readSettings(path)
	}
	raw, one := all["eos_token_id"], 0
	switch {
	case raw == nil || json.Unmarshal(raw, &ends) == nil: // null is none, too
	case json.Unmarshal(raw, &one) == nil:
		ends = []int{one}
	default:
		return nil, fmt.Errorf("chat: %s: eos_token_id is %s, want a number or a list of them", path, bounded.Plain(string(raw)))
	}
	return ends, err
}

// New returns a template from its text, without special tokens.
func New(source string) (*Template, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, err
	}
	return &Template{Now: time.Now(), parsed: parsed, vars: map[string]any{}, blocks: strings.Contains(source, "endgeneration")}, nil
}

func readSettings(path string) (all map[string]json.RawMessage, err error) {
	text, err := bounded.ReadFile(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = bounded.JSON(text, settingBytes)
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", path, err)
	}
	return all, nil
}

// fromSettings returns the template in tokenizer_config.json: a text, or the default of a list.
func fromSettings(raw json.RawMessage) ([]byte, error) {
	var one string
	var list []struct{ Name, Template string }
	switch {
	case raw == nil || string(raw) == "null":
		return nil, errors.New("the folder has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json; New " +
			"takes the text of one")
	case json.Unmarshal(raw, &one) == nil:
		return []byte(one), nil
	case json.Unmarshal(raw, &list) == nil:
		for _, t := range list {
			if t.Name == "default" {
				return []byte(t.Template), nil
			}
		}
	}
	return nil, errors.New("chat_template in tokenizer_config.json is neither a text nor a list with a default")
}

// special returns a special token, which is a text or an object with its content.
func special(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil && string(raw) != "null" {
		return s, true
	}
	var token struct{ Content *string }
	if json.Unmarshal(raw, &token) == nil && token.Content != nil {
		return *token.Content, true
	}
	return "", false
}

// Prompt returns the text of a conversation, up to where the model's answer begins.
func (t *Template) Prompt(messages ...Message) (string, error) {
	text, _, err := t.render(list(messages...), nil, true)
	if err != nil {
		return "", fmt.Errorf("chat: %w", err)
	}
	return text, nil
}

// list returns messages as a template reads them.
func list(messages ...Message) (all []any) {
	for _, m := range messages {
		d := jinja.NewDict()
		d.Set("role", m.Role)
		d.Set("content", m.Content)
		all = append(all, d)
	}
	return all
}

// Ends returns the tokens that end an answer: those that end all text in the folder's settings (eos_token_id), and the first added token
// that the template writes behind an answer, such as <|im_end|>. A template that refuses a question and an answer alone has none.
func (t *Template) Ends(tok *tokenizer.Tokenizer) []int {
	const answer = "Ringo's answer"
	ends := slices.Clone(t.ends)
	text, _, err := t.render(list(Message{"user", "question"}, Message{"assistant", answer}), nil, false)
	if from := strings.LastIndex(text, answer); err == nil && from >= 0 {
		behind := tok.Encode(text[from:])
		at := slices.IndexFunc(behind, func(id int) bool { return tok.IsAdded(id) && strings.TrimSpace(tok.Piece(id)) != "" })
		if at >= 0 && !slices.Contains(ends, behind[at]) {
			ends = append(ends, behind[at])
		}
	}
	return ends
}

func (t *Template) render(messages []any, tools any, prompt bool) (string, [][2]int, error) {
	vars := map[string]any{"messages": messages, "tools": tools, "documents": nil, "add_generation_prompt": prompt}
	for name, v := range t.vars {
		vars[name] = v
	}
	return t.parsed.Render(vars, t.Now)
}

// document is a text, and the places of the answers in it.
type document struct {
	text    string
	answers [][2]int
}

// documents returns those of a conversation.
func (t *Template) documents(messages []any, tools any) ([]document, error) {
	text, spans, err := t.render(messages, tools, false)
	if err != nil || t.blocks {
		return []document{{text, spans}}, err
	}
	var apart []document
	whole := true
	for i, m := range messages {
		if role, _ := m.(*jinja.Dict).Get("role"); role != "assistant" {
			continue
		}
		before, _, err := t.render(messages[:i], tools, true)
		if err != nil {
			return nil, fmt.Errorf("the prompt for message %d: %w", i+1, err)
		}
		after, _, err := t.render(messages[:i+1], tools, false)
		if err != nil {
			return nil, fmt.Errorf("up to message %d: %w", i+1, err)
		}
		if !strings.HasPrefix(after, before) {
			return nil, fmt.Errorf("the template writes the prompt for message %d otherwise if the answer follows, so that it is not known where "+
				"the answer begins: use a template with generation blocks", i+1)
		}
		spans = append(spans, [2]int{len(before), len(after)})
		apart = append(apart, document{after, spans[len(spans)-1:]})
		whole = whole && strings.HasPrefix(text, after)
	}
	if whole {
		return []document{{text, spans}}, nil
	}
	return apart, nil
}
