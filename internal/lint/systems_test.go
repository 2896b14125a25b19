package lint

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// systems are those that the gate does not compile for: system, processor, build tag. Their files are checked here as a compiler does, but
// no code is generated; a stage of every night compiles for them.
var systems = [][3]string{{"darwin", "arm64"}, {"windows", "amd64"}, {"linux", "amd64", "nodl"}, {"linux", "amd64", "noasm"}}

func TestLongSystems(t *testing.T) {
	reliability.SkipUnlessLong(t)
	for _, s := range systems {
		t.Run(strings.Join(s[:], " "), func(t *testing.T) {
			t.Parallel()
			report(t, checkSystem(t, moduleRoot, s))
		})
	}
}

// found gives the packages that were checked before.
type found func(path string) *types.Package

func (f found) Import(path string) (*types.Package, error) {
	if p := f(path); p != nil {
		return p, nil
	}
	return nil, errors.New("no package " + path)
}

// checkSystem finds what a compiler for a system refuses in a module and in what it needs. Of the standard library only declarations are
// read.
func checkSystem(t *testing.T, dir string, system [3]string) (findings []string) {
	t.Helper()
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	fset := token.NewFileSet()
	packages, err := list(dir, []string{"GOOS=" + system[0], "GOARCH=" + system[1], "CGO_ENABLED=0"}, "-tags", system[2], "./...")
	require.NoError(t, err)
	for _, p := range packages {
		if p.ImportPath == "unsafe" {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution|parser.ParseComments)
			require.NoError(t, err)
			files = append(files, f)
		}
		config := types.Config{
			IgnoreFuncBodies: p.Standard,
			Sizes:            types.SizesFor("gc", system[1]),
			Error:            func(err error) { findings = append(findings, err.Error()) },
			Importer: found(func(path string) *types.Package {
				if mapped, ok := p.ImportMap[path]; ok {
					path = mapped
				}
				return checked[path]
			}),
		}
		checked[p.ImportPath], _ = config.Check(p.ImportPath, fset, files, nil)
		if p.Module.Main {
			findings = append(findings, checkBodies(t, fset, p, files)...)
		}
	}
	return findings
}

// checkBodies finds functions that have neither a body nor assembly, and that are not linked to another one's name.
func checkBodies(t *testing.T, fset *token.FileSet, p listed, files []*ast.File) (findings []string) {
	t.Helper()
	var assembly strings.Builder
	for _, name := range p.SFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		require.NoError(t, err)
		assembly.Write(text)
	}
	for _, f := range files {
		var linked strings.Builder
		for _, c := range f.Comments {
			for _, line := range c.List {
				if strings.HasPrefix(line.Text, "//go:linkname ") {
					linked.WriteString(line.Text + " ")
				}
			}
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body != nil || strings.Contains(linked.String(), " "+fn.Name.Name+" ") ||
				strings.Contains(assembly.String(), "·"+fn.Name.Name+"(SB)") {
				continue
			}
			findings = append(findings, fset.Position(fn.Pos()).String()+": missing function body")
		}
	}
	return findings
}

func TestCheckSystem(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module m\n\ngo 1.26\n",
		"a.go":         "package a\n\nvar A = b()\n",
		"b_linux.go":   "package a\n\nfunc b() int { return 1 }\n",
		"b_windows.go": "package a\n\nfunc b() int { return \"\" }\n",
		"b_plan9.go":   "package a\n\nfunc b() int\n",
		"c_tagged.go":  "//go:build tagged\n\npackage a\n\nfunc c() { var unused int }\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for system, want := range map[[3]string]string{
		{"linux", "amd64"}:           "",
		{"darwin", "arm64"}:          "undefined: b",
		{"windows", "amd64"}:         "cannot use \"\" (untyped string constant) as int value in return statement",
		{"plan9", "amd64"}:           "missing function body",
		{"linux", "amd64", "tagged"}: "declared and not used: unused",
	} {
		findings := checkSystem(t, dir, system)
		if want == "" {
			assert.Empty(t, findings)
			continue
		}
		require.Len(t, findings, 1, system)
		assert.Contains(t, findings[0], want)
	}
}
