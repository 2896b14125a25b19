"""The maps of characters in SentencePiece's models, "precompiled_charsmap": a double array (darts-clone) and the texts it leads to."""
import base64
import struct


def charsmap(rules):
    """Makes one, in base64, of a dict of texts."""
    values, texts = {}, b""
    for to in dict.fromkeys(rules.values()):
        values[to] = len(texts)
        texts += to.encode() + b"\0"
    root = {}
    for old, to in rules.items():
        node = root
        for b in old.encode():
            node = node.setdefault(b, {})
        node[0] = values[to]
    units, bases, leaves = {0: 0}, set(), {}

    def place(node, at, label):
        """Writes the unit of a node at a place, and what is below it."""
        key = node.get(0) if list(node) == [0] else None
        base = leaves.get(key)
        if base is None:
            base = next(b for b in range(len(bases) // 2, 1 << 21) if b not in bases and all(b ^ c not in units for c in node) and b ^ at < 1 << 21)
            bases.add(base)
            for c in node:
                units[base ^ c] = 0
            if key is not None:
                leaves[key] = base
        units[at] = (base ^ at) << 10 | (0 in node) << 8 | label
        for c, below in node.items():
            if c == 0:
                units[base] = below | 1 << 31
            else:
                place(below, base ^ c, c)

    place(root, 0, 0)
    size = (max(units) | 0xFF) + 1
    trie = struct.pack(f"<{size}I", *(units.get(i, 0) for i in range(size)))
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()
