package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/ringo-ml/ringo"

// surface is a file in which every expression of a page can be evaluated: its imports, and its function's parameters, are the names that
// pages use.
const surface = `package page

import (
	"context"

	"` + modulePath + `/ckpt"
	"` + modulePath + `/ckpt/inspect"
	"` + modulePath + `/data"
	"` + modulePath + `/data/images"
	"` + modulePath + `/data/parquet"
	"` + modulePath + `/ddp"
	"` + modulePath + `/ddp/powersgd"
	"` + modulePath + `/dist"
	"` + modulePath + `/dist/autograd"
	"` + modulePath + `/dist/backend"
	"` + modulePath + `/dist/join"
	"` + modulePath + `/fsdp"
	"` + modulePath + `/layout"
	"` + modulePath + `/models/gpt"
	"` + modulePath + `/moe"
	"` + modulePath + `/nn"
	"` + modulePath + `/optim"
	"` + modulePath + `/optim/schedule"
	"` + modulePath + `/plan"
	"` + modulePath + `/tensor"
	"` + modulePath + `/tensor/capture"
	"` + modulePath + `/tensor/cpu"
	"` + modulePath + `/tensor/memory"
	"` + modulePath + `/tensor/ops"
	"` + modulePath + `/tp"
	"` + modulePath + `/train"
)

func _(` + pageNames + `) {
}
`

// pageNames are what expressions of pages may use.
const pageNames = `ctx context.Context, x, y, z, loss, logits, labels tensor.Tensor, tape *tensor.Tape, r *dist.Rank, g *dist.Group,
	mesh *dist.Mesh, opt *optim.Optimizer, params nn.Params, p *tensor.Param, s *fsdp.Sharding, set data.Dataset, batches *data.Loader,
	model *nn.MLP`

// scope type-checks expressions against the packages of this module.
type scope struct {
	fset *token.FileSet
	pkg  *types.Package
	pos  token.Pos
}

var loadScope = sync.OnceValues(func() (*scope, error) {
	s := &scope{fset: token.NewFileSet()}
	file, err := parser.ParseFile(s.fset, "page.go", surface, 0)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		paths = append(paths, name)
	}
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, export, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = export
	}
	lookup := func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) }
	var errs []error
	conf := types.Config{Importer: importer.ForCompiler(s.fset, "gc", lookup), Error: func(err error) {
		if !strings.Contains(err.Error(), "imported and not used") {
			errs = append(errs, err)
		}
	}}
	s.pkg, _ = conf.Check("page", s.fset, []*ast.File{file}, nil)
	s.pos = file.Decls[len(file.Decls)-1].(*ast.FuncDecl).Body.Lbrace + 1
	return s, errors.Join(errs...)
})

// member is a field or method of a type, which an expression could not name if its receiver is a pointer.
var member = regexp.MustCompile(`^(\w+)\.([A-Z]\w*)\.([A-Z]\w*)$`)

// check returns an error if the expression does not type-check.
func (s *scope) check(expr string) error {
	if m := member.FindStringSubmatch(expr); m != nil {
		if tv, err := types.Eval(s.fset, s.pkg, s.pos, m[1]+"."+m[2]); err == nil && tv.IsType() {
			if obj, _, _ := types.LookupFieldOrMethod(tv.Type, true, s.pkg, m[3]); obj == nil {
				return fmt.Errorf("%s.%s has no %s", m[1], m[2], m[3])
			}
			return nil
		}
	}
	_, err := types.Eval(s.fset, s.pkg, s.pos, expr)
	return err
}

// code are the code spans of a text.
var code = regexp.MustCompile("`([^`]+)`")

// row is a line of a table.
type row struct {
	at    string // page and line
	cells []string
}

// rows returns the lines of a page's tables, but for those of dashes.
func rows(t *testing.T, page string) []row {
	t.Helper()
	var list []row
	for i, line := range strings.Split(read(t, page), "\n") {
		if inner, ok := strings.CutPrefix(line, "|"); ok && !strings.HasPrefix(inner, "---") {
			cells := strings.Split(strings.TrimSuffix(inner, "|"), " | ")
			for k := range cells {
				cells[k] = strings.TrimSpace(cells[k])
			}
			list = append(list, row{fmt.Sprintf("%s:%d", page, i+1), cells})
		}
	}
	require.NotEmpty(t, list)
	return list
}

// goCode says what of a table's code is Go, and not a command, a method that the reader writes, or a page.
func goCode(span string) bool {
	return !strings.HasPrefix(span, "ringo ") && span != "Forward"
}

