"""Makes expect.json.gz: what transformers' chat templates, 5.23.0, give for the templates and conversations here.

Run in this folder:  python write.py

MORE names a folder with further templates, and TO another file.
"""
import datetime
import glob
import gzip
import json
import os

from transformers.utils import chat_template_utils as u


class Clock(datetime.datetime):
    @classmethod
    def now(cls):
        return cls(2026, 3, 4, 5, 6, 7)


u.datetime = Clock


def say(*turns):
    return [dict(role=r, content=c) for r, c in turns]


TEXTS = ["Hi", " padded \n", "", "<|im_end|> {{ x }} {% if %}", "é \u2028 \U0001F642 \t\"quoted\" 'it' \\ back", "a\n\nb\n", "1 < 2 & 3 > 2", "Ünï-" * 9, "\x00\x07\x7f", "- x\r\n- y"]
CALL = [{"id": "abcdefgh1", "type": "function", "function": {"name": "rain", "arguments": {"where": "Zürich", "days": [1, 2.5, None, True], "deep": {"b": {}, "a": []}}}}]
TOOLS = [{"type": "function", "function": {"name": "rain", "description": "Says \"rain\" or <sun>", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}}},
         {"type": "function", "function": {"name": "now", "description": "é", "parameters": {}}}]
CHATS = []
for i, t in enumerate(TEXTS):
    o = TEXTS[(i + 3) % len(TEXTS)]
    CHATS += [say(("user", t)), say(("user", t), ("assistant", o)), say(("system", o), ("user", t), ("assistant", t)),
              say(("user", t), ("assistant", o), ("user", o), ("assistant", t)), say(("system", t), ("user", o), ("assistant", t), ("user", t)),
              say(("user", "q"), ("assistant", f"<think>\n{t}\n</think>\n\n{o}"), ("user", o), ("assistant", f"<think>{o}</think>{t}")),
              say(("user", "q"), ("assistant", f"<think>\n\n{t}"), ("assistant", f"{o}</think>"))]
CHATS += [
    say(("user", "rain?")) + [dict(role="assistant", content="", tool_calls=CALL), dict(role="tool", content="wet", tool_call_id="abcdefgh1")] + say(("assistant", "It rains.")),
    say(("system", "s"), ("user", "rain?")) + [dict(role="assistant", content="Let me see", tool_calls=CALL + CALL), dict(role="tool", content="wet", tool_call_id="abcdefgh1"), dict(role="tool", content="dry", tool_call_id="abcdefgh1")],
    [dict(role="user", content="q"), dict(role="assistant", content="a", reasoning_content="because")],
    [dict(role="user", content="q", name="n"), dict(role="assistant", content="a", tool_calls=[dict(name="f", arguments="{}")])],
    [dict(role="user", content=[dict(type="text", text="q")])], say(("assistant", "first")), say(("tool", "x")), say(("critic", "x")), [dict(role="user")],
]

OPTIONS = [dict(), dict(add_generation_prompt=True), dict(tools=TOOLS), dict(add_generation_prompt=True, enable_thinking=False, custom=1, tools=TOOLS[:1], date_string="26 Jul 2024")]


def render(template, chat, options):
    try:
        text, spans = u.render_jinja_template([chat], chat_template=template, return_assistant_tokens_mask=True, bos_token="<s>", eos_token="</s>", **options)
        return [text[0], [list(s) for s in spans[0]]]
    except Exception as e:
        return [str(e) or "error"]


result = {"chats": CHATS, "options": OPTIONS, "templates": {}}
for path in sorted(glob.glob("templates/*.jinja")) + sorted(glob.glob(os.environ.get("MORE", "/none") + "/*.jinja")):
    template = open(path, newline="").read()
    result["templates"][os.path.basename(path) if path.startswith("templates") else path] = [[render(template, c, o) for o in OPTIONS] for c in CHATS]
with open(os.environ.get("TO", "expect.json.gz"), "wb") as f:
    f.write(gzip.compress(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode(), mtime=0))
