"""Makes the folders in this one, and expect.json: what Hugging Face's tokenizers computes for them.

Run in this folder:  python write.py

with tokenizers 0.23.3. Folders that are there are kept. The tokenizers are small ones of the forms of the models that they are named after;
"metaspace" is what transformers 5 writes for Llama 2's, "fallback" has scores and tokens of bytes, and "cased" is BERT's with capitals.

  python write.py compare FOLDER...  prints the same for random texts and the tokenizers in these folders
"""
import json
import os
import random
import sys

from charsmap import charsmap
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """The crystal which I here use must be clear, and the rays of the Sun fall upon it; they're refracted, it's said, we've seen 100 or 1,000,000.
By the same rays of light the colours were made: red, orange, yellow, green, blue, indigo, violet. It isn't I'll, you'd, I'm, CAN'T, WE'LL.
    for i in range(10):
\t\tif x[i] == 0 and y != "z":   return {"key": [1, 2, 3]}  # end

Der Käfer läuft über die Straße, größer als früher. Où est l'été, déjà là ? El niño comió piñas. 我们 在 这里 学习 中文。これはテストです。
Съешь же ещё этих мягких французских булок, да выпей чаю. مرحبا بالعالم שלום עולם नमस्ते दुनिया 안녕하세요 세계 🙂🙂🎉 👍🏽 👨‍👩‍👧
""".splitlines(keepends=True)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

QWEN2 = LLAMA3.replace("{1,3}", "")


def special(content, normalized=False):
    return AddedToken(content, normalized=normalized, special=True)


def changed(tokenizer, change):
    """The tokenizer after a change of its file."""
    file = json.loads(tokenizer.to_str())
    change(file)
    return Tokenizer.from_str(json.dumps(file))


def byte_level(pre_tokenizer, size):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def gpt2():
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 420)
    t.model.continuing_subword_prefix = t.model.end_of_word_suffix = ""
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens([special("<|endoftext|>", normalized=True)])
    t.add_tokens([AddedToken("<|user|>", normalized=False), AddedToken("<|user|>s", normalized=True), AddedToken("<|endof", normalized=True)])
    return t


def llama3():
    def unreachable(file):
        """A word that no merges lead to."""
        m = file["model"]
        m["vocab"]["Ġzyzzyva"] = len(m["vocab"])
        m["vocab"]["Ã©Ã©"] = len(m["vocab"])
        m["ignore_merges"] = True

    t = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 440)
    t = changed(t, unreachable)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    t.add_special_tokens([special(n) for n in names])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[(names[0], t.token_to_id(names[0]))])])
    return t


def qwen2():
    t = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 420)
    t.normalizer = normalizers.NFC()
    t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    t.add_special_tokens([special(n) for n in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    t.add_tokens([AddedToken("e\u0302\u0301t", normalized=True), AddedToken("o\u0301", normalized=False)])
    return t


def llama2():
    def without_bytes(file):
        file["added_tokens"] = [a for a in file["added_tokens"] if not a["content"].startswith("<0x")]

    names = ["<unk>", "<s>", "</s>"]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.train_from_iterator(TEXT + ["        "] * 5, trainers.BpeTrainer(
        vocab_size=560, limit_alphabet=130, special_tokens=names + [f"<0x{b:02X}>" for b in range(256)], show_progress=False))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t = changed(t, without_bytes)
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    t.add_tokens([AddedToken("rays of", normalized=True), AddedToken("[end]", normalized=False)])
    return t


def metaspace():
    t = Tokenizer.from_file("llama2/tokenizer.json")
    t.normalizer = None
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="$A $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def smollm():
    t = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), 400)
    t.add_special_tokens([special("<|endoftext|>")])
    t.add_tokens([AddedToken("ét", normalized=False)])
    return t


def flags(t):
    """Added tokens that take spaces with them, or must be words."""
    t.add_special_tokens([AddedToken("<|user|>", normalized=False, special=True, rstrip=True), AddedToken("[end]", normalized=False, lstrip=True, special=True)])
    t.add_tokens([AddedToken("the", single_word=True, normalized=False), AddedToken("<both>", lstrip=True, rstrip=True, normalized=True),
                  AddedToken("rays of", single_word=True, normalized=True, rstrip=True), AddedToken("rays", lstrip=True, normalized=False)])
    return t


