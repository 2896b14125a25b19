// Package docs holds tests of README.md and docs/*.md; it exports nothing. They read the pages and check that these are true:
//
//   - every program in them compiles and runs in a module of its own outside this one (programs_test.go);
//   - every expression of docs/pytorch.md runs, beside PyTorch's with the same numbers, and each default that differs has a row
//     (pytorch_test.go; testdata/pytorch.json has what PyTorch computed: RINGO_PYTHON=python go test ./internal/docs -run Python -update);
//   - every command runs, or stands in the list of those that need more than Go (commands_test.go);
//   - every name of Go code that the tables and lists say exists, and ARCHITECTURE.md and the doc.go of the packages below dist explain all
//     files (names_test.go);
//   - every error text that troubleshooting.md quotes is in the source (messages_test.go);
//   - every link leads somewhere, and the index names every page (links_test.go); rows of docs/benchmarks.csv belong to BENCHMARKS.md.
//
// What a page must print is written into it by go test ./internal/docs -update.
package docs
