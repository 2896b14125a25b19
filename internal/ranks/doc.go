// Package ranks writes lists of ranks for people: "ranks 1-7, 12".
package ranks