def phi3():
    t = Tokenizer.from_file("llama2/tokenizer.json")
    t = changed(t, lambda file: file.update(added_tokens=file["added_tokens"][:3]))
    return flags(t)


def gemma():
    t = Tokenizer.from_file("llama2/tokenizer.json")
    t = changed(t, lambda file: file.update(added_tokens=file["added_tokens"][:3]))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_tokens([AddedToken(c * n, normalized=False) for c, n in (("\n", 2), ("▁", 2), ("▁", 3), ("<td>", 1))])
    return t


RULES = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\u0001": "", "ﬁ": "fi", "Ⅷ": "VIII", "e\u0301": "é", "a\u0308": "ä", "１": "1",
         "２": "2", "½": "1⁄2", "\ufdfa": "صلى الله", "\u00a8": " \u0308", "\u1112": "\u314e", "©": "(c)", "¼": "1⁄4", "\u0600": "#", "ᄀ": "g", "\u0344": "\u0308\u0301"}


def unigram(normalizer, pre_tokenizer, specials, size, unk="<unk>"):
    t = Tokenizer(models.Unigram())
    t.normalizer, t.pre_tokenizer = normalizer, pre_tokenizer
    t.train_from_iterator(TEXT * 2 + ["the rays of the Sun", "crystal"] * 3, trainers.UnigramTrainer(vocab_size=size, special_tokens=specials, unk_token=unk, show_progress=False))
    t.decoder = decoders.Metaspace()
    return t


def precompiled():
    return normalizers.Precompiled(__import__("base64").b64decode(charsmap(RULES)))


def t5():
    words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t = unigram(precompiled(), words, ["<pad>", "</s>", "<unk>"], 300)
    t.add_special_tokens([special(n) for n in ("<pad>", "</s>", "<unk>", "<extra_id_1>", "<extra_id_0>")])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return t


def xlmr():
    t = unigram(normalizers.Sequence([precompiled(), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]),
                pre_tokenizers.Metaspace(), ["<s>", "<pad>", "</s>", "<unk>"], 260)
    t.add_special_tokens([special(n) for n in ("<s>", "<pad>", "</s>", "<unk>")] + [AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return t


def albert():
    t = unigram(normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                                      normalizers.Lowercase(), precompiled(), normalizers.Replace(Regex(" {2,}"), " ")]),
                pre_tokenizers.Metaspace(), ["<pad>", "<unk>", "[CLS]", "[SEP]"], 220)
    return flags(t)


def fallback():
    def with_bytes(file):
        m = file["model"]
        m["byte_fallback"] = True
        m["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]

    t = changed(unigram(normalizers.NFKC(), pre_tokenizers.Metaspace(split=False, prepend_scheme="never"), ["<unk>"], 200), with_bytes)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens([special("<s>")])
    return t


def wordpiece(lowercase, cleanup):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=cleanup)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=330, special_tokens=names, show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def bert():
    return wordpiece(True, True)


def cased():
    t = wordpiece(False, False)
    t.add_tokens([AddedToken("Sun", normalized=True), AddedToken("rays of", normalized=True, single_word=True), AddedToken("[end]", normalized=False)])
    return t


TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", " \n", "\n ", "\t", "\t\t x", "a", " a", "a ", "  a", "a  ", "a  b", "a   b", "a\nb", "a \n b", "a\n\n  b", "a \t\n \t b", "x\r\n\r\n  y",
    " \n\n \n x", "\n\n\nx\n", "   \n   ", "   \r\r  .", "\u00a0", "a\u00a0b", "\u00a0\u00a0x", "\u2003x \u3000y\u200b\u2028z\u0085w\u001c\u180e",
    "Hello, world!", "The crystal which I here use must be clear.", "they're it's we've I'll you'd I'm isn't", "THEY'RE IT'S WE'VE I'LL YOU'D I'M ISN'T", "'s't're've'm'll'd", "'S'T'RE'VE'M'LL'D",
    "'x '' ''s don''t 's' ' s", "'\u017fa '\u017f 'L\u017f", "\u2019s don\u2019t", "'re're 'Re 'vE 'lL'", "a'b'c", "'", "' ", " 's", "\n's", "!'s", "1'd",
    "0", "12", "123", "1234", "1234567890", "3.14159", "1,000,000", " 100 or  100", "x1y22z333", "a1", "1a", "²³ ½ ⅷ ٣٤٥٦ ४५ 〇 ①②③④", "１２３４",
    "!!!", " !!!", "...\n\n", "?!\r\n x", "a.b", "a. b", "(a)", "{\"key\": [1, 2]}", "x[i] == 0", "\t\tif x:", "    for i in range(10):\n        pass\n", "_a_b_", "$a €b", "-a - b --c", "#tag @name",
    "Straße größer über", "Käfer", "Ka\u0308fer e\u0301\u0301", "\u0301", " \u0301a", "ﬁ ﬀ Ⅷ ª º", "été ÉTÉ", "éé", "éé éé", " zyzzyva", "zyzzyva", " zyzzyvas", "x zyzzyva zyzzyva\n",
    "我们在这里学习中文。", "これはテストです", "안녕하세요 세계", "\u1112\u1161\u11ab", "Съешь же ещё", "مرحبا بالعالم", "שָׁלוֹם", "नमस्ते दुनिया", "ไทย ภาษา", "𝔘𝔫𝔦 𐍈 𠀀", "\U0001F642", "🙂🙂", "a🙂b", " 🙂", "👍🏽", "👨‍👩‍👧 x", "🇩🇪",
    "\u0000", "a\u0000b", "\u0001\u007f\u0080\u00ad", "\ufeffx", "\U00013536\U000129f8", "x\u1c89\U00010d40\u088f\U00016ff4", "\ufffd", "\uffff", "\U0010ffff", "\ue000",
    "▁", "▁a", "a▁b", " ▁ ", "Ġ", "Ġa Ċ", "<0x0A>", "<0x41>x", "rays of", " rays of", "the rays of the", "xrays of", "rays  of", "[end]", "a[end]b", " [end] rays of[end]rays of", "[end][end]",
    "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|>", "<|endoftext", "<|endof", "<|endoftex|>", "<<|endoftext|>>", "<|user|>s", "<|user|> s", "<|endof<|user|>text|>",
    "<|begin_of_text|>", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi's<|eot_id|>", "<|eot_id|>'s 12<|eot_id|>345", "x <|eot_id|>  y", "<|eot_id", "<|reserved_special_token_0|>1",
    "<s>", "</s>", "<s> a", "a</s>", "a </s> b", "<s></s>", "<unk>", "<s", "<s>▁", " <s>  </s>  ", "<s>[INST] Hi [/INST]", "<S>", "the  the        the", "            ", "aaaaaaaaaaaaaaaaa", "ttttheheheee", "a" * 60, " " * 60 + "x", "\n" * 30 + " x",
]

TEXTS += [  # marks and composed characters: their order, what blocks them, long runs, Unicode after 9.0
    "e\u0302\u0301t \u00ea\u0301t \u1ebft e\u0301 \u00e9t o\u0301 \u00f3", "a\u0323\u0302 a\u0302\u0323 \u1ead \u1e9b\u0323", "q\u0307\u0323\u0301", "\u1100\u1161\u11a8 \uac00\u11a8 \uac01\u11a8", "\u212b \u2126 \uf900 \u0344 \u0958 \u2adc",
    "a" + "\u0323\u0301" * 40 + "b", "\u0301\u0323", "a\u1abf\u0301 \u0301\u1abf\u0323", "\U00011935\U00011930 \U00011938", "\u09c7\u0334\u09be \u09c7\u09be", "\U0001d15e", "<|im_start|>user\ne\u0301<|im_end|>\u0301",
]

PIECES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "'s", "'LL", "'", "the", "The", " rays", "of", "x", "ab", "é", "e\u0301", "ß", "中", "文。", "я", "🙂", "👍🏽", "1", "22", "333", "½", ".", "!?", "\"", "(", "_", "▁", "\u0000",
          "<s>", "</s>", "<|endoftext|>", "<|eot_id|>", "[end]", "rays of", "<|user|>", "<"]

