// Package timeline makes files of what package trace recorded, in the Trace Event format that Perfetto and chrome://tracing open, and reads
// them. It puts ranks on one clock, and sums them up.
//
// write.go and read.go have the format, clock.go has what orders the ranks' spans, align.go puts ranks on one clock,
// summary.go and late.go say what the time went into and who was late.
package timeline
