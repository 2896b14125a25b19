package gpt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/models/gpt"
)

// makeTokenizer saves a tokenizer with the chat templates {{name: text}} of its second argument, or prints those of a folder.
const makeTokenizer = `
import json, sys
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
if len(sys.argv) > 2:
    t = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a")), unk_token="a")
    t.chat_template = json.loads(sys.argv[2])
    t.save_pretrained(sys.argv[1])
else:
    t = PreTrainedTokenizerFast.from_pretrained(sys.argv[1])
    print(json.dumps([t.chat_template, t.unk_token, t("b")["input_ids"]], sort_keys=True))
`

// What transformers saves of a tokenizer comes out as it went in, with one chat template and with several.
func TestPythonChatTemplates(t *testing.T) {
	name := pythonWith(t, "transformers")
	run := func(args ...string) string {
		c := exec.Command(name, append([]string{"-I", "-c", makeTokenizer}, args...)...)
		c.Stderr = os.Stderr
		out, err := c.Output()
		require.NoError(t, err)
		return string(out)
	}
	for _, templates := range []string{`"{{ m }}"`, `{"default": "{{ m }}", "tool_use": "{{ tools }}\n\n", "rag": "é"}`, `{"rag": "r"}`} {
		dir, to := t.TempDir(), t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "llama"))))
		run(dir, templates)
		m, err := gpt.Open(dir)
		require.NoError(t, err)
		for file, text := range filesOf(t, m) {
			require.NoError(t, os.WriteFile(filepath.Join(to, file), text, 0o666))
		}
		assert.Equal(t, run(dir), run(to), templates)
		assert.Contains(t, run(to), "[1]", templates)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Name() != "model.safetensors" && e.Name() != "chat_template.jinja" && !e.IsDir() {
				assert.FileExists(t, filepath.Join(to, e.Name()), "of what transformers writes")
			}
		}
	}
}
