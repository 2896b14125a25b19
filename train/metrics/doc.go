// Package metrics writes values by step to files that other programs read.
//
//	{"step":1,"time":1700000000.250,"loss":2.31}      JSON Lines: an object for the values of a step
//	1,1700000000.250,loss,2.31                        CSV: step, time, name, value
//
// Times are seconds since 1970. What is not finite is "NaN", "+Inf" or "-Inf".
package metrics
