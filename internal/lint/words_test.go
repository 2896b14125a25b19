package lint

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// words has, for each word that is not to be used in names and in texts for users, what stands in its place. CONTRIBUTING.md has the same
// table. A word, also inflected, is compared with the parts of a name: doorsOpen has door and open.
var words = map[string]string{
	"afloat":  "arriving",
	"blame":   "cause",
	"buried":  "retired",
	"bury":    "retire",
	"door":    "accept",
	"doubt":   "stall",
	"gone":    "lost",
	"grave":   "retired",
	"greet":   "hello",
	"land":    "waitUnshard",
	"limbo":   "unreferenced",
	"meet":    "rendezvous",
	"meeting": "rendezvous",
	"seal":    "checksum",
	"soften":  "online_softmax",
	"wholes":  "gradPool",
}

// wordsAllowed are such words in the field's own sense, or in the plain one, by package.
var wordsAllowed = map[string][]string{
	"cmd/ringo/doctor": {"sealed"}, // memory files of Linux
	"dist/shm":         {"sealed", "seals"},
	"dist/tcp":         {"seal", "sealed"}, // as cipher.AEAD
	"layout":           {"meet"},           // rows
	"tensor":           {"meet"},
	"tensor/typing":    {"meet"},
}

// nameWords returns the parts of a name, in lower case: "HTTPServerOf2" has http, server, of.
func nameWords(name string) []string {
	var parts []string
	var part []rune
	end := func() {
		if len(part) > 0 {
			parts = append(parts, strings.ToLower(string(part)))
		}
		part = part[:0]
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && (i == 0 || !unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end()
		}
		part = append(part, r)
	}
	end()
	return parts
}

// declared returns the names that a file declares: functions, types, fields, parameters, variables.
func declared(file *ast.File) []*ast.Ident {
	var names []*ast.Ident
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				names = append(names, idents(n.Lhs...)...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				names = append(names, idents(n.Key, n.Value)...)
			}
		}
		return true
	})
	return names
}

// idents returns those expressions that are names.
func idents(exprs ...ast.Expr) []*ast.Ident {
	var names []*ast.Ident
	for _, e := range exprs {
		if id, ok := e.(*ast.Ident); ok {
			names = append(names, id)
		}
	}
	return names
}

// instead returns the word that stands for a part of a name, and the word of the table that it is: "greeting" is greet.
func instead(table map[string]string, part string) (other, word string) {
	for _, ending := range []string{"", "s", "es", "ed", "ing"} {
		stem, ok := strings.CutSuffix(part, ending)
		if other := table[stem]; ok && other != "" {
			return other, stem
		}
	}
	return "", ""
}

// texts returns the strings of a file that are no imports and no tags.
func texts(file *ast.File) (list []*ast.BasicLit) {
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = true
		case *ast.BasicLit:
			if n.Kind == token.STRING && !tags[n] {
				list = append(list, n)
			}
		}
		return true
	})
	return list
}

// checkWords finds unexported names, texts and names of files outside tests that use a word in place of the one that stands for it.
// Exported names keep their spelling.
func checkWords(sources []*source, table map[string]string, allowed map[string][]string) []string {
	var findings []string
	for _, s := range sources {
		if s.test || s.generated {
			continue
		}
		check := func(pos token.Pos, what, name string) {
			for _, part := range nameWords(name) {
				if other, w := instead(table, part); other != "" && !slices.Contains(allowed[s.dir], part) {
					findings = append(findings, s.at(pos, "%s: this project says %s for %s (CONTRIBUTING.md, Words)", what, other, w))
				}
			}
		}
		base := strings.TrimSuffix(path.Base(s.path), ".go")
		check(s.file.Package, base, base)
		for _, id := range declared(s.file) {
			if !id.IsExported() {
				check(id.Pos(), id.Name, id.Name)
			}
		}
		for _, text := range texts(s.file) {
			check(text.Pos(), text.Value, text.Value)
		}
	}
	return findings
}

func TestWords(t *testing.T) {
	report(t, checkWords(moduleSources(t), words, wordsAllowed))
}

func TestCheckWords(t *testing.T) {
	sources := fixture(t, map[string]string{
		"a/landing.go": `package a

import _ "a/door"

type door struct{ gone, lost bool }

func DoorOf(openDoor int) (greetAll string) {
	for land := range openDoor {
		grave, island := land, land
		_, _ = grave, island
	}
	var inDoubt, seal bool
	_, _ = inDoubt, seal
	return "greetings: rank %d blames"
}
`,
		"a/a_test.go": "package a\n\nvar door2 int\n",
	})
	var names []string
	for _, finding := range checkWords(sources, words, map[string][]string{"a": {"seal"}}) {
		names = append(names, strings.Split(finding, ": ")[1])
	}
	assert.Equal(t, []string{"landing", "door", "gone", "openDoor", "greetAll", "land", "grave", "inDoubt", `"greetings`}, names)
}

func TestNameWords(t *testing.T) {
	for name, want := range map[string][]string{"doorOpen": {"door", "open"}, "HTTPServerOf2": {"http", "server", "of"}, "a": {"a"}, "_": nil,
		"snake_case": {"snake", "case"}, "errLauncherGone": {"err", "launcher", "gone"}} {
		assert.Equal(t, want, nameWords(name), name)
	}
}

// TestWordsPage: CONTRIBUTING.md says the same.
func TestWordsPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot, "CONTRIBUTING.md"))
	require.NoError(t, err)
	_, page, found := strings.Cut(string(text), "\n## Words\n")
	require.True(t, found)
	page, _, _ = strings.Cut(page, "\n## ")
	inPage := map[string]string{}
	for _, line := range strings.Split(page, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		for _, w := range strings.Split(cells[2], ",") {
			if w = strings.TrimSpace(w); w != "" {
				inPage[w] = strings.Trim(cells[1], " `")
			}
		}
	}
	assert.Equal(t, words, inPage)
}