NASTY = PIECES + ["Sun", "SUN", "ét", "<mask>", "<both>", "<td>", "[MASK]", "##s", "<extra_id_0>", "the", "``", "''", "...", "$", "don't", " do not", "\ufb01", "İ", "Σς", "ǅ", "ẞ", "\u0345", "\u200d", "\u200b", "\ufeff", "©",
                  "\u00a9\u200d\u00ae", "\u0600", "\u1100", "\u1161", "\u11a8", "가", "각", "שָׁ", "مرحبا", "\u202e", "\u0007", "\x7f", "\u0085", "\u2028", "\u3000", "\ufffd", "\u00ad", "か\u3099", "ﷺ", "①", "４", "٣", "\u0301", "\u0323",
                  "a\u0308", "\u0344", "\u00a8", "𝔘", "𠀀", "\U000e0041", "🇩🇪", "👨‍👩‍👧", "—", "…", "_", "▁▁", "\n\n", "       ", "x" * 25, "中文字", "Ⅷ", "ꟋꟚ", "\U00010d50", "\u1734", "\U00011de0", "\u0cf3"]


def as_old(path):
    """Rewrites a file to the form that GPT-2's has: merges are strings, and newer settings are not there."""
    with open(path) as f:
        file = json.load(f)
    file["model"]["merges"] = [" ".join(m) for m in file["model"]["merges"]]
    for name in ("byte_fallback", "ignore_merges"):
        del file["model"][name]
    del file["model"]["type"]
    with open(path, "w") as f:
        json.dump(file, f, ensure_ascii=False, separators=(",", ":"))


def ranges(pattern):
    """The first and last of each run of characters that a pattern matches."""
    out = []
    for start, stop in ((0, 0xd800), (0xe000, 0x110000)):
        text = "".join(map(chr, range(start, stop)))
        for piece, (at, end) in pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text):
            if not pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(piece[0]):
                out.append([start + at, start + end - 1])
    return out


def results(t, texts):
    ids = [t.encode(s, add_special_tokens=False).ids for s in texts]
    return {"vocab": max(t.get_vocab().values()) + 1, "ids": ids, "prompt": t.encode("the rays").ids,
            "decoded": [t.decode(i, skip_special_tokens=False) for i in ids]}


def compare(folders):
    rng = random.Random(2)
    texts = TEXTS + ["".join(rng.choices(NASTY, k=rng.randint(1, 10))) for _ in range(2000)]
    texts += ["".join(chr(c) + rng.choice("a\u0301 ") for c in range(at, at + 64) if not 0xD800 <= c < 0xE000) for at in range(0, 0x20000, 64)]
    print(json.dumps({"texts": texts} | {f: results(Tokenizer.from_file(os.path.join(f, "tokenizer.json")), texts) for f in folders}))


def main():
    rng = random.Random(1)
    texts = TEXTS + TEXT + ["".join(TEXT)] + ["".join(rng.choices(PIECES, k=rng.randint(2, 12))) for _ in range(150)]
    expect = {"texts": texts, "classes": {"space": ranges(r"\s+"), "letter": ranges(r"\p{L}+"), "number": ranges(r"\p{N}+")}}
    for make in (gpt2, llama3, qwen2, llama2, metaspace, smollm, phi3, gemma, t5, xlmr, albert, fallback, bert, cased):
        name = make.__name__
        path = os.path.join(name, "tokenizer.json")
        if not os.path.exists(path):  # the training is not the same each time, where pairs are equally frequent
            os.makedirs(name, exist_ok=True)
            make().save(path, pretty=False)
            if make is gpt2:
                as_old(path)
        t = Tokenizer.from_file(path)
        expect[name] = results(t, texts)
        if name in ("gpt2", "llama3", "qwen2"):  # the lengths of words, in characters
            expect[name]["words"] = [[end - at for _, (at, end) in t.pre_tokenizer.pre_tokenize_str(s)] for s in texts]
    with open("expect.json", "w") as f:
        json.dump(expect, f, separators=(",", ":"))


if sys.argv[1:2] == ["compare"]:
    compare(sys.argv[2:])
else:
    main()
