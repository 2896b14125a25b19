package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// starters maps packages that start the emulator for tests to their functions that do so; nil: all functions.
type starters map[string]map[string]bool

// findStarters finds such functions in the package of tests with several ranks, which consists of these files.
func findStarters(files []string) (starters, error) {
	s := starters{emulator: nil}
	found, err := users(files, s)
	s[helper] = map[string]bool{}
	for _, name := range found {
		s[helper][name] = true
	}
	return s, err
}

// gpuTests lists the tests in some files of a package that use the emulator, directly or through functions that they mention. They run on a
// GPU. The other tests of the package do not use one.
func gpuTests(files []string, s starters) ([]string, error) {
	found, err := users(files, s)
	return slices.DeleteFunc(found, func(name string) bool { return !isTest(name) }), err
}

// users lists the functions in some files of a package that use the emulator, directly or not.
func users(files []string, s starters) ([]string, error) {
	mentions := map[string]map[string]bool{} // names of declarations, to the names in them
	var functions []string
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		imported := s.in(f)
		for _, d := range f.Decls {
			for _, declared := range names(d) {
				if mentions[declared] == nil {
					mentions[declared] = map[string]bool{}
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						mentions[declared][id.Name] = true
					}
					if imported.starts(n) {
						mentions[declared][emulator] = true
					}
					return true
				})
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
					functions = append(functions, declared)
				}
			}
		}
	}
	return slices.DeleteFunc(functions, func(f string) bool { return !reaches(mentions, f, map[string]bool{}) }), nil
}

// isTest leaves out the tests of the long runs: on a GPU, the others run in every variant.
func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "TestLong") && name != "TestMain"
}

// in returns the starters that a file imports, by the file's names for them.
func (s starters) in(f *ast.File) starters {
	out := starters{}
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		functions, ok := s[p]
		if !ok {
			continue
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		out[name] = functions
	}
	return out
}

// starts reports whether n names a function that starts the emulator.
func (s starters) starts(n ast.Node) bool {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	p, ok := sel.X.(*ast.Ident)
	if !ok {
		return false
	}
	functions, ok := s[p.Name]
	return ok && (functions == nil || functions[sel.Sel.Name])
}

// names returns the names that a declaration declares: a function, or variables.
func names(d ast.Decl) (out []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				for _, id := range v.Names {
					out = append(out, id.Name)
				}
			}
		}
	}
	return out
}

// reaches reports whether name mentions the emulator, directly or through other names.
func reaches(mentions map[string]map[string]bool, name string, seen map[string]bool) bool {
	if mentions[name][emulator] {
		return true
	}
	seen[name] = true
	for next := range mentions[name] {
		if !seen[next] && mentions[next] != nil && reaches(mentions, next, seen) {
			return true
		}
	}
	return false
}
