package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// gpuTests lists the tests in some files of a package that use the emulator, themselves or through what they mention: these
// run on a GPU. The other tests of the package have nothing to do with one.
func gpuTests(files []string) ([]string, error) {
	mentions := map[string]map[string]bool{} // by a declaration's name: the names in it
	var tests []string
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		name := emulatorIn(f)
		for _, d := range f.Decls {
			for _, declared := range names(d) {
				if mentions[declared] == nil {
					mentions[declared] = map[string]bool{}
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						mentions[declared][id.Name] = true
						mentions[declared][emulator] = mentions[declared][emulator] || id.Name == name
					}
					return true
				})
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTest(declared) {
					tests = append(tests, declared)
				}
			}
		}
	}
	return slices.DeleteFunc(tests, func(t string) bool { return !reaches(mentions, t, map[string]bool{}) }), nil
}

func isTest(name string) bool { return strings.HasPrefix(name, "Test") && name != "TestMain" }

// emulatorIn is the name that a file imports the emulator by, or "".
func emulatorIn(f *ast.File) string {
	for _, i := range f.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); path == emulator {
			if i.Name != nil {
				return i.Name.Name
			}
			return "emu"
		}
	}
	return ""
}

// names are what a declaration declares: a function, or variables.
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

// reaches reports whether what is mentioned from a name on leads to the emulator.
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
