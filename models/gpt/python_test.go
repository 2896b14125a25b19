package gpt_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data/chat"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/tensor"
)

// newModels makes transformers write a folder for each kind of model, in bfloat16, with the tokenizer of a file.
const newModels = `
import os, sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
root, *files = sys.argv[1:]
for kind, config, file in [(GPT2LMHeadModel, GPT2Config, files[0]), (LlamaForCausalLM, LlamaConfig, files[1])]:
    tok = PreTrainedTokenizerFast(tokenizer_file=file)
    torch.manual_seed(7)
    model = kind(config(vocab_size=len(tok), hidden_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64,
                        bos_token_id=None, eos_token_id=None, initializer_range=0.4)).to(torch.bfloat16)
    folder = os.path.join(root, kind.__name__)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
`

// generate makes transformers write 20 tokens after a prompt with the model of each folder, as a user does, the likeliest token each time.
const generate = `
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
prompt, *folders = sys.argv[1:]
for folder in folders:
    tok, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = tok(prompt, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=20, min_new_tokens=20, do_sample=False)
    new = out[0, ids["input_ids"].shape[1]:]
    print(json.dumps({"text": tok.decode(new), "ids": new.tolist(), "dtype": str(model.dtype)}))
`

// written is what a model writes.
type written struct {
	Text  string
	IDs   []int
	DType string
}

// pythonWrites returns what transformers writes with the model of each folder.
func pythonWrites(t *testing.T, python, prompt string, folders ...string) (all []written) {
	c := exec.Command(python, append([]string{"-I", "-c", generate, prompt}, folders...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		var w written
		require.NoError(t, json.Unmarshal([]byte(line), &w))
		require.Len(t, w.IDs, 20)
		all = append(all, w)
	}
	return all
}

// writes returns what the model of a folder writes here.
func writes(t *testing.T, dir string, d tensor.DType, prompt string) written {
	m, _, dev := opened(t, dir, d)
	tok, err := tokenizer.Open(dir)
	require.NoError(t, err)
	w := written{DType: "torch." + d.String()}
	for id := range m.Generate(dev, tok.Prompt(prompt), decode.Sampling{Tokens: 20}) {
		w.IDs = append(w.IDs, id)
	}
	w.Text, err = tok.Decode(w.IDs)
	require.NoError(t, err)
	return w
}

// TestPythonText: transformers writes the same text with a folder of its own and with the one that was opened and saved here unchanged; and
// with a finetuned one the text that is written here, whatever the type of its values.
func TestPythonText(t *testing.T) {
	python := pythonWith(t, "transformers")
	root, testdata := t.TempDir(), filepath.Join("..", "..", "data", "tokenizer", "testdata")
	out, err := exec.Command(python, "-I", "-c", newModels, root, filepath.Join(testdata, "gpt2", "tokenizer.json"),
		filepath.Join(testdata, "llama3", "tokenizer.json")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	const prompt = "the colours of light"
	for _, kind := range []string{"GPT2LMHeadModel", "LlamaForCausalLM"} {
		dir := filepath.Join(root, kind)
		tok, err := tokenizer.Open(dir)
		require.NoError(t, err)
		text := tok.Encode("the colours of light are very small bodies, and all the rays bend. the colours of light are no colours.")
		same := finetuned(t, dir, tensor.BFloat16, text, 0)
		half := finetuned(t, dir, tensor.BFloat16, text, 60)
		single := finetuned(t, dir, tensor.Float32, text, 60)
		got := pythonWrites(t, python, prompt, dir, same, half, single)
		require.Equal(t, got[0], got[1], kind)
		require.Equal(t, "torch.bfloat16", got[1].DType)
		require.Equal(t, "torch.bfloat16", got[2].DType, "trained in it")
		require.NotEqual(t, got[0].Text, got[3].Text, "training changed nothing")
		want := writes(t, single, tensor.Float32, prompt)
		require.True(t, utf8.ValidString(want.Text), "%q: transformers has other text for parts of characters", want.Text)
		require.Equal(t, want, got[3], kind)
	}
}

// pythonAnswers makes transformers write the answer of a chat of Qwen2's kind and of Llama 3's, by the likeliest tokens, until one of
// several tokens that end it. One of them is among the tokens that the model writes.
const pythonAnswers = `
import json, os, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
root, *files = sys.argv[1:]
for kind, config, file, template, end in [(Qwen2ForCausalLM, Qwen2Config, *files[:2], "<|im_end|>"),
                                          (LlamaForCausalLM, LlamaConfig, *files[2:], "<|eot_id|>")]:
    tok = PreTrainedTokenizerFast(tokenizer_file=file)
    tok.chat_template = open(template).read()
    torch.manual_seed(5)
    model = kind(config(vocab_size=len(tok), hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=None, eos_token_id=None, initializer_range=0.4))
    ids = tok.apply_chat_template([dict(role="user", content="What is light?")], add_generation_prompt=True, return_tensors="pt",
                                  return_dict=True)
    def write(): return model.generate(**ids, max_new_tokens=20, do_sample=False)[0, ids["input_ids"].shape[1]:].tolist()
    without = write()
    last = next(t for t in without[6:] if t not in without[:6])
    model.generation_config.eos_token_id = [tok.convert_tokens_to_ids(end), last]
    folder = os.path.join(root, kind.__name__)
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    print(json.dumps({"ids": write(), "last": last}))
`

// TestPythonAnswers: an answer ends where transformers' generate ends it.
func TestPythonAnswers(t *testing.T) {
	python, root := pythonWith(t, "transformers"), t.TempDir()
	tokens, templates := filepath.Join("..", "..", "data", "tokenizer", "testdata"), filepath.Join("..", "..", "internal", "jinja", "testdata",
		"templates")
	args := []string{"-I", "-c", pythonAnswers, root}
	for _, kind := range []string{"qwen2", "llama3"} {
		args = append(args, filepath.Join(tokens, kind, "tokenizer.json"), filepath.Join(templates, kind+".jinja"))
	}
	c := exec.Command(python, args...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 2)
	for i, kind := range []string{"Qwen2ForCausalLM", "LlamaForCausalLM"} {
		var want struct {
			IDs  []int
			Last int
		}
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &want))
		dir := filepath.Join(root, kind)
		m, _, dev := opened(t, dir, tensor.Float32)
		tok, err := tokenizer.Open(dir)
		require.NoError(t, err)
		template, err := chat.Open(dir)
		require.NoError(t, err)
		prompt, err := template.Prompt(chat.Message{Role: "user", Content: "What is light?"})
		require.NoError(t, err)
		ends := template.Ends(tok)
		require.Contains(t, ends, want.Last)
		last := len(want.IDs) - 1 // the end
		require.Less(t, last, 19)
		require.Contains(t, ends, want.IDs[last])
		require.Equal(t, want.IDs[:last], collect(m, dev, tok.Encode(prompt), decode.Sampling{Tokens: 20, End: ends}), kind)
	}
}
