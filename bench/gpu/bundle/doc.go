// Package bundle makes one file of many programs that share most of their code, and runs it: a small program that unpacks the others, and
// behind it a tar in one zstd stream with a window over all of them, which is a third of an archive of single files.
package bundle
