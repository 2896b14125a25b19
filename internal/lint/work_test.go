package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

const distPath = modulePath + "/dist"

// checkWork finds the calls of one type-checked file whose result is of type
// work and goes nowhere.
func checkWork(s *source, info *types.Info, work types.Type) []string {
	var findings []string
	// find reports the expression if it is a call and discards(i) holds for
	// the place i of a Work among its results.
	find := func(e ast.Expr, discards func(i int) bool) {
		call, ok := ast.Unparen(e).(*ast.CallExpr)
		if !ok || s.excused(call.Pos(), "discard") {
			return
		}
		for i, t := range results(info.TypeOf(call)) {
			if types.Identical(t, work) && discards(i) {
				findings = append(findings, s.at(call.Pos(), "nobody waits for the dist.Work of this call"))
			}
		}
	}
	always := func(int) bool { return true }
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch st := n.(type) {
		case *ast.ExprStmt:
			find(st.X, always)
		case *ast.GoStmt:
			find(st.Call, always)
		case *ast.DeferStmt:
			find(st.Call, always)
		case *ast.AssignStmt:
			for i, right := range st.Rhs {
				find(right, func(of int) bool { return isBlank(st.Lhs[i+of]) })
			}
		}
		return true
	})
	return findings
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// results are the types of a call's results.
func results(t types.Type) []types.Type {
	tuple, ok := t.(*types.Tuple)
	if !ok {
		return []types.Type{t}
	}
	var list []types.Type
	for v := range tuple.Variables() {
		list = append(list, v.Type())
	}
	return list
}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath, Name, Dir, Export, ForTest string
	GoFiles, SFiles                        []string
	ImportMap                              map[string]string
	DepOnly, Standard                      bool
	Module                                 struct{ Main bool }
}

