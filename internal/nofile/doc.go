// Package nofile says, when a process has no file descriptors left, what the limit is and how many descriptors it needs.
package nofile
