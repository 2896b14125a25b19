// Package nofile says which limit it was when a process runs out of file descriptors, and how many it needs.
package nofile