// Every expression in the right column of docs/pytorch.md, and every name in docs/glossary.md, exists.
func TestNames(t *testing.T) {
	s, err := loadScope()
	require.NoError(t, err)
	checked := 0
	for _, page := range []string{"docs/pytorch.md", "docs/glossary.md"} {
		for _, r := range rows(t, page) {
			last := r.cells[len(r.cells)-1]
			if page == "docs/glossary.md" && len(r.cells[0]) == 1 { // a kind: the letter, its name, its meaning
				last = r.cells[1]
			}
			for _, m := range code.FindAllStringSubmatch(last, -1) {
				if goCode(m[1]) {
					assert.NoError(t, s.check(m[1]), "%s: %s", r.at, m[1])
					checked++
				}
			}
		}
	}
	assert.Greater(t, checked, 150)
}

// The letter of a kind in the glossary is the first one of its name.
func TestKinds(t *testing.T) {
	letters := map[string]bool{}
	for _, r := range rows(t, "docs/glossary.md") {
		if len(r.cells[0]) == 1 {
			assert.True(t, strings.HasPrefix(r.cells[1], "`tensor."+r.cells[0]), "%s", r.at)
			letters[r.cells[0]] = true
		}
	}
	assert.Len(t, letters, 6)
}

// The glossary is in the order of the alphabet, and each word is there once.
func TestGlossaryOrder(t *testing.T) {
	before := ""
	for _, r := range rows(t, "docs/glossary.md")[1:] {
		if r.cells[0] == "letter" {
			break
		}
		word := strings.ToLower(r.cells[0])
		assert.Less(t, before, word, r.at)
		before = word
	}
}

// What go doc prints of package tensor before its types are functions for users: those for implementers are methods of Raw, or return a
// type of theirs and stand with it.
func TestFunctionsOfTensor(t *testing.T) {
	s, err := loadScope()
	require.NoError(t, err)
	tv, err := types.Eval(s.fset, s.pkg, s.pos, "tensor.Tensor{}")
	require.NoError(t, err)
	pkg := tv.Type.(*types.Named).Obj().Pkg()
	var list []string
	for _, name := range pkg.Scope().Names() {
		f, ok := pkg.Scope().Lookup(name).(*types.Func)
		if ok && f.Exported() && !returnsOwn(f, pkg) {
			list = append(list, name)
		}
	}
	assert.Equal(t, []string{"Copy", "Data", "Floats", "GlobalCount", "HashName", "Operand", "RandomBits", "RandomKey",
		"StepBytes", "Try"}, list)
}

// returnsOwn reports whether a function returns a type of its package, with which go doc lists it.
func returnsOwn(f *types.Func, pkg *types.Package) bool {
	for v := range f.Signature().Results().Variables() {
		t := v.Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		if named, ok := types.Unalias(t).(*types.Named); ok && named.Obj().Pkg() == pkg {
			return true
		}
		if _, ok := t.(*types.Alias); ok { // BF16 and F16
			return true
		}
	}
	return false
}

func TestCheck(t *testing.T) {
	s, err := loadScope()
	require.NoError(t, err)
	assert.NoError(t, s.check("x.Add(y)"))
	assert.NoError(t, s.check("dist.Work"))
	assert.NoError(t, s.check("tp.Parallel.Columns"))
	assert.NoError(t, s.check("optim.AdamWConfig{Clip: 1}"))
	assert.Error(t, s.check("x.Plus(y)"))
	assert.Error(t, s.check("x.Add(1)"))
	assert.Error(t, s.check("optim.AdamWConfig{Clipping: 1}"))
	assert.Error(t, s.check("tp.Parallel.Rows"))
	assert.Error(t, s.check("tp.Paralel"))
}

// declared are the names that a Go file declares: functions, methods also as Type.Method, types, fields also as Type.field, variables and
// constants.
func declared(t *testing.T, name string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.SkipObjectResolution)
	require.NoError(t, err)
	list := map[string]bool{}
	add := func(of, name string) {
		list[name] = true
		if of != "" {
			list[of+"."+name] = true
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			of := ""
			if d.Recv != nil {
				of = receiver(d.Recv.List[0].Type)
			}
			add(of, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add("", spec.Name.Name)
					fields(spec, add)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						add("", id.Name)
					}
				}
			}
		}
	}
	return list
}

// fields adds the fields of a struct, or the methods of an interface.
func fields(spec *ast.TypeSpec, add func(of, name string)) {
	var list *ast.FieldList
	switch x := spec.Type.(type) {
	case *ast.StructType:
		list = x.Fields
	case *ast.InterfaceType:
		list = x.Methods
	default:
		return
	}
	for _, f := range list.List {
		for _, id := range f.Names {
			add(spec.Name.Name, id.Name)
		}
	}
}

