// Package bounded is what readers of files that may come from anybody share.
//
//   - file.go: only regular files are opened; small ones are read whole; hidden ones.
//   - budget.go: how much memory a file justifies.
//   - text.go: words of a file in errors.
package bounded
