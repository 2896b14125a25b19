// Package disk is the file system below a checkpoint. It has only what saving and loading need, so that tests can
// replace it by one that fails, or that loses what was not flushed.
//
//   - fs.go: FS and File, OS (the operating system's), and reading and writing of small files.
//   - lock.go, lock_unix.go, lock_windows.go: one save at a time in a directory.
//   - preallocate_linux.go, preallocate_other.go: disk space is reserved before anything is written.
package disk
