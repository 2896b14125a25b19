"""Makes expect.json: the tokens and the masks of answers of transformers 5.23.0.

Run in this folder:  python write.py
"""
import json

from transformers import PreTrainedTokenizerFast

INST = "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %} {{ m.content | trim }}{{ eos_token }}{% endgeneration %}{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"
CHATML = open("../../../internal/jinja/testdata/templates/smollm.jinja").read()
CHATS = [[("user", "Hi"), ("assistant", "The rays of light.")], [("system", "s"), ("user", "the  crystal "), ("assistant", " 12 red, orange\n"), ("user", "x"), ("assistant", "isn't I'll")],
         [("user", "a"), ("assistant", "Käfer 中文 🙂 x")], [("user", "q"), ("user", "r")], [("assistant", "first"), ("user", "q"), ("assistant", ""), ("assistant", "two")],
         [("user", "the" * 9), ("assistant", "a<|endoftext|>b <s> </s>c")], [("user", "été"), ("assistant", "e\u0301te\u0301 o\u0301")]]

result = []
for kind, bos, eos in [("gpt2", None, "<|endoftext|>"), ("llama3", "<|begin_of_text|>", "<|eot_id|>"), ("qwen2", None, "<|im_end|>"), ("llama2", "<s>", "</s>"), ("metaspace", "<s>", "</s>")]:
    t = PreTrainedTokenizerFast(tokenizer_file=f"../../tokenizer/testdata/{kind}/tokenizer.json", bos_token=bos, eos_token=eos)
    for template in (INST, CHATML):
        for chat in CHATS:
            messages = [dict(role=r, content=c) for r, c in chat]
            got = t.apply_chat_template(messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
            result.append(dict(kind=kind, template=template, specials={k: v for k, v in t.special_tokens_map.items() if isinstance(v, str)}, messages=messages,
                               ids=got["input_ids"], mask=got["assistant_masks"]))
with open("expect.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in result) + "\n]\n")
