// Package timeline writes and reads files of what package trace recorded, in the Trace Event format of Perfetto and chrome://tracing. It
// puts ranks on one clock, and makes summaries.
//
//	write.go, read.go      the format
//	clock.go               in which order the ranks' spans must be
//	align.go               ranks on one clock
//	summary.go, late.go    where the time went, and which ranks were late
//	program.go             what the ranks did, for a replay
package timeline
