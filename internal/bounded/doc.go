// Package bounded reads small files that may come from anybody.
package bounded
