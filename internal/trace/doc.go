// Package trace records spans of work (kernels, collectives) with no allocation, and writes them in the Trace Event
// format, which Perfetto and chrome://tracing open.
package trace
