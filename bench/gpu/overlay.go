package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Each program has 2 MiB or more in a bundle. So the examples are in this one: the sources of each become a package, by an overlay of files
// that the go command takes to be there.

// mainClause is what makes a file that of a program.
var mainClause = regexp.MustCompile(`(?m)^package main$|^func main\(\)`)

// overlayExamples writes the examples' sources, as packages, and a file of this program that links them. It returns the overlay's name.
func overlayExamples(tmp string) (overlay string, err error) {
	all, err := listed(module + "/examples/...")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	write := func(path, text string) error {
		file := filepath.Join(tmp, fmt.Sprintf("%d.go", len(replace)))
		replace[path] = file
		return os.WriteFile(file, []byte(text), 0o644)
	}
	imports, entries, root := "", "", ""
	for i, s := range smoked {
		name, _, _ := strings.Cut(s.args, " ")
		for _, p := range all {
			if p.ImportPath != module+"/examples/"+name {
				continue
			}
			root = filepath.Dir(filepath.Dir(p.Dir))
			for _, file := range p.paths(p.GoFiles) {
				text, err := os.ReadFile(file)
				if err != nil {
					return "", err
				}
				renamed := mainClause.ReplaceAllStringFunc(string(text), func(clause string) string {
					return map[bool]string{true: fmt.Sprint("package example", i), false: "func Main()"}[clause == "package main"]
				})
				if err := write(filepath.Join(root, "examples", fmt.Sprint("example", i), filepath.Base(file)), renamed); err != nil {
					return "", err
				}
			}
			imports += fmt.Sprintf("import \"%s/examples/example%d\"\n", module, i)
			entries += fmt.Sprintf("\tlinked[%q] = example%d.Main\n", name, i)
		}
	}
	text := "package main\n\n" + imports + "\nfunc init() {\n" + entries + "}\n"
	if err := write(filepath.Join(root, "bench", "gpu", "linked.go"), text); err != nil {
		return "", err
	}
	overlay = filepath.Join(tmp, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, list, 0o644)
}
