package main

import (
	"encoding/binary"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
)

// What an independent decoder reads in the numbers of the assembly must be what stands behind them.
func TestNEONWords(t *testing.T) {
	text, err := os.ReadFile("../asm_neon_arm64.s")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`WORD \$(\S+) // (.+)`).FindAllSubmatch(text, -1)
	if len(words) != strings.Count(string(text), "WORD") || len(words) == 0 {
		t.Fatalf("%d of %d words have a meaning", len(words), strings.Count(string(text), "WORD"))
	}
	seen := map[string]bool{}
	for _, w := range words {
		code, err := strconv.ParseUint(string(w[1]), 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		in, err := arm64asm.Decode(binary.LittleEndian.AppendUint32(nil, uint32(code)))
		if err != nil {
			t.Fatalf("%s: %v", w[0], err)
		}
		if got, want := arm64asm.GNUSyntax(in), string(w[2]); got != want {
			t.Fatalf("%s is %s, not %s", w[1], got, want)
		}
		name, _, _ := strings.Cut(string(w[2]), " ")
		seen[name] = true
	}
	for name, w := range neonWords {
		if mnemonic, _, _ := strings.Cut(w.text, " "); !seen[mnemonic] {
			t.Errorf("%s is in no kernel", name)
		}
	}
}