// list describes packages and, before each, all that it imports, as arguments of go list choose them.
func list(root string, env []string, args ...string) ([]listed, error) {
	fields := "-json=ImportPath,Name,Dir,Export,ForTest,GoFiles,SFiles,ImportMap,DepOnly,Standard,Module"
	cmd := exec.Command("go", append([]string{"list", "-deps", fields}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// discardedWork applies checkWork to the packages of a module that import
// dist, and to dist, with their tests.
func discardedWork(root string, sources []*source) ([]string, error) {
	dirs := importers(sources, distPath)
	if len(dirs) == 0 {
		return nil, nil
	}
	args := []string{"-export", "-test"}
	for _, dir := range dirs {
		args = append(args, "./"+dir)
	}
	packages, err := list(root, nil, args...)
	if err != nil {
		return nil, err
	}
	exports, tested := map[string]string{}, map[string]bool{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
		if p.ForTest != "" && !p.DepOnly {
			tested[strings.TrimSuffix(p.ImportPath, " ["+p.ForTest+".test]")] = true
		}
	}
	once := importer.ForCompiler(token.NewFileSet(), "gc", func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) })
	var findings []string
	for _, p := range packages {
		if p.DepOnly || p.Name == "main" && strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		if tested[p.ImportPath] { // its test variant has the same files, and more
			continue
		}
		found, err := checkPackage(p, exports, once)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	slices.Sort(findings)
	return slices.Compact(findings), nil // variants for several tests share files
}

// importers lists the directories that import a package, and its own.
func importers(sources []*source, pkg string) []string {
	var dirs []string
	for _, s := range sources {
		imports := slices.ContainsFunc(s.file.Imports, func(spec *ast.ImportSpec) bool {
			name, err := strconv.Unquote(spec.Path.Value)
			return err == nil && name == pkg
		})
		if !s.nested && (imports || path.Join(modulePath, s.dir) == pkg) {
			dirs = append(dirs, s.dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// checkPackage type-checks a package against the export data of its imports and applies checkWork to its files. What it imports has been
// read once for all, unless a test has another variant of it.
func checkPackage(p listed, exports map[string]string, once types.Importer) ([]string, error) {
	fset := token.NewFileSet()
	var sources []*source
	var files []*ast.File
	pkgPath, _, _ := strings.Cut(p.ImportPath, " ") // "a [a.test]" is a with its tests
	dir := pkgPath
	if p.ForTest != "" {
		dir = p.ForTest
	}
	for _, name := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		s, err := parse(fset, path.Join(strings.TrimPrefix(dir, modulePath+"/"), name), text)
		if err != nil {
			return nil, err
		}
		sources, files = append(sources, s), append(files, s.file)
	}
	conf := types.Config{Importer: once}
	if len(p.ImportMap) > 0 {
		conf.Importer = importer.ForCompiler(fset, "gc", func(name string) (io.ReadCloser, error) {
			if variant, ok := p.ImportMap[name]; ok {
				name = variant
			}
			return os.Open(exports[name])
		})
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	pkg, err := conf.Check(pkgPath, fset, files, info)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
	}
	var findings []string
	if work := workType(pkg); work != nil {
		for _, s := range sources {
			findings = append(findings, checkWork(s, info, work)...)
		}
	}
	return findings, nil
}

// workType is dist.Work as a package sees it, nil if it does not import dist.
func workType(pkg *types.Package) types.Type {
	for _, p := range append(pkg.Imports(), pkg) {
		if p.Path() != distPath {
			continue
		}
		if obj := p.Scope().Lookup("Work"); obj != nil {
			return obj.Type()
		}
	}
	return nil
}

// The long form looks at tests, too, which takes several times as long.
func TestLongDiscardedWork(t *testing.T) {
	reliability.SkipUnlessLong(t)
	findings, err := discardedWork(moduleRoot, moduleSources(t))
	require.NoError(t, err)
	report(t, findings)
}

// workModule is a module with a dist of its own; every line that says BAD
// must be found, and no other.
var workModule = map[string]string{
	"go.mod": "module " + modulePath + "\n\ngo 1.26\n",
	"dist/dist.go": `package dist

type Work struct{}

func (Work) Wait() error { return nil }

type Group struct{}

func (Group) Send() Work          { return Work{} }
func (Group) Pair() (int, Work)   { return 0, Work{} }
func (Group) Barrier() error      { return nil }
func (g Group) forget()           { g.Send() } // BAD
`,
	"user/user.go": `package user

import collectives "` + distPath + `"

func Use(g collectives.Group, f func() (Work, error)) error {
	g.Send() // BAD
	(g.Send()) // BAD
	_ = g.Send() // BAD
	go g.Send() // BAD
	defer g.Send() // BAD
	g.Pair() // BAD
	n, _ := g.Pair() // BAD
	_, x := n, g.Send()
	_, _ = n, g.Send() // BAD
	func() { g.Send() }() // BAD
	_, y := g.Pair()
	_ = x
	_, _ = f()
	g.Send() //discard: the group is gone
	g.Send() /* BAD */ //discard:
	g.Barrier()
	g.Send().Wait()
	_ = map[int]int{}[0]
	return y.Wait()
}

// Work is not dist's.
type Work struct{}
`,
	"user/in_test.go": "package user\n\nimport \"" + distPath + "\"\n\nfunc in(g dist.Group) {\n\tg.Send() // BAD\n}\n",
	"user/out_test.go": "package user_test\n\nimport (\n\t\"" + distPath + "\"\n\t_ \"" +
		modulePath + "/user\"\n)\n\nfunc out(g dist.Group) {\n\tg.Send() // BAD\n}\n",
	"other/other.go": "package other\n\nfunc f() int { return 0 }\n\nfunc g() { f() }\n",
	// Not of this module: skipped, or the go command would fail.
	"tool/go.mod":          "module example.com/tool\n",
	"tool/main.go":         "package main\n\nimport \"" + distPath + "\"\n\nfunc main() { dist.Group{}.Send() }\n",
	"user/testdata/bad.go": "not Go",
	"_old/bad.go":          "not Go",
}

func TestDiscardedWorkFinds(t *testing.T) {
	root := t.TempDir()
	var want []string
	for name, text := range workModule {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		for i, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "BAD") {
				want = append(want, fmt.Sprintf("%s:%d: nobody waits for the dist.Work of this call", name, i+1))
			}
		}
	}
	sources, err := load(root)
	require.NoError(t, err)
	findings, err := discardedWork(root, sources)
	require.NoError(t, err)
	assert.ElementsMatch(t, want, findings)
}

// TestDiscardedWorkWithoutDist: a module that has no dist yet is no error.
func TestDiscardedWorkWithoutDist(t *testing.T) {
	findings, err := discardedWork(t.TempDir(), fixture(t, map[string]string{"a/a.go": "package a"}))
	require.NoError(t, err)
	assert.Empty(t, findings)
}
