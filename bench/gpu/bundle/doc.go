// Package bundle makes one file of many programs that share most of their code, and runs it. The file begins with a small program that
// unpacks the others. After it comes a tar in one zstd stream, with a window over all of them: its size is a third of an archive of
// separately compressed files.
package bundle