func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

var identifier = regexp.MustCompile(`^\w+(\.\w+)?$`)

// In docs/ARCHITECTURE.md a file is named by its path, and what is named after it, up to the next file, it declares.
func TestArchitecture(t *testing.T) {
	const page = "docs/ARCHITECTURE.md"
	file, names, checked := "", map[string]bool(nil), 0
	for i, line := range strings.Split(read(t, page), "\n") {
		if strings.HasPrefix(line, "#") {
			file, names = "", nil
		}
		for _, m := range code.FindAllStringSubmatch(line, -1) {
			at := fmt.Sprintf("%s:%d: %s", page, i+1, m[1])
			switch {
			case path.Ext(m[1]) == ".go":
				file, names = m[1], declared(t, m[1])
				checked++
			case strings.Contains(m[1], "/"):
				_, err := os.Stat(root + m[1])
				assert.NoError(t, err, at)
			case identifier.MatchString(m[1]) && names != nil:
				assert.True(t, names[m[1]], "%s is not declared in %s", at, file)
				checked++
			default:
				t.Errorf("%s: neither a path nor a name of the file before it", at)
			}
		}
	}
	assert.Greater(t, checked, 60)
}

// Its list of files has the doc.go of every package under dist and fsdp, and all files of these two but tests.
func TestFilesAreListed(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "docs/ARCHITECTURE.md"), "\n## The files of dist and fsdp\n")
	require.True(t, ok)
	list, _, _ := strings.Cut(rest, "\n## ")
	for _, top := range []string{"dist", "fsdp"} {
		require.NoError(t, filepath.WalkDir(root+top, func(p string, d fs.DirEntry, err error) error {
			p = strings.TrimPrefix(filepath.ToSlash(p), root)
			if err == nil && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			if name := path.Base(p); name == "doc.go" || path.Dir(p) == top && path.Ext(p) == ".go" && !strings.HasSuffix(p, "_test.go") {
				assert.Contains(t, list, "`"+p+"`")
			}
			return err
		}))
	}
}

// fileName is the name of a Go file in a package comment, or a pattern such as fd_*.go.
var fileName = regexp.MustCompile(`[\w*]+\.go\b`)

// unexplained compares the files of a package with those that its comment names. It returns the files that the comment lacks, and the names
// of the comment that are no file.
func unexplained(comment string, files []string) (missing, unknown []string) {
	patterns := fileName.FindAllString(comment, -1)
	named := map[string]bool{}
	for _, p := range patterns {
		found := false
		for _, name := range files {
			if ok, err := path.Match(p, name); err == nil && ok {
				named[name], found = true, true
			}
		}
		if !found {
			unknown = append(unknown, p)
		}
	}
	for _, name := range files {
		if !named[name] && name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
			missing = append(missing, name)
		}
	}
	return missing, unknown
}

// Each package below dist can be explained by its doc.go: it names all files but tests. One file of the package's name needs no line.
func TestFilesAreExplained(t *testing.T) {
	docs, err := filepath.Glob(root + "dist/*/doc.go")
	require.NoError(t, err)
	deeper, err := filepath.Glob(root + "dist/*/*/doc.go")
	require.NoError(t, err)
	docs = append(docs, deeper...)
	require.Greater(t, len(docs), 8)
	for _, doc := range docs {
		dir := filepath.Dir(doc)
		file, err := parser.ParseFile(token.NewFileSet(), doc, nil, parser.ParseComments)
		require.NoError(t, err)
		list, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for i := range list {
			list[i] = filepath.Base(list[i])
		}
		missing, unknown := unexplained(file.Doc.Text(), list)
		if len(missing) == 1 && missing[0] == file.Name.Name+".go" {
			missing = nil
		}
		assert.Empty(t, missing, "%s does not explain these files", doc)
		assert.Empty(t, unknown, "%s names these files, which do not exist", doc)
	}
}

func TestUnexplained(t *testing.T) {
	files := []string{"doc.go", "a.go", "fd_unix.go", "fd_other.go", "b.go", "b_test.go"}
	missing, unknown := unexplained("a.go has A; fd_*.go the rest. gone.go\nc_*.go", files)
	assert.Equal(t, []string{"b.go"}, missing)
	assert.Equal(t, []string{"gone.go", "c_*.go"}, unknown)
}

func TestDeclared(t *testing.T) {
	names := declared(t, "tensor/leaf.go")
	for _, name := range []string{"Hooks", "Hooks.GradReady", "Param.Own", "Own", "Tape.Use", "leafState.ready", "Forward"} {
		assert.True(t, names[name], name)
	}
	assert.False(t, names["Tape.Own"])
}
